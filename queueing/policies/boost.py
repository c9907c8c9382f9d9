"""g-Boost: arrival order in which short jobs pretend to have come earlier, by as much as pays in the tail.

Formula (Yu and Scully 2024, "Strongly Tail-Optimal Scheduling in the Light-Tailed M/G/1"): tier 0, rate 1, head
start of ``priority`` plus b(cost), where for cost s, arrival rate lambda and k workers

    b(s) = ln(1 / (1 - exp(-g s))) / (k g)        g > 0 solves        (lambda / k) (E[exp(g S)] - 1) = g

k workers are taken as one that is k times as fast: its job sizes are S / k and its decay rate k g.
Wins: short jobs, the more the nearer the load is to 1; of all orders the one with the fewest very late
responses when jobs come at random and sizes are light-tailed.
Can starve: nobody; a head start is bounded, so every job is overtaken only by those that come soon after it.
Do not use: before the load is measured, or while costs are all alike: it then is ``priority``.

At load 0, or none known, g grows without limit and b is 0. At load 1 or more no g exists; the mix is then taken
at a load of `LOAD_LIMIT`, as the true g tends to 0 and b to an unbounded shortest-job-first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

from queueing.lane import Lane
from queueing.policies.priority import head_start_ms
from queueing.policy import MAX_AGE_MS, LaneRank, Load

LOAD_LIMIT = 0.95
LEAST_LOAD = 1e-6
"""Below it no two jobs meet, so no order matters; and for a load near 0 no g can be found in doubles."""
BOOST_LIMIT_MS = 60_000.0
_EXPONENT_LIMIT = 700.0
"""exp(709) is the last that a double holds; a bracket needs a sign only."""

Traffic = tuple[tuple[float, float], ...]
"""(jobs per ms and worker, cost in ms) for each lane that has arrivals."""


def traffic(costs: Mapping[Lane, float], load: Load) -> Traffic:
    """The job mix as one worker sees it, thinned to `LOAD_LIMIT` when it is heavier. Empty below `LEAST_LOAD`."""
    workers = max(1, load.workers)
    mix = [(per_s / 1000.0 / workers, costs[lane]) for lane, per_s in load.arrivals_per_s.items() if per_s > 0]
    utilisation = sum(rate * cost for rate, cost in mix)
    if utilisation < LEAST_LOAD:
        return ()
    thinning = min(1.0, LOAD_LIMIT / utilisation)
    return tuple((rate * thinning, cost) for rate, cost in mix)


@lru_cache(maxsize=16)
def decay_rate(mix: Traffic) -> float | None:
    """The g > 0 (per ms) with sum(rate x (exp(g cost) - 1)) = g, by bisection; None for an empty mix.

    The mix is one of `traffic`, with a load from `LEAST_LOAD` to `LOAD_LIMIT`.

    The left side less g is convex, 0 at g = 0 and falling there while the load is below 1: so it is
    negative exactly between 0 and the root.
    """
    if not mix:
        return None

    def excess(g: float) -> float:
        return sum(rate * math.expm1(min(g * cost, _EXPONENT_LIMIT)) for rate, cost in mix) - g

    high = 1.0 / max(cost for _, cost in mix)
    while excess(high) <= 0:
        high *= 2.0
    low = 0.0
    while (middle := (low + high) / 2.0) not in (low, high):
        low, high = (middle, high) if excess(middle) <= 0 else (low, middle)
    return low


def boost_ms(cost_ms: float, g: float | None, workers: int) -> float:
    """b(cost) in ms for a decay rate ``g`` per ms; 0 without one, at most `BOOST_LIMIT_MS`."""
    if g is None:
        return 0.0
    return min(BOOST_LIMIT_MS, -math.log(-math.expm1(-g * cost_ms)) / (max(1, workers) * g))


class Boost:
    name = "boost"

    def rank(self, lane: Lane, costs: Mapping[Lane, float], load: Load) -> LaneRank:
        g = decay_rate(traffic(costs, load))
        return LaneRank(
            tier=0,
            head_start_ms=head_start_ms(lane) + boost_ms(costs[lane], g, load.workers),
            rate=1.0,
            max_age_ms=MAX_AGE_MS[lane.kind],
        )
