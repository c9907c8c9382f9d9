"""The queue's typed facade: the one caller of the scripts.

Every verb takes ``now_ms``: 0 (as in production) means Redis time, a test may pass its own milliseconds.
Any verb raises `QueueUnavailable` when Redis cannot be reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import redis

from queueing.job import CompleteStatus, Delivery, Enqueued, LeasedJob, NewJob
from queueing.keys import QueueKeys
from queueing.lane import Lane


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of a queue; times in milliseconds."""

    lease_ms: int = 10_000
    max_attempts: int = 3
    max_queued: int = 10_000
    job_ttl_ms: int = 3_600_000
    events_ttl_ms: int = 3_600_000
    max_dead: int = 1_000


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did."""

    requeued: int = 0
    dead: int = 0
    dropped_partials: int = 0


class JobQueue:
    """One named queue in one Redis. Thread-safe: it holds no state but the client."""

    def __init__(self, client: redis.Redis, name: str = "main", limits: QueueLimits | None = None) -> None:
        self.keys = QueueKeys(name)
        self.limits = limits or QueueLimits()
        self._client = client

    def enqueue(self, job: NewJob, *, now_ms: int = 0) -> Enqueued:
        """Queue a job (one round trip). A final removes its session's queued partial and makes a partial
        that is being decoded obsolete; a partial extends the session's queued one in place."""
        raise NotImplementedError

    def claim(
        self,
        worker: str,
        nonce: str,
        *,
        max_jobs: int = 1,
        lanes: Sequence[Lane] | None = None,
        now_ms: int = 0,
    ) -> tuple[LeasedJob, ...]:
        """Lease up to ``max_jobs`` jobs of the most urgent lane (one round trip; empty when nothing waits).
        The same (worker, nonce) again returns the same jobs."""
        raise NotImplementedError

    def wait(self, timeout_s: float) -> bool:
        """Block until work may be ready or the time is up (at most `connect.WAIT_LIMIT_S`); True when woken."""
        raise NotImplementedError

    def renew(self, leases: Sequence[LeasedJob], *, now_ms: int = 0) -> tuple[LeasedJob, ...]:
        """Extend the leases; returns those that are lost or cancelled."""
        raise NotImplementedError

    def complete(
        self, lease: LeasedJob, result: dict[str, object], *, decode_ms: float, now_ms: int = 0
    ) -> CompleteStatus:
        """Publish the result and release the lease, once (one round trip). A final becomes a durable event."""
        raise NotImplementedError

    def fail(self, lease: LeasedJob, code: str, message: str, *, retry: bool = True, now_ms: int = 0) -> CompleteStatus:
        """Report a failed decode: REQUEUED while attempts remain and ``retry``; else DEAD with an error event
        (a partial is just dropped, with an error delivery so that its session may ask again)."""
        raise NotImplementedError

    def release(self, leases: Sequence[LeasedJob], *, now_ms: int = 0) -> int:
        """Give jobs back unharmed (a draining worker): they keep their age and the attempt is not counted."""
        raise NotImplementedError

    def cancel_partial(self, session: str, *, now_ms: int = 0) -> bool:
        """Remove the session's queued partial, or make the one being decoded obsolete."""
        raise NotImplementedError

    def cancel_session(self, session: str, *, now_ms: int = 0) -> int:
        """Remove every queued job of the session, make leased ones obsolete, delete its events; returns the count."""
        raise NotImplementedError

    def sweep(self, *, now_ms: int = 0) -> SweepReport:
        """Requeue or bury jobs whose lease ran out, drop partials that waited too long. Any number may run at once."""
        raise NotImplementedError

    def events(self, session: str, *, after: str | None = None) -> tuple[Delivery, ...]:
        """The session's durable events after the event id ``after``, oldest first."""
        raise NotImplementedError

    def job_state(self, job_id: str) -> str | None:
        """queued, leased, done, dead or cancelled; None when nothing is known of the job (any more)."""
        raise NotImplementedError
