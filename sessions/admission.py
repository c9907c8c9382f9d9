"""The global cap on streams: slots in Redis that expire with the front end that held them."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import redis

from queueing.keys import QueueKeys
from queueing.scripts import guarded
from sessions.scripts import run


class Slot(StrEnum):
    """The answer to who asks for a slot."""

    TAKEN = "TAKEN"
    """It has one."""
    HELD = "HELD"
    """None is free, and some are kept for streams whose clients may come back: who asks may be one of them."""
    FULL = "FULL"


class StreamSlots:
    """Slots of one queue, shared by all front ends. Thread-safe; one round trip per verb, Redis time.

    A session whose slot expires is parked (see `sessions.parking`) for ``grace_s``, then reaped.
    Any verb raises `QueueUnavailable` when Redis is away.
    """

    def __init__(
        self, client: redis.Redis, queue_name: str, *, cap: int, ttl_s: float = 30.0, grace_s: float = 30.0
    ) -> None:
        self._client = client
        keys = QueueKeys(queue_name)
        self._key = keys.streams
        self._keys = [keys.streams, keys.parked]
        self._cap = cap
        self._ttl_ms = round(ttl_s * 1000)
        self._grace_ms = round(grace_s * 1000)

    def ask(self, session: str, *, resumed: bool = False, now_ms: int = 0) -> Slot:
        """Take a slot for the session (again: renews it). ``resumed``: it lives, and is not parked any more, whether
        one is free or not."""
        code, _ = run(
            self._client,
            "acquire",
            self._keys,
            [now_ms, session, self._cap, self._ttl_ms, self._grace_ms, int(resumed)],
        )
        return Slot(code)

    def acquire(self, session: str, *, now_ms: int = 0) -> bool:
        """Take a slot for the session (again: renews it); False when all are taken."""
        return self.ask(session, now_ms=now_ms) is Slot.TAKEN

    def refresh(self, sessions: Collection[str], *, now_ms: int = 0) -> int:
        """Renew the slots of live sessions, also where Redis forgot them; returns the slots taken by anyone.
        Call at least three times per ``ttl_s``."""
        return run(self._client, "refresh", self._keys, [now_ms, self._ttl_ms, self._grace_ms, *sorted(sessions)])[1]

    def release(self, session: str) -> None:
        """Give the slot back. Idempotent."""
        with guarded():
            self._client.zrem(self._key, session)

    def count(self, *, now_ms: int = 0) -> int:
        """Slots taken at this moment."""
        return self.refresh((), now_ms=now_ms)
