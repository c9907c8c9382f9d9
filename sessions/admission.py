"""The global cap on streams: slots in Redis that expire with the front end that held them."""

from __future__ import annotations

from collections.abc import Collection

import redis


class StreamSlots:
    """Slots of one queue, shared by all front ends. Thread-safe; one round trip per verb, Redis time.

    Any verb raises `QueueUnavailable` when Redis is away.
    """

    def __init__(self, client: redis.Redis, queue_name: str, *, cap: int, ttl_s: float = 30.0) -> None:
        raise NotImplementedError

    def acquire(self, session: str, *, now_ms: int = 0) -> bool:
        """Take a slot for the session (again: renews it); False when all are taken."""
        raise NotImplementedError

    def refresh(self, sessions: Collection[str], *, now_ms: int = 0) -> None:
        """Renew the slots of live sessions; call at least three times per ``ttl_s``."""
        raise NotImplementedError

    def release(self, session: str) -> None:
        """Give the slot back. Idempotent."""
        raise NotImplementedError

    def count(self, *, now_ms: int = 0) -> int:
        """Slots taken at this moment."""
        raise NotImplementedError
