"""Connections to Redis, made with the limits this system needs, and the check that Redis is safe to use."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from queueing.errors import QueueUnavailable, UnsafeRedis

WAIT_LIMIT_S = 5.0
"""Longest blocking wait of a client; its socket timeout is longer, or redis-py would re-send the wait."""

SOCKET_TIMEOUT_S = 10.0


def connect(url: str, *, max_connections: int = 16, client_name: str = "hearline") -> redis.Redis:
    """A client over a bounded, blocking pool; no silent retries (a repeated claim must carry its nonce).

    No I/O happens here. Raises ValueError for a malformed URL.
    """
    pool = redis.BlockingConnectionPool.from_url(
        url,
        max_connections=max_connections,
        timeout=SOCKET_TIMEOUT_S,
        socket_timeout=SOCKET_TIMEOUT_S,
        socket_connect_timeout=5.0,
        socket_keepalive=True,
        health_check_interval=30,
        client_name=client_name,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
    )
    return redis.Redis(connection_pool=pool)


def check_redis(client: redis.Redis) -> str:
    """Make sure that Redis answers and never evicts; returns its version.

    Raises `QueueUnavailable` or `UnsafeRedis`.
    """
    try:
        memory = client.info("memory")
        server = client.info("server")
    except redis.RedisError as error:
        raise QueueUnavailable(f"Redis does not answer: {error}") from error
    policy = str(memory.get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        raise UnsafeRedis(policy)
    return str(server.get("redis_version", "unknown"))
