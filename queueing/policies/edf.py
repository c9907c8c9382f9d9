"""Earliest deadline first.

Formula: tier 0, head start = -(allowed latency of the kind), rate 1: the score is the deadline, arrival +
allowed latency, and the lowest goes first (Jackson 1955; Liu and Layland 1973).
Wins: whoever's deadline is next: finals over partials up to 1 s older, both over files of the last ten minutes.
Can starve: nobody; every deadline comes.
Do not use: under lasting overload, where it serves jobs whose deadlines have passed already and everyone is late.
"""

from __future__ import annotations

from collections.abc import Mapping

from queueing.lane import Kind, Lane
from queueing.policy import MAX_AGE_MS, LaneRank, Load

ALLOWED_LATENCY_MS: Mapping[Kind, float] = {Kind.FINAL: 1_000.0, Kind.PARTIAL: 2_000.0, Kind.FILE: 600_000.0}
"""Finals: a pause that a speaker takes for an answer. Partials: until the next two are due. Files: ten minutes."""


class Edf:
    name = "edf"

    def rank(self, lane: Lane, costs: Mapping[Lane, float], load: Load) -> LaneRank:  # noqa: ARG002
        return LaneRank(
            tier=0, head_start_ms=-ALLOWED_LATENCY_MS[lane.kind], rate=1.0, max_age_ms=MAX_AGE_MS[lane.kind]
        )
