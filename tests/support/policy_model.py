"""Policies by their textbook definition, over single jobs and without lanes: the oracle of the claim order.

Nothing here reads `LaneRank`: each policy is stated anew as "which of these waiting jobs runs now".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from queueing.lane import Kind, Lane
from queueing.policy import MAX_AGE_MS, LaneRank, most_urgent

KINDS_IN_ORDER = (Kind.FINAL, Kind.PARTIAL, Kind.FILE)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waits: its lane, its arrival, and what it costs."""

    lane: Lane
    arrival_ms: float
    cost_ms: float


Preference = Callable[[Waiting, float], tuple[float, ...]]
"""(job, now) -> what the policy makes least: the job with the least tuple runs."""

Boost = Callable[[float], float]


def _class(job: Waiting) -> float:
    return float(KINDS_IN_ORDER.index(job.lane.kind))


def _shifted(job: Waiting) -> float:
    return job.arrival_ms - {Kind.FINAL: 2_000.0, Kind.PARTIAL: 0.0, Kind.FILE: -30_000.0}[job.lane.kind]


def preferences(boost: Boost = lambda cost_ms: 0.0) -> Mapping[str, Preference]:
    """Each policy's preference; ``boost`` is b(cost) of the boost policy."""
    return {
        "fcfs": lambda job, now: (job.arrival_ms,),
        "priority": lambda job, now: (_shifted(job),),
        "strict": lambda job, now: (_class(job), job.arrival_ms),
        "sjf": lambda job, now: (_class(job), job.cost_ms, job.arrival_ms),
        "hrrn": lambda job, now: (_class(job), -((now - job.arrival_ms) + job.cost_ms) / job.cost_ms),
        "boost": lambda job, now: (_shifted(job) - boost(job.cost_ms),),
        "edf": lambda job, now: (
            job.arrival_ms + {Kind.FINAL: 1_000.0, Kind.PARTIAL: 2_000.0, Kind.FILE: 600_000.0}[job.lane.kind],
        ),
    }


def best(jobs: Sequence[Waiting], now_ms: float, preference: Preference) -> tuple[float, ...]:
    """What the job to run next scores: ``(0, -overdue)`` if any is overdue, else ``(1, *preference)``."""
    return min(standing(job, now_ms, preference) for job in jobs)


def standing(job: Waiting, now_ms: float, preference: Preference) -> tuple[float, ...]:
    """Where a job stands; the least of all waiting jobs runs."""
    overdue = now_ms - job.arrival_ms - MAX_AGE_MS[job.lane.kind]
    return (0.0, -overdue) if overdue >= 0 else (1.0, *preference(job, now_ms))


def same_standing(left: tuple[float, ...], right: tuple[float, ...]) -> bool:
    """Equal but for the last bits of a double (1e-6 relative, 0.01 ms)."""
    return len(left) == len(right) and all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=0.01) for a, b in zip(left, right, strict=True)
    )


class LaneQueue:
    """The queue's own rule in memory: first-in-first-out lanes, the head chosen by `most_urgent`."""

    def __init__(self, ranks: Mapping[Lane, LaneRank]) -> None:
        self._ranks = ranks
        self._lanes: dict[Lane, list[Waiting]] = {}

    def add(self, job: Waiting) -> None:
        """Queue a job; jobs of a lane must come in order of arrival."""
        self._lanes.setdefault(job.lane, []).append(job)

    def take(self, now_ms: float) -> Waiting | None:
        """Remove and return the job that runs at ``now_ms``."""
        heads = {lane: jobs[0].arrival_ms for lane, jobs in self._lanes.items() if jobs}
        lane = most_urgent(heads, self._ranks, now_ms)
        return None if lane is None else self._lanes[lane].pop(0)
