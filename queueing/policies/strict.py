"""Strict priority: every final before any partial, every partial before any file. For comparison.

Formula: tier by kind, head start 0, rate 1: arrival order within a kind.
Wins: finals, whatever waits.
Can starve: partials while finals alone fill the workers, and files behind both, until their maximum age.
Do not use: where captions must keep moving under overload; ``priority`` gives finals nearly as much.
"""

from __future__ import annotations

from collections.abc import Mapping

from queueing.lane import Lane
from queueing.policy import KIND_TIER, MAX_AGE_MS, LaneRank, Load


class Strict:
    name = "strict"

    def rank(self, lane: Lane, costs: Mapping[Lane, float], load: Load) -> LaneRank:  # noqa: ARG002
        return LaneRank(tier=KIND_TIER[lane.kind], head_start_ms=0.0, rate=1.0, max_age_ms=MAX_AGE_MS[lane.kind])
