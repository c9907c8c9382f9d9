"""First come, first served: the baseline.

Formula: tier 0, head start 0, rate 1, so urgency is the wait.
Wins: whoever came first; the fairest order, and with the best decay rate of the tail for costs that vary little.
Can starve: nobody. But every final waits behind every partial and file that came before it.
Do not use: with live streams near capacity; finals then wait as long as partials do.
"""

from __future__ import annotations

from collections.abc import Mapping

from queueing.lane import Lane
from queueing.policy import MAX_AGE_MS, LaneRank, Load


class Fcfs:
    name = "fcfs"

    def rank(self, lane: Lane, costs: Mapping[Lane, float], load: Load) -> LaneRank:  # noqa: ARG002
        return LaneRank(tier=0, head_start_ms=0.0, rate=1.0, max_age_ms=MAX_AGE_MS[lane.kind])
