"""What the queue looks like now: a typed snapshot for `hearline queue`, /metrics and tests. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import redis

from queueing.costs import merge_costs
from queueing.job import NewJob
from queueing.keys import QueueKeys
from queueing.lane import Lane, all_lanes
from queueing.policy import LaneRank
from queueing.policy_store import InstalledPolicy, PolicyStore, decode_policy
from queueing.records import JobRecord, decode_record, text, text_map
from queueing.registry import WorkerInfo, WorkerRegistry
from queueing.scripts import guarded

MAX_LISTED = 1_000
"""Most jobs of one listing."""


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
    def oldest_age_ms(self) -> int | None:
        """Age of the oldest waiting job; None when nothing waits."""
        return max((lane.oldest_age_ms for lane in self.lanes if lane.oldest_age_ms is not None), default=None)


class QueueReader:
    """Looks into one queue."""

    def __init__(self, client: redis.Redis, keys: QueueKeys, policies: PolicyStore, registry: WorkerRegistry) -> None:
        self._client = client
        self._keys = keys
        self._policies = policies
        self._registry = registry

    def stats(self) -> QueueStats:
        """A snapshot of the queue; workers and the jobs' own records are read just after the rest."""
        ensured = self._policies.ensure()
        with guarded():
            pipeline = self._client.pipeline(transaction=True)
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
                )
                for lane, depth, head in zip(all_lanes(), lanes[::2], lanes[1::2], strict=True)
            ),
            leases=self._leases({text(job_id): int(until) for job_id, until in leases}, now_ms),
            workers=self._registry.workers(),
            dead=int(dead),
            open_partials=int(partials),
            counts={name: int(count) for name, count in text_map(counts).items()},
        )

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
