"""Every worker looks after the whole queue: it sweeps, and it keeps the ranks up to date. No locks, no leader.

Two that sweep at once do no harm (a sweep is one script, the second finds nothing left to do), and one that dies
is not missed. Pauses are jittered so that workers do not march in step.
"""

from __future__ import annotations

import random
import threading
from dataclasses import replace

import structlog

from queueing.clock import Clock
from queueing.errors import QueueUnavailable
from queueing.job_queue import JobQueue, SweepReport

SWEEPS_PER_LEASE = 4
"""While anything is leased or waits: a lost job is found at most about a quarter of a lease after it expired."""

REFRESH_S = 10.0
"""Pause between looks at the learned costs and the load."""

MAX_SWEEPS = 20
"""Sweeps in one turn while there is more to settle."""

log = structlog.get_logger()


class Rescuer:
    """Knows when to sweep and when to rank anew. One thread calls `run`, or `tick` whenever `seconds_left` is over."""

    def __init__(self, queue: JobQueue, clock: Clock, rng: random.Random) -> None:
        self._queue = queue
        self._clock = clock
        self._rng = rng
        self._lease_s = queue.limits.lease_ms / 1000
        self._next_sweep = clock.monotonic() + self._jittered(self._lease_s / SWEEPS_PER_LEASE)
        self._next_refresh = clock.monotonic() + self._jittered(REFRESH_S)

    def seconds_left(self) -> float:
        """Seconds until the next `tick` is due, 0 when it is."""
        return max(0.0, self._next_sweep - self._clock.monotonic())

    def tick(self) -> SweepReport | None:
        """Do what is due; None when nothing is. Raises `QueueUnavailable`, and tries again a period later."""
        now = self._clock.monotonic()
        if now < self._next_sweep:
            return None
        self._next_sweep = now + self._jittered(self._lease_s / SWEEPS_PER_LEASE)
        report = self._sweep()
        if report.idle:
            # Nothing can expire before a lease time has passed: whatever is claimed from now on lives that long.
            self._next_sweep = now + self._jittered(self._lease_s * 0.75)
        elif now >= self._next_refresh:
            self._next_refresh = now + self._jittered(REFRESH_S)
            if change := self._queue.refresh_policy():
                log.info("rescored", policy=change.name, version=change.version, jobs=change.rescored)
        return report

    def run(self, stop: threading.Event) -> None:
        """Tick until ``stop`` is set; an unreachable Redis is logged, once each time that it goes, and tried again."""
        lost = False
        while not stop.wait(self.seconds_left()):
            try:
                report = self.tick()
                lost = False
            except QueueUnavailable as error:
                (log.debug if lost else log.warning)("sweep_failed", reason=str(error))
                lost = True
                continue
            if report and (report.requeued or report.dead or report.dropped_partials):
                log.info("swept", requeued=report.requeued, dead=report.dead, dropped_partials=report.dropped_partials)

    def _sweep(self) -> SweepReport:
        total = self._queue.sweep()
        for _ in range(MAX_SWEEPS - 1):
            if not total.more:
                break
            again = self._queue.sweep()
            total = replace(
                again,
                requeued=total.requeued + again.requeued,
                dead=total.dead + again.dead,
                dropped_partials=total.dropped_partials + again.dropped_partials,
            )
        return total

    def _jittered(self, period_s: float) -> float:
        return period_s * self._rng.uniform(0.75, 1.25)
