"""Forgotten keys are a memory leak: every key expires, or is one of the few permanent ones."""

from __future__ import annotations

import redis

from queueing.keys import PERMANENT


def keys_without_expiry(client: redis.Redis) -> list[str]:
    """The names of all keys that never expire and are not permanent."""
    found = []
    for raw in client.scan_iter(count=1000):
        name = raw.decode() if isinstance(raw, bytes) else str(raw)
        if not PERMANENT.match(name) and client.ttl(raw) == -1:
            found.append(name)
    return found
