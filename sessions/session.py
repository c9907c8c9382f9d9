"""The state machine of one stream: inputs are method calls, outputs are effects. No I/O, no clock, no threads.

Who is authoritative: the session alone decides what the client hears. It numbers what it sends, sends finals in
segment order exactly once, and trusts neither the order nor the number of deliveries, nor that pub/sub delivers
at all: what is due and does not come is read from the durable events.

    waiting for options --first message or handshake timeout--> open --end, audio limit, idle, drain--> ending
    any state --fatal error, disconnect--> closed        ending --last final sent--> closed

Every accepted sample is covered by exactly one final, or an error message says that it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from queueing.job import Delivery, Enqueued, NewJob
from queueing.lane import MAX_AUDIO_S
from sessions.effects import (
    AppendAudio,
    CancelPartial,
    CancelSession,
    Close,
    Effect,
    Enqueue,
    OpenBuffer,
    ReadEvents,
    Send,
)
from sessions.summary import StreamSummary
from sessions.wire import Limits

__all__ = [
    "AppendAudio", "CancelPartial", "CancelSession", "Close", "Effect", "Enqueue", "OpenBuffer", "ReadEvents", "Send",
    "Session", "SessionLimits", "StreamSummary",
]  # fmt: skip


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
        raise NotImplementedError


class Session:
    """One stream. ``now`` is monotonic seconds and never goes back; every method returns effects to carry out."""

    def __init__(self, session: str, front: str, limits: SessionLimits, *, now: float, started_ms: int = 0) -> None:
        """``session``: its id (see `sessions.keys`); ``front``: where deliveries go; ``started_ms``: wall clock,
        for the buffer's description only."""
        raise NotImplementedError

    @property
    def closed(self) -> bool:
        """Nothing more will be sent; every further input returns no effects."""
        raise NotImplementedError

    @property
    def waiting_for_finals(self) -> bool:
        """A final was asked for and is not sent yet."""
        raise NotImplementedError

    @property
    def buffered_bytes(self) -> int:
        """Accepted bytes that are in memory, not yet in Redis (at most about `SessionLimits.coalesce_s` of audio)."""
        raise NotImplementedError

    @property
    def summary(self) -> StreamSummary:
        """What the stream was like so far."""
        raise NotImplementedError

    # What the client does.

    def on_text(self, now: float, text: str) -> list[Effect]:
        """A text message, not yet decoded."""
        raise NotImplementedError

    def on_audio(self, now: float, data: bytes) -> list[Effect]:
        """A binary message of any length."""
        raise NotImplementedError

    def on_too_big(self, now: float, size: int | None = None) -> list[Effect]:
        """The socket refused a message above ``max_frame_bytes`` (size where it is known)."""
        raise NotImplementedError

    def on_disconnect(self, now: float, outcome: str = "disconnected") -> list[Effect]:
        """The client is gone, or does not read (``outcome="slow_client"``): CancelSession, if not said before, and
        nothing more. Safe to call always when the stream's thread ends."""
        raise NotImplementedError

    # What became of effects.

    def on_append_failed(self, now: float, *, lost: bool, detail: str) -> list[Effect]:
        """AppendAudio failed for good: ``lost`` when the buffer is gone (`AudioLost`), else Redis stays away."""
        raise NotImplementedError

    def on_enqueued(self, now: float, job: NewJob, answer: Enqueued) -> list[Effect]:
        """The queue's answer to an Enqueue."""
        raise NotImplementedError

    def on_enqueue_failed(self, now: float, job: NewJob, detail: str) -> list[Effect]:
        """The queue could not be reached: a partial is given up, a final is the end of the stream."""
        raise NotImplementedError

    # What comes back.

    def on_delivery(self, now: float, delivery: Delivery) -> list[Effect]:
        """A result by pub/sub: in any order, any number of times."""
        raise NotImplementedError

    def on_events(self, now: float, deliveries: Sequence[Delivery]) -> list[Effect]:
        """The answer to ReadEvents, oldest first."""
        raise NotImplementedError

    def on_reconnected(self, now: float) -> list[Effect]:
        """The subscription was interrupted: reads the events, and asks again for finals that are due (the ids make
        that harmless; a Redis that forgot the job learns of it again)."""
        raise NotImplementedError

    def on_workers(self, now: float, *, alive: bool) -> list[Effect]:
        """Whether any worker with a loaded model is alive; a waiting client is told once when there is none."""
        raise NotImplementedError

    # Time and the server's own end.

    def next_tick(self) -> float | None:
        """When `on_tick` is due, None when no timer runs."""
        raise NotImplementedError

    def on_tick(self, now: float) -> list[Effect]:
        """Time has passed; harmless when nothing is due."""
        raise NotImplementedError

    def on_drain(self, now: float, deadline: float) -> list[Effect]:
        """This process ends at ``deadline``: no more audio is taken, what was received gets its final, then the
        client is told `shutting_down` (a stream that has ended itself finishes as usual)."""
        raise NotImplementedError

    def on_fault(self, now: float, detail: str) -> list[Effect]:
        """The stream's thread met a fault of its own: the client is told `internal`."""
        raise NotImplementedError
