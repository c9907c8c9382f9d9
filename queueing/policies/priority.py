"""Class priority in which everything still ages: the default.

Formula: tier 0, rate 1, head start: finals 10 s, partials 0 (those in windows up to 4 s: 1.5 s), files -30 s. This is
Kleinrock's accumulating priority with equal rates: arrival order, with each kind shifted in time.
Wins: finals, over every partial that came up to 10 s before them and every file up to 40 s before; the first words of a
segment, which cost little and stand where nothing stood yet, over the long partials that only add to what is shown.
Can starve: nobody; a partial overtakes every final that comes 10 s after it, a file everything 40 s later.
Why 10 s: with 2 s, partials that had waited that long in an overload went before new finals (twenty real-time streams
on two CPUs: median of the finals 6.7 s; with finals always first 1.5 s).
Do not use: beside a backlog of files longer than half a minute of work, which has aged past its handicap
and then delays live speech; give files a queue of their own, or use ``strict``.
"""

from __future__ import annotations

from collections.abc import Mapping

from queueing.lane import Kind, Lane
from queueing.policy import MAX_AGE_MS, LaneRank, Load

HEAD_START_MS: Mapping[Kind, float] = {Kind.FINAL: 10_000.0, Kind.PARTIAL: 0.0, Kind.FILE: -30_000.0}
FIRST_WORDS_MS = 1_500.0
FIRST_WORDS_WINDOW_S = 4


def head_start_ms(lane: Lane) -> float:
    """By how much a lane's jobs count as older than they are."""
    if lane.kind is Kind.PARTIAL and lane.window_s <= FIRST_WORDS_WINDOW_S:
        return FIRST_WORDS_MS
    return HEAD_START_MS[lane.kind]


class Priority:
    name = "priority"

    def rank(self, lane: Lane, costs: Mapping[Lane, float], load: Load) -> LaneRank:  # noqa: ARG002
        return LaneRank(tier=0, head_start_ms=head_start_ms(lane), rate=1.0, max_age_ms=MAX_AGE_MS[lane.kind])
