"""Looks into the run's Redis: what must hold at any moment, and what must be left when all is over."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import redis

from queueing.keys import PERMANENT, QueueKeys
from sessions.wire import BYTES_PER_SECOND

LOOK_S = 0.5
QUEUE = QueueKeys("main")

BOUNDS = {"wake": 64, "dead": 1_000, "counts": 64, "workers": 64, "streams": 200, "events": 128}
MOST_AUDIO = 90 * BYTES_PER_SECOND
"""Bytes of one session's buffer: 60 s that wait, a segment of 28 s and a message."""

SNAPSHOT = """
local prefix = KEYS[1]
local running, waiting, claims = {}, {}, {}
for _, id in ipairs(redis.call('ZRANGE', prefix .. 'leases', 0, -1)) do
  if redis.call('HGET', prefix .. 'job:' .. id, 'state') ~= 'cancelled' then running[#running + 1] = id end
end
for _, lane in ipairs(redis.call('KEYS', prefix .. 'lane:*')) do
  for _, id in ipairs(redis.call('ZRANGE', lane, 0, -1)) do waiting[#waiting + 1] = id end
end
for _, key in ipairs(redis.call('KEYS', prefix .. 'claim:*')) do claims[#claims + 1] = redis.call('GET', key) or '' end
return {running, waiting, claims}
"""
"""One atomic look: jobs in workers' hands, jobs that wait, and what each worker's last claim got."""

PARTIAL = re.compile(r"^(.+):p:\d+$")


class Watch:
    """``client`` speaks to Redis directly, past the proxies. `found` are broken promises, each once."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.found: dict[str, str] = {}
        self.looks = 0

    async def run(self) -> None:
        """Look again and again until cancelled; an absent Redis is no finding."""
        while True:
            with suppress(redis.RedisError):
                await asyncio.to_thread(self.look)
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """One look. Raises `redis.RedisError`."""
        running, waiting, claims = self._client.eval(SNAPSHOT, 1, QUEUE.prefix)
        self.looks += 1
        for what, evidence in snapshot_faults(_texts(running), _texts(waiting), _texts(claims)):
            self.found.setdefault(what, evidence)
        for what, evidence in self._bounds():
            self.found.setdefault(what, evidence)

    def _bounds(self) -> list[tuple[str, str]]:
        found = []
        for key in _texts(list(self._client.scan_iter(count=1000))):
            name = key.rpartition("}:")[2].partition(":")[0]
            size = self._size(key, name)
            limit = MOST_AUDIO if name == "audio" else BOUNDS.get(name)
            if limit is not None and size > limit:
                found.append((f"unbounded {name}", f"{key} holds {size}, more than {limit}"))
            if not PERMANENT.match(key) and self._client.ttl(key) == -1:
                found.append((f"no expiry {name}", key))
        return found

    def _size(self, key: str, name: str) -> int:
        sizes = {
            "wake": self._client.llen, "dead": self._client.zcard, "counts": self._client.hlen,
            "workers": self._client.zcard, "streams": self._client.zcard, "events": self._client.xlen,
            "audio": self._client.strlen,
        }  # fmt: skip
        return int(sizes[name](key)) if name in sizes else 0

    def leftovers(self, workers: int, *, strict: bool) -> list[str]:
        """What is still in Redis of streams that are all over. ``workers``: that run; ``strict``: the service removes
        what a dead web process leaves, else that may expire. Raises `redis.RedisError`."""
        client = self._client
        left = [
            f"{name}: {members[:3]} ({len(members)})"
            for name in ("leases", "streams", "parked")
            if (members := _texts(client.zrange(f"{QUEUE.prefix}{name}", 0, -1)))
        ]
        if partials := client.hlen(QUEUE.open_partial):
            left.append(f"open-partial: {partials} sessions")
        for key in _texts(list(client.scan_iter(count=1000))):
            if re.match(r"^hl:\{s:|^hl:\{q:[^}]+\}:(lane|events|session|session-jobs|job):", key):
                dead = ":job:" in key and client.zscore(QUEUE.dead, key.partition(":job:")[2]) is not None
                expires = not strict and client.ttl(key) != -1
                if not dead and not expires:
                    left.append(f"{key} ({client.ttl(key)} s)")
            elif not PERMANENT.match(key) and client.ttl(key) == -1:
                left.append(f"{key} never expires")
        records = [
            worker for worker in _texts(client.zrange(QUEUE.workers, 0, -1)) if client.exists(QUEUE.worker(worker))
        ]
        if len(records) != workers:
            left.append(f"registry: {len(records)} workers of {workers}")
        return left


def snapshot_faults(running: Sequence[str], waiting: Sequence[str], claims: Sequence[str]) -> list[tuple[str, str]]:
    """What is wrong with one atomic look at the jobs."""
    found = [("waits and runs", job) for job in set(running) & set(waiting)]
    partials = Counter(match[1] for job in {*running, *waiting} if (match := PARTIAL.match(job)))
    for session, count in partials.items():
        if count > 1:
            found.append(("two partials", f"session {session} has {count} partials that wait or run"))
    leases = Counter(pair for claim in claims for pair in set(re.findall(r" (\S+) (\d+)", claim)))
    for (job, generation), count in leases.items():
        if count > 1:
            found.append(("two leases", f"{job}, generation {generation}, was claimed by {count} workers"))
    return found


def _texts(raw: Any) -> list[str]:
    return [item.decode() if isinstance(item, bytes) else str(item) for item in raw]
