"""An event simulation of the queue: lanes and policies as in production, workers that take the time they are told.

No process, no Redis, no model: only the order of events. What a policy says (`queueing.policy`) is used as it is;
`WaitingLine.take` is `queueing.policy.most_urgent` with its bookkeeping kept between claims. Times in milliseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

from queueing.lane import Lane, all_lanes
from queueing.policy import LaneRank


@dataclass(slots=True, eq=False)
class SimJob:
    """A decode: where it queues, how long a worker takes for it, who is told when it is done."""

    lane: Lane
    service_ms: float
    on_start: Callable[[float], None] | None = None
    on_done: Callable[[float], None] | None = None
    arrival_ms: float = 0.0
    waiting: bool = False


@dataclass(slots=True)
class _LaneLine:
    """One lane: its rank, its place among equals, and its jobs, oldest first (withdrawn ones are passed over)."""

    position: int
    rank: LaneRank
    jobs: list[tuple[float, int, SimJob]] = field(default_factory=list)


class WaitingLine:
    """The jobs that wait, ranked by a policy's numbers for each lane."""

    def __init__(self, ranks: Mapping[Lane, LaneRank]) -> None:
        self._lanes = {lane: _LaneLine(place, ranks[lane]) for place, lane in enumerate(all_lanes())}
        self._filled: dict[Lane, _LaneLine] = {}
        self._order = count()
        self.length = 0

    def put(self, job: SimJob) -> None:
        """Add a job; its ``arrival_ms`` decides its place in the lane."""
        line = self._lanes[job.lane]
        self._filled[job.lane] = line
        heapq.heappush(line.jobs, (job.arrival_ms, next(self._order), job))
        job.waiting = True
        self.length += 1

    def withdraw(self, job: SimJob) -> bool:
        """Take a job out, whatever its place; false when it does not wait any more."""
        if not job.waiting:
            return False
        job.waiting = False
        self.length -= 1
        return True

    def take(self, now_ms: float) -> SimJob | None:
        """The job to run next, by the claim rule; None when nothing waits."""
        best: _LaneLine | None = None
        best_key = (0, 0.0, 0.0, 0)
        for lane in list(self._filled):
            line = self._filled[lane]
            while line.jobs and not line.jobs[0][2].waiting:
                heapq.heappop(line.jobs)
            if not line.jobs:
                del self._filled[lane]
                continue
            arrival, rank = line.jobs[0][0], line.rank
            overdue = rank.overdue_ms(arrival, now_ms)
            # Smaller is sooner: overdue heads by how much, then by tier, then by urgency, then by the lanes' order.
            key = (
                (0, -overdue, 0.0, line.position)
                if overdue >= 0
                else (1, float(rank.tier), -rank.urgency(arrival, now_ms), line.position)
            )
            if best is None or key < best_key:
                best, best_key = line, key
        if best is None:
            return None
        job = heapq.heappop(best.jobs)[2]
        self.withdraw(job)
        return job


class Simulation:
    """Workers, a waiting line, and a clock that jumps from event to event."""

    def __init__(self, ranks: Mapping[Lane, LaneRank], workers: int = 1) -> None:
        self.now_ms = 0.0
        self._line = WaitingLine(ranks)
        self._idle = workers
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.busy_ms = 0.0

    @property
    def waiting(self) -> int:
        """Jobs that wait now."""
        return self._line.length

    def at(self, time_ms: float, action: Callable[[], None]) -> None:
        """Do something at a time; events of the same moment happen in the order in which they were asked for."""
        heapq.heappush(self._events, (time_ms, next(self._order), action))

    def submit(self, job: SimJob, arrival_ms: float | None = None) -> None:
        """Queue a job, as if it had come at ``arrival_ms`` (now, unless it takes another's place)."""
        job.arrival_ms = self.now_ms if arrival_ms is None else arrival_ms
        self._line.put(job)
        self._dispatch()

    def withdraw(self, job: SimJob) -> bool:
        """Take a waiting job out of the line; false when it runs or is done."""
        return self._line.withdraw(job)

    def run(self, until_ms: float = float("inf")) -> None:
        """Go through the events up to a time."""
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self._events)
            action()

    def _dispatch(self) -> None:
        while self._idle and (job := self._line.take(self.now_ms)) is not None:
            self._idle -= 1
            self.busy_ms += job.service_ms
            if job.on_start is not None:
                job.on_start(self.now_ms)
            self.at(self.now_ms + job.service_ms, lambda job=job: self._finish(job))  # type: ignore[misc]

    def _finish(self, job: SimJob) -> None:
        self._idle += 1
        if job.on_done is not None:
            job.on_done(self.now_ms)
        self._dispatch()
