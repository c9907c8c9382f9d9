"""What a scheduling policy is: three numbers for each lane, and the rule that turns them into an order.

On enqueue a job's score in its lane is ``arrival_ms - head_start_ms``. On a claim, with ``now_ms`` in Redis time:

1. A lane's head is its job of the lowest score. Heads that waited ``max_age_ms`` or more go first, the one
   that is over its limit by most before the others, whatever their tiers.
2. Otherwise only the lanes of the lowest tier that holds a job compete, and the head of greatest
   ``urgency = (now_ms - score) * rate`` wins.
3. Ties go to the lane that comes first in `queueing.lane.all_lanes`.

`most_urgent` is that rule in Python: the claim script must agree with it, and simulations use it. It looks
at heads only. Jobs of a lane share all numbers, so the head of a lane is its most urgent job, and the
choice among heads is the choice among all jobs; that is why a claim costs O(lanes), however many jobs wait.

A policy is pure: it returns numbers and does nothing. Costs are in milliseconds of decode time a job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from queueing.lane import Kind, Lane, all_lanes

KIND_TIER: Mapping[Kind, int] = {Kind.FINAL: 0, Kind.PARTIAL: 1, Kind.FILE: 2}
"""Tiers of the policies that keep kinds apart; the lowest non-empty tier is served."""

MAX_AGE_MS: Mapping[Kind, float] = {Kind.FINAL: 30_000.0, Kind.PARTIAL: 60_000.0, Kind.FILE: 1_800_000.0}
"""Wait after which a job goes first under every policy. Finals: well before a client gives up. Partials:
later than the sweep drops stale ones, so that in overload partials thin out and do not overtake finals.
Files: within the lifetime of a job's hash (`QueueLimits.job_ttl_ms`)."""

_POSITION = {lane: position for position, lane in enumerate(all_lanes())}


@dataclass(frozen=True, slots=True)
class LaneRank:
    """A policy's numbers for one lane.

    ``tier``: lower is served first. ``head_start_ms``: how much earlier than it did a job pretends to have
    arrived (negative: later). ``rate``: urgency gained for each millisecond waited, > 0. ``max_age_ms``:
    the wait after which a job goes before all others.
    """

    tier: int
    head_start_ms: float
    rate: float
    max_age_ms: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.head_start_ms):
            raise ValueError(f"head_start_ms must be finite, got {self.head_start_ms}")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"rate must be finite and above 0, or a lane would not age, got {self.rate}")
        if not (math.isfinite(self.max_age_ms) and self.max_age_ms > 0):
            raise ValueError(f"max_age_ms must be finite and above 0, got {self.max_age_ms}")

    def score(self, arrival_ms: float) -> float:
        """The score of a job that arrived at ``arrival_ms``; lower is older."""
        return arrival_ms - self.head_start_ms

    def urgency(self, arrival_ms: float, now_ms: float) -> float:
        """How pressing a job is that arrived at ``arrival_ms``; compare within a tier only."""
        return (now_ms - self.score(arrival_ms)) * self.rate

    def overdue_ms(self, arrival_ms: float, now_ms: float) -> float:
        """Milliseconds beyond the greatest allowed wait; 0 or more means that the job goes first."""
        return now_ms - arrival_ms - self.max_age_ms


@dataclass(frozen=True, slots=True)
class Load:
    """What is known of the traffic: jobs per second of each lane, and how many workers take them.

    An empty mapping means that nothing is known yet. Raises ValueError for rates that are negative or not
    finite, and for a negative number of workers.
    """

    arrivals_per_s: Mapping[Lane, float] = field(default_factory=dict)
    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ValueError(f"workers must be 0 or more, got {self.workers}")
        for lane, rate in self.arrivals_per_s.items():
            if not (math.isfinite(rate) and rate >= 0):
                raise ValueError(f"arrivals of lane {lane.name} must be finite and 0 or more, got {rate} per second")


class Policy(Protocol):
    """A rule that ranks lanes."""

    @property
    def name(self) -> str:
        """What users call it, e.g. in ``HEARLINE_POLICY``."""

    def rank(self, lane: Lane, costs: Mapping[Lane, float], load: Load) -> LaneRank:
        """The numbers for ``lane``, given every lane's cost (ms, > 0) and the load. Pure."""


def rank_all(policy: Policy, costs: Mapping[Lane, float], load: Load) -> dict[Lane, LaneRank]:
    """The policy's numbers for every lane, in the order of `all_lanes`. ``costs`` must hold every lane."""
    return {lane: policy.rank(lane, costs, load) for lane in all_lanes()}


def most_urgent(heads: Mapping[Lane, float], ranks: Mapping[Lane, LaneRank], now_ms: float) -> Lane | None:
    """The lane to claim from, None for no heads. ``heads``: arrival (ms) of the head of each lane that has jobs."""
    lanes = sorted(heads, key=_POSITION.__getitem__)
    if not lanes:
        return None
    overdue = [lane for lane in lanes if ranks[lane].overdue_ms(heads[lane], now_ms) >= 0]
    if overdue:
        return max(overdue, key=lambda lane: ranks[lane].overdue_ms(heads[lane], now_ms))
    tier = min(ranks[lane].tier for lane in lanes)
    rivals = [lane for lane in lanes if ranks[lane].tier == tier]
    return max(rivals, key=lambda lane: ranks[lane].urgency(heads[lane], now_ms))
