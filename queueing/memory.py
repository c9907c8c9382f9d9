"""How full a Redis is: near its limit no new streams are taken, so that those that run can be finished."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import redis

from queueing.scripts import guarded


def memory_share(client: redis.Redis, limit_bytes: int = 0) -> float | None:
    """Memory in use over what there may be, of the fullest Redis behind ``client``; None where nothing limits it.

    The limit is the lower of Redis's own ``maxmemory`` and ``limit_bytes``; 0 is no limit. Raises `QueueUnavailable`.
    """
    with guarded():
        reply: Any = client.info("memory")
    shares = []
    for node in _nodes(reply):
        limits = [limit for limit in (int(node.get("maxmemory", 0)), limit_bytes) if limit > 0]
        if limits:
            shares.append(int(node["used_memory"]) / min(limits))
    return max(shares, default=None)


def _nodes(reply: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A single Redis answers with its fields, a cluster with those of each node."""
    if "used_memory" in reply:
        yield reply
    else:
        yield from (node for node in reply.values() if isinstance(node, Mapping))
