"""A Redis watched over by Sentinels: each new connection goes to whichever server is the primary now.

The Sentinels are asked when a connection is opened, and the server is asked for its role, as Redis's guidelines for
Sentinel clients want it. A primary that dies breaks its connections, so the next use of each finds the new one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import redis
from redis.exceptions import NoPermissionError, ResponseError
from redis.sentinel import MasterNotFoundError


class PrimaryFinder:
    """Asks the Sentinels for the address of a service's primary. Thread-safe.

    It has the face of redis-py's ``SentinelConnectionPoolProxy``, whose own search is not safe in several threads.
    """

    is_master = True
    check_connection = False

    def __init__(self, sentinels: Sequence[redis.Redis], service_name: str) -> None:
        self.service_name = service_name
        self._sentinels = tuple(sentinels)
        self._pool: redis.ConnectionPool | None = None
        self._lock = threading.Lock()
        self._primary: tuple[str, int] | None = None

    def serve(self, pool: redis.ConnectionPool) -> None:
        """``pool`` is told to forget its idle connections whenever the primary changes."""
        self._pool = pool

    def get_master_address(self) -> tuple[str, int]:
        """Host and port of the primary. Raises MasterNotFoundError, a ConnectionError."""
        problems = []
        for sentinel in (sentinels := self._sentinels):
            try:
                state: Any = sentinel.execute_command("SENTINEL MASTER", self.service_name)  # type: ignore[no-untyped-call]
            except (redis.RedisError, OSError) as error:
                problems.append(f"{_place(sentinel)}: {error}")
                continue
            if state["is_odown"] or not state["is_master"]:
                problems.append(f"{_place(sentinel)}: no live primary now")
                continue
            self._sentinels = (sentinel, *(other for other in sentinels if other is not sentinel))
            return self._found((str(state["ip"]), int(state["port"])))
        raise MasterNotFoundError(f"no Sentinel names a primary of {self.service_name!r} ({'; '.join(problems)})")

    def _found(self, address: tuple[str, int]) -> tuple[str, int]:
        with self._lock:
            changed = self._primary not in (None, address)
            self._primary = address
        if changed and self._pool is not None:
            self._pool.disconnect(inuse_connections=False)
        return address

    def close(self) -> None:
        """Close the connections to the Sentinels."""
        for sentinel in self._sentinels:
            sentinel.close()


class SentinelRedis(redis.Redis):
    """A client of whichever server is the primary."""

    def __init__(self, pool: redis.ConnectionPool, finder: PrimaryFinder) -> None:
        super().__init__(connection_pool=pool)
        self.finder = finder

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """As `redis.Redis`. A server that says, also from within a script, that it is a replica now is left."""
        try:
            return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except ResponseError as error:
            if "READONLY" not in str(error):
                raise
            self.connection_pool.disconnect(inuse_connections=False)
            raise redis.ConnectionError("this server is a replica now") from error

    def close(self) -> None:
        self.connection_pool.disconnect()
        super().close()
        self.finder.close()


def greet_primary(connection: Any) -> None:
    """Log in and make sure that this is a primary: Sentinels may not have noticed yet, or a replica not yet know."""
    connection.on_connect()
    connection.send_command("ROLE")
    try:
        role = connection.read_response()[0]
    except NoPermissionError:
        return
    if role not in (b"master", "master"):
        raise redis.ConnectionError(f"{connection.host}:{connection.port} is not the primary (yet)")


def _place(sentinel: redis.Redis) -> str:
    address = sentinel.connection_pool.connection_kwargs
    return f"Sentinel {address.get('host')}:{address.get('port')}"
