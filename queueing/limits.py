"""The bounds of a queue, and what a sweep that enforces them reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from queueing.settings import QueueSettings

MAX_BATCH = 64
"""Most jobs of one claim."""

SWEEP_BATCH = 100
"""Most leases, and most waiting jobs, that one sweep settles: it keeps Redis busy for milliseconds at most."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of a queue; times in milliseconds."""

    lease_ms: int = 10_000
    max_attempts: int = 3
    max_queued: int = 10_000
    """Jobs that may wait when a partial or a file comes; for finals see `max_queued_finals`."""
    job_ttl_ms: int = 3_600_000
    events_ttl_ms: int = 3_600_000
    max_dead: int = 1_000
    dead_ttl_ms: int = 86_400_000
    max_events: int = 128
    """Durable events, and finished jobs, kept for one session. What a front end may still have to read after a lost
    message is at most twice the finals that wait in one stream (`sessions.limits.MAX_WAITING_FINALS`, and those of one
    message more); a repeated report comes within seconds. What is older is only in the way of a stream without end."""
    stale_partial_ms: int = 30_000
    """A partial that waited longer is dropped: its session asks again, or is gone."""
    tombstone_ms: int = 60_000
    """How long a cancelled job is remembered for its worker's report."""

    @property
    def max_queued_finals(self) -> int:
        """Jobs that may wait when a final comes: speech that is over has no second chance, so it gets more room."""
        return self.max_queued + self.max_queued // 4

    @property
    def max_wait_ms(self) -> int:
        """A final or file that waits longer dies with an error, well before its hash would expire unseen."""
        return self.job_ttl_ms * 3 // 4

    @classmethod
    def of(cls, settings: QueueSettings) -> Self:
        """The limits that a program's settings ask for."""
        return cls(
            lease_ms=int(settings.lease_s * 1000), max_attempts=settings.attempts, max_queued=settings.max_queued
        )


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did. ``waiting``, ``leased``: jobs afterwards. ``more``: it stopped at its bound, sweep again."""

    requeued: int = 0
    dead: int = 0
    dropped_partials: int = 0
    waiting: int = 0
    leased: int = 0
    more: bool = False

    @property
    def idle(self) -> bool:
        """Whether the queue is empty and no job is in a worker's hands."""
        return self.waiting == 0 and self.leased == 0
