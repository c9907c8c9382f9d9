"""Bounds and pace of one stream."""

from __future__ import annotations

from dataclasses import dataclass

from queueing.lane import MAX_JOB_AUDIO_S
from sessions.wire import BYTES_PER_SAMPLE, SAMPLE_RATE, Limits

MIN_DECODE_S = 0.05
"""Less audio than this cannot hold a word: its final is empty and costs no decode."""

KEEP_BUFFER_S = 60.0
"""A stream that is kept alive without audio renews its buffer's expiry this often."""

MAX_SEGMENT_S = MAX_JOB_AUDIO_S - 0.1
"""Speech without a pause is cut before this. A segment may end a detector's frame beyond it and must still be a job."""

MAX_WAITING_FINALS = 8
MAX_WAITING_AUDIO_S = 60.0
"""A stream whose finals wait in this number, or whose oldest waiting final began this long before the newest audio,
takes no more until one is said: its client is held back, and no audio is lost. So one client that sends faster than
real time has a handful of finals in the queue, not an hour of them, and its buffer stays small."""


def in_bytes(seconds: float) -> int:
    """Whole samples of ``seconds``, at least one, in bytes."""
    return max(1, round(seconds * SAMPLE_RATE)) * BYTES_PER_SAMPLE


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds and pace of one stream, from the front end's settings; seconds and bytes."""

    max_audio_s: float | None = None
    """None: as much as comes."""
    max_frame_bytes: int = 1_048_576
    idle_timeout_s: float = 30.0
    inference_timeout_s: float = 30.0
    handshake_timeout_s: float = 10.0
    partial_interval_s: float = 1.0
    min_partial_audio_s: float = 0.5
    endpoint_s: float | None = 0.8
    """The pause that ends a segment, for streams that name none; None: none does, and everything is decoded."""
    coalesce_s: float = 1.0
    """While somebody speaks, this much collects for a round trip to the buffer, unless a decode needs it before: as
    between two partials, so that most of it is stored together with what one needs."""
    repair_after_s: float = 2.0
    """A final that is due and silent for this long is looked for in the durable events, again and again."""
    retry_after_s: float = 5.0
    event_timing: bool = True
    """Finals carry ``timing``."""

    def __post_init__(self) -> None:
        if self.max_audio_s is not None and not self.max_audio_s > 0:
            raise ValueError(f"max_audio_s is {self.max_audio_s}; give more than 0, or None for no limit")
        if self.endpoint_s is not None and not self.endpoint_s > 0:
            raise ValueError(f"endpoint_s is {self.endpoint_s}; give more than 0, or None for no cuts at pauses")

    def wire(self, endpoint_s: float | None) -> Limits:
        """The part that clients are told; ``endpoint_s``: of this client's stream."""
        return Limits(
            max_audio_s=self.max_audio_s,
            max_frame_bytes=self.max_frame_bytes,
            idle_timeout_s=self.idle_timeout_s,
            inference_timeout_s=self.inference_timeout_s,
            partial_interval_s=self.partial_interval_s,
            min_partial_audio_s=self.min_partial_audio_s,
            endpoint_ms=False if endpoint_s is None else round(endpoint_s * 1000),
        )
