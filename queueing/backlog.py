"""How much work waits, cheaply: what admission and the pace of partials go by, read once a second by every front end.

`queueing.stats` tells more and reads more. This reads the index of lane heads and the learned costs in one round trip,
and counts in a second one only in lanes that hold jobs: O(lanes), however many jobs wait.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import redis

from queueing.costs import merge_costs, prior_cost_ms
from queueing.keys import QueueKeys
from queueing.lane import Kind, Lane, all_lanes
from queueing.policy import LaneRank
from queueing.policy_store import INDEX_BYTES_PER_LANE
from queueing.records import text_map
from queueing.scripts import guarded
from queueing.stats import TYPICAL_FINAL, score_ahead

TYPICAL_PARTIAL = Lane(Kind.PARTIAL, 8)
"""The partial whose wait is predicted: one beyond the first words."""

_HEAD_BYTES, _SPAN_BYTES = 40, 16
"""Of the index of heads (`lua/lib/lanes.lua`), for each lane."""


@dataclass(frozen=True, slots=True)
class WaitingLane:
    """One lane that holds jobs: how many go before a final, or a partial, that comes now, and what each costs (ms)."""

    lane: Lane
    depth: int
    oldest_age_ms: float
    cost_ms: float
    before_final: int
    before_partial: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """The work that waits at one moment; an idle queue has no lanes."""

    lanes: tuple[WaitingLane, ...] = ()
    running_ms: float = 0.0
    """Estimate of what is left of what workers hold, in ms of one worker: half of what a typical partial costs, for
    each job. (Looking up each job, as `queueing.stats` does, would cost O(jobs).)"""
    measured: bool = False
    """Whether any decode was measured yet; until then costs are guesses."""

    def final_wait_ms(self, workers: int) -> float | None:
        """How long a final that comes now waits for one of so many workers; None without any.

        Under a policy that puts finals first, only what a final does wait for: finals, and what is overdue. While no
        decode was measured the costs say nothing about this machine: then it is the age of the oldest waiting final,
        which a new one will hardly undercut.
        """
        return self._wait_ms(Kind.FINAL, sum(lane.before_final * lane.cost_ms for lane in self.lanes), workers)

    def partial_wait_ms(self, workers: int) -> float | None:
        """As `final_wait_ms`, for a partial beyond the first words of its segment."""
        return self._wait_ms(Kind.PARTIAL, sum(lane.before_partial * lane.cost_ms for lane in self.lanes), workers)

    def _wait_ms(self, kind: Kind, before_ms: float, workers: int) -> float | None:
        if workers == 0:
            return None
        if self.measured:
            return (before_ms + self.running_ms) / workers
        return max((lane.oldest_age_ms for lane in self.lanes if lane.lane.kind is kind), default=0.0)


def read_backlog(client: redis.Redis, keys: QueueKeys) -> Backlog:
    """The backlog now, in one round trip, or two when something waits. Raises `QueueUnavailable`.

    A queue without an installed policy, or with one of another version of Hearline, shows no backlog.
    """
    with guarded():
        pipeline = client.pipeline(transaction=False)
        pipeline.time()
        pipeline.get(keys.heads)
        pipeline.hgetall(keys.costs)
        pipeline.zcard(keys.leases)
        (seconds, micros), index, learned, leased = pipeline.execute()
    now_ms = seconds * 1000 + micros // 1000
    costs = text_map(learned)
    lanes = all_lanes()
    if index is None or len(index) != INDEX_BYTES_PER_LANE * len(lanes):
        return Backlog(measured=bool(costs))
    heads = [_head(index, place, len(lanes)) for place in range(len(lanes))]
    ranks = {lane: rank for lane, (_, _, rank) in zip(lanes, heads, strict=True)}
    waiting = [(lane, depth, score) for lane, (depth, score, _) in zip(lanes, heads, strict=True) if depth]
    ahead = _count_ahead(client, keys, [lane for lane, _, _ in waiting], ranks, now_ms)
    price = _prices(costs)
    return Backlog(
        lanes=tuple(
            WaitingLane(
                lane=lane,
                depth=depth,
                oldest_age_ms=max(0.0, now_ms - score - ranks[lane].head_start_ms),
                cost_ms=price[lane],
                before_final=final,
                before_partial=partial,
            )
            for (lane, depth, score), (final, partial) in zip(waiting, ahead, strict=True)
        ),
        running_ms=leased * price[TYPICAL_PARTIAL] / 2,
        measured=bool(costs),
    )


def _head(index: bytes, place: int, lanes: int) -> tuple[int, float, LaneRank]:
    depth, score, _, tier, rate = struct.unpack_from("<ddddd", index, _HEAD_BYTES * place)
    head_start, max_age = struct.unpack_from("<dd", index, _HEAD_BYTES * lanes + _SPAN_BYTES * place)
    return int(depth), score, LaneRank(int(tier), head_start, rate, max_age)


def _count_ahead(
    client: redis.Redis, keys: QueueKeys, waiting: list[Lane], ranks: dict[Lane, LaneRank], now_ms: float
) -> list[tuple[int, int]]:
    """Of each lane, the jobs that go before a typical final and before a typical partial."""
    if not waiting:
        return []
    with guarded():
        pipeline = client.pipeline(transaction=False)
        for lane in waiting:
            for typical in (TYPICAL_FINAL, TYPICAL_PARTIAL):
                pipeline.zcount(keys.lane(lane), "-inf", score_ahead(ranks[lane], ranks[typical], now_ms))
        counts: list[Any] = pipeline.execute()
    return [(int(final), int(partial)) for final, partial in zip(counts[::2], counts[1::2], strict=True)]


def _prices(learned: dict[str, str]) -> dict[Lane, float]:
    """Every lane's cost: learned, else the prior times how this machine's learned costs compare with their priors."""
    merged = merge_costs(learned)
    known = [lane for lane in all_lanes() if lane.name in learned]
    scale = sum(merged[lane] / prior_cost_ms(lane) for lane in known) / len(known) if known else 1.0
    return {lane: cost if lane.name in learned else cost * scale for lane, cost in merged.items()}
