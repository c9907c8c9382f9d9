"""A Redis client whose scripts take the short way: what a stream does ten times a second should cost little.

redis-py spends about 100 us of the interpreter on a command that Redis answers in 20: retries that are off, a lock
around its pool, a look whether the connection is still good, hooks for telemetry. Here ``EVALSHA`` goes straight to a
connection and back, at half of that. All else is redis-py's, and so are the connections, their timeouts and errors.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import redis
from redis.exceptions import ResponseError

from queueing.clock import Clock, SystemClock

FRESH_S = 1.0
"""A connection that was used so recently is taken to be good; one that is not says so when it is used, as ever."""


class LeanRedis(redis.Redis):
    """As `redis.Redis` over a pool that is bounded. Thread-safe.

    Keeps up to half of the pool's connections for scripts: as many as ran at once. Nothing is tried twice.
    """

    def __init__(self, pool: redis.BlockingConnectionPool, clock: Clock | None = None) -> None:
        super().__init__(connection_pool=pool)
        self._clock: Clock = clock or SystemClock()
        self._pid = os.getpid()
        self._kept: deque[tuple[Any, float]] = deque()
        self._keep = pool.max_connections // 2

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Raises what redis-py raises."""
        if args[0] != "EVALSHA" or options:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        connection = self._take()
        try:
            connection.send_packed_command(connection.pack_command(*args))
            reply = connection.read_response()
        except ResponseError:  # an answer like any other, to the connection
            self._give_back(connection)
            raise
        except BaseException:
            connection.disconnect()
            self.connection_pool.release(connection)
            raise
        self._give_back(connection)
        return reply

    def _take(self) -> Any:
        if self._pid != os.getpid():  # after a fork the connections are the parent's
            self._kept.clear()
            self._pid = os.getpid()
        try:
            connection, used_s = self._kept.pop()
        except IndexError:
            return self.connection_pool.get_connection()
        if self._clock.monotonic() - used_s < FRESH_S:
            return connection
        self.connection_pool.release(connection)  # the pool looks at what it gives out
        return self.connection_pool.get_connection()

    def _give_back(self, connection: Any) -> None:
        if len(self._kept) < self._keep:
            self._kept.append((connection, self._clock.monotonic()))
        else:
            self.connection_pool.release(connection)
