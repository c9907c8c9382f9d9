"""The pulse's question to Redis; the first one, and the first after it was away, looks at its set-up too.

A web process that started before its Redis, or whose Redis was replaced, would otherwise never notice one that evicts.
"""

from __future__ import annotations

import redis

from queueing.connect import check_redis
from queueing.job_queue import JobQueue
from queueing.redis_cluster import node_of
from queueing.scripts import guarded


class RedisWatch:
    """One for a process, asked by one thread."""

    def __init__(self, client: redis.Redis, queue: JobQueue) -> None:
        self._client = client
        self._queue = queue
        self._is_fit = False

    def time_ms(self) -> int:
        """The clock of the Redis that holds the queue, in ms since the Unix epoch.

        Raises `QueueUnavailable` while it is away, `UnsafeRedis` while it is not fit.
        """
        fit, self._is_fit = self._is_fit, False
        if not fit:
            check_redis(self._client)
        with guarded():
            seconds, microseconds = node_of(self._client, self._queue.keys.policy).time()
        self._is_fit = True
        return seconds * 1000 + microseconds // 1000
