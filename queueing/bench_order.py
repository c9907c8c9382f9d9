"""What a policy does to response times: one simulated worker, jobs that come at random, costs known and exact.

Two mixes, both seeded, so that the same version prints the same figures on every machine:

- ``clips``: finals alone, whole clips of mixed length, as when finished recordings are sent.
- ``kinds``: partials, finals and files side by side. Nothing is superseded here, so partials fare worse than live.

A response time is from arrival to the end of the decode. No preemption, no batches, no faults.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from queueing.costs import prior_costs
from queueing.lane import WINDOWS_S, Kind, Lane
from queueing.policies import get_policy
from queueing.policy import Load, Policy, most_urgent, rank_all

SHARES: Mapping[str, Mapping[Kind, float]] = {
    "clips": {Kind.FINAL: 1.0},
    "kinds": {Kind.PARTIAL: 0.5, Kind.FINAL: 0.3, Kind.FILE: 0.2},
}
"""Share of the work (not of the jobs) of each kind, by mix."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job of a simulation."""

    number: int
    lane: Lane
    arrival_ms: float
    cost_ms: float


def serve(policy: Policy, jobs: Iterable[Arrival], load: Load, costs: Mapping[Lane, float]) -> dict[Arrival, float]:
    """When one worker starts each job (ms); the policy chooses among those that have arrived."""
    ranks = rank_all(policy, costs, load)
    coming = deque(sorted(jobs, key=lambda job: job.arrival_ms))
    lanes: dict[Lane, deque[Arrival]] = {}
    starts: dict[Arrival, float] = {}
    now = 0.0
    while coming or lanes:
        while coming and (coming[0].arrival_ms <= now or not lanes):
            job = coming.popleft()
            now = max(now, job.arrival_ms)
            lanes.setdefault(job.lane, deque()).append(job)
        lane = most_urgent({lane: waiting[0].arrival_ms for lane, waiting in lanes.items()}, ranks, now)
        assert lane is not None
        job = lanes[lane].popleft()
        if not lanes[lane]:
            del lanes[lane]
        starts[job] = now
        now += job.cost_ms
    return starts


def arrivals(mix: str, utilisation: float, count: int, seed: int) -> tuple[list[Arrival], Load, dict[Lane, float]]:
    """Jobs of a mix at a load, with the load and costs that the policies are told.

    Windows of 2 to 30 s, the longer the rarer (weight 1 / window); Poisson arrivals; costs of `prior_costs`.
    """
    rng = random.Random(seed)
    costs = prior_costs()
    rates: dict[Lane, float] = {}
    for kind, share in SHARES[mix].items():
        lanes = [Lane(kind, window) for window in WINDOWS_S]
        work = sum(costs[lane] / lane.window_s for lane in lanes)
        rates.update({lane: utilisation * share / work / lane.window_s for lane in lanes})
    total = sum(rates.values())
    drawn = rng.choices(list(rates), list(rates.values()), k=count)
    jobs: list[Arrival] = []
    now = 0.0
    for number, lane in enumerate(drawn):
        now += rng.expovariate(total)
        jobs.append(Arrival(number, lane, now, costs[lane]))
    return jobs, Load({lane: rate * 1_000.0 for lane, rate in rates.items()}, workers=1), costs


def responses(policy: str, mix: str, utilisation: float, count: int, seeds: Sequence[int]) -> dict[Kind, list[float]]:
    """Response times (ms, sorted) of each kind, of ``count`` jobs for each seed."""
    times: dict[Kind, list[float]] = {kind: [] for kind in SHARES[mix]}
    for seed in seeds:
        jobs, load, costs = arrivals(mix, utilisation, count, seed)
        for job, start in serve(get_policy(policy), jobs, load, costs).items():
            times[job.lane.kind].append(start - job.arrival_ms + job.cost_ms)
    return {kind: sorted(values) for kind, values in times.items()}
