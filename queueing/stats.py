"""What the queue looks like now: a typed snapshot for `hearline queue`, /metrics and tests. Reads only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import redis

from queueing.costs import merge_costs
from queueing.errors import RedisFull
from queueing.job import Delivery, NewJob
from queueing.keys import QueueKeys
from queueing.lane import Kind, Lane, all_lanes
from queueing.policy import LaneRank
from queueing.policy_store import InstalledPolicy, PolicyStore, decode_policy
from queueing.records import JobRecord, decode_record, text, text_map
from queueing.redis_cluster import node_of
from queueing.registry import WorkerInfo, WorkerRegistry
from queueing.scripts import guarded

MAX_LISTED = 1_000
"""Most jobs of one listing."""

TYPICAL_FINAL = Lane(Kind.FINAL, 10)
"""The final whose wait is predicted: one of about 8 s. Only size policies treat another one otherwise."""

ABLE = ("ready", "busy")
FRESH_MS = 6_000
"""A worker that is in one of these states, and whose last heartbeat (every 2 s) is no older, can take work."""


@dataclass(frozen=True, slots=True)
class LaneStats:
    """One lane: how many jobs wait, how long the oldest has, what a job costs (ms) and how it ranks."""

    lane: Lane
    depth: int
    oldest_age_ms: int | None
    cost_ms: float
    learned: bool
    """Whether the cost was measured; else it is the prior."""
    rank: LaneRank
    ahead: int = 0
    """How many of its jobs go before a final like `TYPICAL_FINAL` that comes now."""


@dataclass(frozen=True, slots=True)
class LeaseStats:
    """One job in a worker's hands; ``left_ms`` is below 0 when the lease ran out and no sweep came by yet."""

    job: NewJob
    lane: Lane
    worker: str
    generation: int
    attempt: int
    claimed_ms: int
    lease_until_ms: int
    left_ms: int


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One snapshot; ``taken_ms`` is Redis's time of it."""

    taken_ms: int
    policy: InstalledPolicy
    lanes: tuple[LaneStats, ...]
    """Every lane, in the order of `all_lanes`."""
    leases: tuple[LeaseStats, ...]
    workers: tuple[WorkerInfo, ...]
    dead: int
    open_partials: int
    counts: Mapping[str, int]
    """Jobs by ``KIND:OUTCOME`` since the queue exists."""

    @property
    def waiting(self) -> int:
        """Jobs in all lanes."""
        return sum(lane.depth for lane in self.lanes)

    @property
    def able_workers(self) -> int:
        """Workers that can take work now."""
        return sum(worker.state in ABLE and worker.age_ms <= FRESH_MS for worker in self.workers)

    @property
    def ahead_ms(self) -> float:
        """Work (ms of one worker) that waits and goes before a final that comes now, by the lanes' costs."""
        return sum(lane.ahead * lane.cost_ms for lane in self.lanes)

    @property
    def running_ms(self) -> float:
        """What is left (ms of one worker) of the batches that workers hold, by the lanes' costs; none is below 0."""
        costs = {lane.lane: lane.cost_ms for lane in self.lanes}
        left: dict[str, float] = {}
        for lease in sorted(self.leases, key=lambda lease: lease.claimed_ms):
            left[lease.worker] = left.get(lease.worker, lease.claimed_ms - self.taken_ms) + costs[lease.lane]
        return sum(max(0.0, rest) for rest in left.values())

    @property
    def predicted_wait_ms(self) -> float | None:
        """How long a final that comes now waits until a worker begins it; None while no worker can take work.

        (what goes before it + what is left of what runs) / workers: exact for one worker that takes jobs one by one and
        costs that are right. Finals that come later and overtake it (under size policies) are not in it.
        """
        workers = self.able_workers
        return (self.ahead_ms + self.running_ms) / workers if workers else None

    @property
    def oldest_age_ms(self) -> int | None:
        """Age of the oldest waiting job; None when nothing waits."""
        return max((lane.oldest_age_ms for lane in self.lanes if lane.oldest_age_ms is not None), default=None)


def score_ahead(lane: LaneRank, final: LaneRank, now_ms: float) -> float:
    """Jobs of a lane with this score or a lower one go before a final that comes now, by the rule of `policy`."""
    overdue = now_ms - lane.max_age_ms - lane.head_start_ms
    if lane.tier != final.tier:
        return math.inf if lane.tier < final.tier else overdue
    return max(overdue, now_ms - final.urgency(now_ms, now_ms) / lane.rate)


class QueueReader:
    """Looks into one queue."""

    def __init__(self, client: redis.Redis, keys: QueueKeys, policies: PolicyStore, registry: WorkerRegistry) -> None:
        self._client = client
        self._keys = keys
        self._policies = policies
        self._registry = registry

    def stats(self) -> QueueStats:
        """A snapshot of the queue; workers and the jobs' own records are read just after the rest."""
        try:
            return self._stats(transaction=True)
        except RedisFull:  # which refuses any transaction, also one that only reads
            return self._stats(transaction=False)

    def _stats(self, *, transaction: bool) -> QueueStats:
        ensured = self._policies.ensure()
        with guarded():
            began_s, began_us = node_of(self._client, self._keys.policy).time()
            began_ms = began_s * 1000 + began_us // 1000
            pipeline = self._client.pipeline(transaction=transaction)
            pipeline.time()
            pipeline.hgetall(self._keys.policy)
            pipeline.hgetall(self._keys.costs)
            pipeline.hgetall(self._keys.counts)
            pipeline.zcard(self._keys.dead)
            pipeline.hlen(self._keys.open_partial)
            pipeline.zrange(self._keys.leases, 0, MAX_LISTED - 1, withscores=True)
            for lane in all_lanes():
                pipeline.zcard(self._keys.lane(lane))
                pipeline.zrange(self._keys.lane(lane), 0, 0, withscores=True)
                before = score_ahead(ensured.ranks[lane], ensured.ranks[TYPICAL_FINAL], began_ms)
                pipeline.zcount(self._keys.lane(lane), "-inf", before)
            (seconds, micros), installed, costs, counts, dead, partials, leases, *lanes = pipeline.execute()
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        policy = decode_policy(installed) or ensured
        learned = text_map(costs)
        merged = merge_costs(learned)
        return QueueStats(
            taken_ms=now_ms,
            policy=policy,
            lanes=tuple(
                LaneStats(
                    lane=lane,
                    depth=int(depth),
                    oldest_age_ms=max(0, round(now_ms - head[0][1] - policy.ranks[lane].head_start_ms))
                    if head
                    else None,
                    cost_ms=merged[lane],
                    learned=lane.name in learned,
                    rank=policy.ranks[lane],
                    ahead=int(ahead),
                )
                for lane, depth, head, ahead in zip(all_lanes(), lanes[::3], lanes[1::3], lanes[2::3], strict=True)
            ),
            leases=self._leases({text(job_id): int(until) for job_id, until in leases}, now_ms),
            workers=self._registry.workers(),
            dead=int(dead),
            open_partials=int(partials),
            counts={name: int(count) for name, count in text_map(counts).items()},
        )

    def events(self, session: str, after: str | None = None) -> tuple[Delivery, ...]:
        """The session's durable events after the event id ``after``, oldest first."""
        with guarded():
            entries: Any = self._client.xrange(self._keys.events(session), min=f"({after}" if after else "-")
        return tuple(Delivery.from_body(text(event_id), text_map(fields)["body"]) for event_id, fields in entries)

    def job(self, job_id: str) -> JobRecord | None:
        """Everything known of a job; None when nothing is (any more)."""
        with guarded():
            fields: Any = self._client.hgetall(self._keys.job(job_id))
        return decode_record(fields) if fields else None

    def jobs(self, state: str = "queued", limit: int = 100) -> tuple[JobRecord, ...]:
        """Jobs that are ``queued`` (oldest first), ``leased`` (next to expire first) or ``dead`` (latest first).

        At most ``limit`` of them, and never more than `MAX_LISTED`. Raises ValueError for any other state.
        """
        last = min(limit, MAX_LISTED) - 1
        with guarded():
            if state == "queued":
                pipeline = self._client.pipeline(transaction=False)
                for lane in all_lanes():
                    pipeline.zrange(self._keys.lane(lane), 0, last)
                found = self._records([text(job_id) for ids in pipeline.execute() for job_id in ids])
                found.sort(key=lambda record: (record.arrival_ms, record.job.id))
            elif state == "leased":
                leases: list[Any] = self._client.zrange(self._keys.leases, 0, last, withscores=True)
                until = {text(job_id): int(expiry) for job_id, expiry in leases}
                found = [replace(one, lease_until_ms=until[one.job.id]) for one in self._records(list(until))]
            elif state == "dead":
                dead: list[Any] = self._client.zrange(self._keys.dead, 0, last, desc=True)
                found = self._records([text(job_id) for job_id in dead])
            else:
                raise ValueError(f"no list of {state!r} jobs; choose queued, leased or dead")
        return tuple(record for record in found if record.state == state)[: last + 1]

    def _leases(self, until: Mapping[str, int], now_ms: int) -> tuple[LeaseStats, ...]:
        with guarded():
            records = self._records(list(until))
        return tuple(
            LeaseStats(
                job=record.job,
                lane=record.lane,
                worker=record.worker or "",
                generation=record.generation,
                attempt=record.attempts,
                claimed_ms=record.claimed_ms or 0,
                lease_until_ms=until[record.job.id],
                left_ms=until[record.job.id] - now_ms,
            )
            for record in records
            if record.state == "leased"
        )

    def _records(self, ids: list[str]) -> list[JobRecord]:
        pipeline = self._client.pipeline(transaction=False)
        for job_id in ids:
            pipeline.hgetall(self._keys.job(job_id))
        return [decode_record(fields) for fields in (pipeline.execute() if ids else []) if fields]
