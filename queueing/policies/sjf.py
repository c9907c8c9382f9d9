"""Shortest job first within a kind.

Formula: tier by kind, head start -1e7 x cost (ms), rate 1: a millisecond of cost outweighs 2.8 hours of
waiting, so the order is by cost, and by arrival among equal costs. Costs up to minutes keep the score
within 2^53, where doubles still tell milliseconds apart.
Wins: short jobs; the least mean wait of all non-preemptive orders when sizes are known
(Smith 1956, "Various optimizers for single-stage production").
Can starve: long jobs of a kind near capacity, until their maximum age; partials and files as in ``strict``.
Do not use: when the slowest responses matter; the gain in the median is paid for at the 99th percentile.
"""

from __future__ import annotations

from collections.abc import Mapping

from queueing.lane import Lane
from queueing.policy import KIND_TIER, MAX_AGE_MS, LaneRank, Load

COST_WEIGHT = 1e7


class Sjf:
    name = "sjf"

    def rank(self, lane: Lane, costs: Mapping[Lane, float], load: Load) -> LaneRank:  # noqa: ARG002
        return LaneRank(
            tier=KIND_TIER[lane.kind],
            head_start_ms=-COST_WEIGHT * costs[lane],
            rate=1.0,
            max_age_ms=MAX_AGE_MS[lane.kind],
        )
