"""Class priority in which everything still ages: the default.

Formula: tier 0, rate 1, head start by kind: finals 2 s, partials 0, files -30 s. This is Kleinrock's
accumulating priority with equal rates: arrival order, with each kind shifted in time.
Wins: finals, over every partial that came up to 2 s before them and every file up to 32 s before.
Can starve: nobody; a partial overtakes every final that comes 2 s after it, a file everything 32 s later.
Do not use: beside a backlog of files longer than half a minute of work, which has aged past its handicap
and then delays live speech; give files a queue of their own, or use ``strict``.
"""

from __future__ import annotations

from collections.abc import Mapping

from queueing.lane import Kind, Lane
from queueing.policy import MAX_AGE_MS, LaneRank, Load

HEAD_START_MS: Mapping[Kind, float] = {Kind.FINAL: 2_000.0, Kind.PARTIAL: 0.0, Kind.FILE: -30_000.0}


class Priority:
    name = "priority"

    def rank(self, lane: Lane, costs: Mapping[Lane, float], load: Load) -> LaneRank:  # noqa: ARG002
        return LaneRank(tier=0, head_start_ms=HEAD_START_MS[lane.kind], rate=1.0, max_age_ms=MAX_AGE_MS[lane.kind])
