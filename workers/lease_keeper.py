"""A thread that keeps the leases of running decodes alive, and knows which of them are gone.

Renewal goes on beside a decode of any length, so a lease may be short and a dead worker is noticed soon. A lease that
Redis no longer grants (taken over, cancelled, job gone) is marked lost: its result is still offered once, is
refused by its generation, and is nobody's fault. Only a lease that was lost to others is worth a warning: partials
that their own final makes obsolete are cancelled all the time.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable

import structlog

from queueing.errors import QueueUnavailable
from queueing.job import LeasedJob
from queueing.job_queue import JobQueue
from workers.lifecycle import LOG_EVERY

RENEWALS_PER_LEASE = 3
"""One renewal may fail and the next still comes in time."""

log = structlog.get_logger()


class LeaseKeeper:
    """Renews every held lease each third of a lease; costs nothing while none is held. Thread-safe.

    ``on_lost`` hears of leases that were lost, not of cancelled jobs.
    """

    def __init__(
        self, queue: JobQueue, lease_s: float, rng: random.Random, on_lost: Callable[[LeasedJob], None]
    ) -> None:
        self._queue = queue
        self._period_s = lease_s / RENEWALS_PER_LEASE
        self._rng = rng
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._held: dict[tuple[str, int], LeasedJob] = {}
        self._lost: set[tuple[str, int]] = set()

    def hold(self, leases: Iterable[LeasedJob]) -> None:
        """Keep these alive from now on."""
        with self._lock:
            self._held.update((_right(lease), lease) for lease in leases)

    def drop(self, leases: Iterable[LeasedJob]) -> None:
        """Forget these: completed, failed, given back or lost."""
        with self._lock:
            for lease in leases:
                self._held.pop(_right(lease), None)
                self._lost.discard(_right(lease))

    def held(self) -> tuple[LeasedJob, ...]:
        """The leases that are held and not known to be lost."""
        with self._lock:
            return tuple(lease for right, lease in self._held.items() if right not in self._lost)

    def is_lost(self, lease: LeasedJob) -> bool:
        """Whether Redis refused to renew this held lease: its report would be refused too."""
        with self._lock:
            return _right(lease) in self._lost

    def renew(self) -> None:
        """Renew once, in one round trip. Raises `QueueUnavailable`."""
        leases = self.held()
        if not leases:
            return
        answer = self._queue.renew(leases)
        for lease in answer.cancelled:
            if self._mark_lost(lease):
                log.debug("job_cancelled", job=lease.job.id, generation=lease.generation)
        for lease in answer.lost:
            if self._mark_lost(lease):
                log.warning("lease_lost", job=lease.job.id, generation=lease.generation, attempt=lease.attempt)
                self._on_lost(lease)

    def _mark_lost(self, lease: LeasedJob) -> bool:
        """False when it was dropped, or marked, since."""
        with self._lock:
            if _right(lease) not in self._held or _right(lease) in self._lost:
                return False
            self._lost.add(_right(lease))
            return True

    def run(self, stop: threading.Event) -> None:
        """Renew until ``stop``; an unreachable Redis is asked again after a tenth of the time, jittered."""
        pause_s, failures = self._period_s, 0
        while not stop.wait(pause_s):
            try:
                self.renew()
                pause_s, failures = self._period_s, 0
            except QueueUnavailable as error:
                if failures % LOG_EVERY == 0:
                    log.warning("lease_renewal_failed", reason=str(error), held=len(self.held()), attempt=failures + 1)
                failures += 1
                pause_s = self._period_s * self._rng.uniform(0.1, 0.3)


def _right(lease: LeasedJob) -> tuple[str, int]:
    return lease.job.id, lease.generation
