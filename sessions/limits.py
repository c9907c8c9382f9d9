"""Bounds and pace of one stream."""

from __future__ import annotations

from dataclasses import dataclass

from queueing.lane import MAX_AUDIO_S
from sessions.wire import BYTES_PER_SAMPLE, SAMPLE_RATE, Limits

MIN_DECODE_S = 0.05
"""Less audio than this cannot hold a word: its final is empty and costs no decode."""

KEEP_BUFFER_S = 60.0
"""A stream that is kept alive without audio renews its buffer's expiry this often."""

MAX_WAITING_FINALS = 32
"""Finals of one stream that may wait for their decode; a flush beyond it is refused, its audio goes into the next."""


def in_bytes(seconds: float) -> int:
    """Whole samples of ``seconds``, at least one, in bytes."""
    return max(1, round(seconds * SAMPLE_RATE)) * BYTES_PER_SAMPLE


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Bounds and pace of one stream, from the front end's settings; seconds and bytes."""

    max_audio_s: float = 120.0
    max_frame_bytes: int = 1_048_576
    idle_timeout_s: float = 30.0
    inference_timeout_s: float = 30.0
    handshake_timeout_s: float = 10.0
    partial_interval_s: float = 1.0
    min_partial_audio_s: float = 0.5
    coalesce_s: float = 0.2
    repair_after_s: float = 2.0
    """A final that is due and silent for this long is looked for in the durable events, again and again."""
    retry_after_s: float = 5.0
    event_timing: bool = True
    """Finals carry ``timing``."""

    def __post_init__(self) -> None:
        if not 0 < self.max_audio_s <= MAX_AUDIO_S:
            raise ValueError(f"max_audio_s is {self.max_audio_s}; more than 0 and at most {MAX_AUDIO_S} is possible")

    def wire(self) -> Limits:
        """The part that clients are told."""
        return Limits(
            max_audio_s=self.max_audio_s,
            max_frame_bytes=self.max_frame_bytes,
            idle_timeout_s=self.idle_timeout_s,
            inference_timeout_s=self.inference_timeout_s,
            partial_interval_s=self.partial_interval_s,
            min_partial_audio_s=self.min_partial_audio_s,
        )
