"""Whole-clip requests at random times: what each policy does to the response time, against arrival order.

An M/G/1 (or M/G/k) queue: Poisson arrivals, durations drawn from a list, one kind of job. Every policy gets the same
arrivals and the same costs, so their differences are not those of the draw.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.queue_model import SimJob, Simulation
from loadgen.statistics import percentile
from loadgen.workloads import CostModel, lane_costs, lane_shares, pieces
from queueing.lane import Kind, Lane
from queueing.policies import get_policy
from queueing.policy import Load, rank_all

PERCENTILES = (50, 90, 99)
WARM_UP = 0.1
"""Share of the first jobs that is left out: the queue starts empty."""


@dataclass(frozen=True, slots=True)
class ClipRuns:
    """``load``: offered work per worker, below 1. ``jobs``: requests of one run."""

    load: float = 0.95
    workers: int = 1
    jobs: int = 20_000
    kind: Kind = Kind.FILE


Arrival = tuple[float, tuple[tuple[Lane, float], ...]]
"""(arrival ms, the lane and cost in ms of each piece of the clip)."""


def draw(durations: Sequence[float], cost: CostModel, runs: ClipRuns, rng: random.Random) -> list[Arrival]:
    """One run's requests, in order."""
    pool = [
        tuple((Lane.for_audio(runs.kind, part), cost(runs.kind, part)) for part in pieces(seconds))
        for seconds in durations
    ]
    per_ms = runs.load * runs.workers / (sum(cost_ms for clip in pool for _, cost_ms in clip) / len(pool))
    now = 0.0
    arrivals = []
    for _ in range(runs.jobs):
        now += rng.expovariate(per_ms)
        arrivals.append((now, rng.choice(pool)))
    return arrivals


def responses(policy: str, arrivals: Sequence[Arrival], workers: int = 1) -> list[float]:
    """Milliseconds from each arrival to the end of its last piece's decode, in order of arrival."""
    jobs = [job for _, clip in arrivals for job in clip]
    per_s = 1000 * len(jobs) / arrivals[-1][0]
    load = Load({lane: per_s * share for lane, share in lane_shares(jobs).items()}, workers)
    simulation = Simulation(rank_all(get_policy(policy), lane_costs(jobs), load), workers)
    ended = [0.0] * len(arrivals)

    def arrive(index: int) -> None:
        def done(now_ms: float) -> None:
            ended[index] = now_ms

        for lane, cost_ms in arrivals[index][1]:
            simulation.submit(SimJob(lane, cost_ms, on_done=done))
        if index + 1 < len(arrivals):
            simulation.at(arrivals[index + 1][0], lambda: arrive(index + 1))

    simulation.at(arrivals[0][0], lambda: arrive(0))
    simulation.run()
    return [end - at for end, (at, _) in zip(ended, arrivals, strict=True)]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The percentiles of a run without its warm-up."""
    settled = values[int(WARM_UP * len(values)) :]
    return {f"p{percent}": percentile(settled, percent) for percent in PERCENTILES}
