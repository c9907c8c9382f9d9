"""Highest response ratio next, within a kind.

Formula: tier by kind, head start = cost, rate = 1 / cost, so urgency = (wait + cost) / cost, the ratio of
Brinch Hansen (1971, "An analysis of response ratio scheduling"). It changes with time at a pace of its own
for each cost; as all jobs of a lane share one cost, comparing lane heads recomputes it exactly on each claim.
Wins: short jobs at first, then whoever has waited long for its size.
Can starve: nobody within a kind, as every ratio grows without limit; partials and files as in ``strict``.
Do not use: when costs hardly differ (a fixed window); it then is arrival order within a kind.
"""

from __future__ import annotations

from collections.abc import Mapping

from queueing.lane import Lane
from queueing.policy import KIND_TIER, MAX_AGE_MS, LaneRank, Load


class Hrrn:
    name = "hrrn"

    def rank(self, lane: Lane, costs: Mapping[Lane, float], load: Load) -> LaneRank:  # noqa: ARG002
        cost_ms = costs[lane]
        return LaneRank(
            tier=KIND_TIER[lane.kind], head_start_ms=cost_ms, rate=1.0 / cost_ms, max_age_ms=MAX_AGE_MS[lane.kind]
        )
