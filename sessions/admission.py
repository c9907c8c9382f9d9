"""The global cap on streams: slots in Redis that expire with the front end that held them."""

from __future__ import annotations

from collections.abc import Collection

import redis

from queueing.keys import QueueKeys
from queueing.scripts import guarded
from sessions.scripts import run


class StreamSlots:
    """Slots of one queue, shared by all front ends. Thread-safe; one round trip per verb, Redis time.

    Any verb raises `QueueUnavailable` when Redis is away.
    """

    def __init__(self, client: redis.Redis, queue_name: str, *, cap: int, ttl_s: float = 30.0) -> None:
        self._client = client
        self._key = QueueKeys(queue_name).streams
        self._cap = cap
        self._ttl_ms = round(ttl_s * 1000)

    def acquire(self, session: str, *, now_ms: int = 0) -> bool:
        """Take a slot for the session (again: renews it); False when all are taken."""
        code, _ = run(self._client, "acquire", [self._key], [now_ms, session, self._cap, self._ttl_ms])
        return code == "TAKEN"

    def refresh(self, sessions: Collection[str], *, now_ms: int = 0) -> int:
        """Renew the slots of live sessions, also where Redis forgot them; returns the slots taken by anyone.
        Call at least three times per ``ttl_s``."""
        return run(self._client, "refresh", [self._key], [now_ms, self._ttl_ms, *sorted(sessions)])[1]

    def release(self, session: str) -> None:
        """Give the slot back. Idempotent."""
        with guarded():
            self._client.zrem(self._key, session)

    def count(self, *, now_ms: int = 0) -> int:
        """Slots taken at this moment."""
        return self.refresh((), now_ms=now_ms)
