"""Who works: each worker keeps a record alive in Redis; one that stops doing so is gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

from queueing.errors import RedisFull
from queueing.keys import QueueKeys
from queueing.records import check_name, text
from queueing.scripts import Scripts, guarded
from queueing.verbs import Register

WORKER_TTL_MS = 15_000
"""A record without heartbeats lives this long: a worker that died shows for a while with the age of its last sign."""


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One worker: ``age_ms`` since its last heartbeat by Redis's clock, ``info`` as it told of itself."""

    id: str
    joined_ms: int
    age_ms: int
    info: Mapping[str, Any]

    @property
    def state(self) -> str:
        """What the worker calls its state (``loading``, ``ready``, ``busy``, ...); ``unknown`` when it does not say."""
        return str(self.info.get("state", "unknown"))


class WorkerRegistry:
    """The workers of one queue."""

    def __init__(self, client: redis.Redis, keys: QueueKeys, scripts: Scripts) -> None:
        self._client = client
        self._keys = keys
        self._scripts = scripts
        self._joined: set[str] = set()
        """Workers that Redis surely knows: whose latest beat was not answered may have a record and be no member."""

    def heartbeat(self, worker: str, info: Mapping[str, object], *, now_ms: int = 0) -> None:
        """Say that ``worker`` lives and how it is. One plain command, two when Redis may not know it."""
        check_name("worker", worker)
        record = json.dumps(dict(info), separators=(",", ":"), default=str)
        known = worker in self._joined
        self._joined.discard(worker)
        try:
            with guarded():
                before = self._client.set(self._keys.worker(worker), record, px=WORKER_TTL_MS, get=True)
        except RedisFull:  # who decodes frees memory, and must not pass for dead
            self._register(worker, now_ms, record)
        else:
            if before is None or not known:
                self._register(worker, now_ms)
        self._joined.add(worker)

    def _register(self, worker: str, now_ms: int, record: str = "") -> None:
        self._scripts.run(Register(now_ms=now_ms, worker=worker, ttl_ms=WORKER_TTL_MS, record=record))

    def forget(self, worker: str) -> None:
        """A worker leaves in good order."""
        with guarded():
            pipeline = self._client.pipeline(transaction=False)  # a full Redis refuses any transaction
            pipeline.zrem(self._keys.workers, worker)
            pipeline.delete(self._keys.worker(worker))
            pipeline.execute()

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Every worker with a live record, in order of joining."""
        with guarded():
            joined: list[Any] = self._client.zrange(self._keys.workers, 0, -1, withscores=True)
            pipeline = self._client.pipeline(transaction=False)
            for name, _ in joined:
                pipeline.get(self._keys.worker(text(name)))
                pipeline.pttl(self._keys.worker(text(name)))
            replies = pipeline.execute() if joined else []
        return tuple(
            WorkerInfo(text(name), int(since), WORKER_TTL_MS - int(left), json.loads(record))
            for (name, since), record, left in zip(joined, replies[::2], replies[1::2], strict=True)
            if record is not None and int(left) > 0
        )
