"""How many streams one owner has over all front ends: an owner is a client's address, or an API key.

Each owner's streams are a set in Redis whose members expire: what a dead front end had is not counted for long, and no
counter can go wrong, for there is none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import redis

from queueing.keys import QueueKeys
from queueing.scripts import guarded
from sessions.scripts import fetch, run


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a stream counts for, and what it may have; 0 is no limit. ``name`` is part of a key: no blanks."""

    name: str
    max_streams: int = 0
    max_tries: int = 0
    """Streams it may ask for in a minute."""


@dataclass(frozen=True, slots=True)
class OverLimit:
    """``owner`` has all the streams that it may, or asks for them ``too_fast``."""

    owner: Owner
    too_fast: bool


class StreamOwners:
    """The owners of one queue's streams. Thread-safe; one round trip per verb, Redis time.

    Any verb raises `QueueUnavailable` when Redis is away.
    """

    def __init__(self, client: redis.Redis, queue_name: str, *, ttl_s: float = 30.0) -> None:
        self._client = client
        self._keys = QueueKeys(queue_name)
        self._ttl_ms = round(ttl_s * 1000)

    def add(self, session: str, owners: Sequence[Owner], *, back: bool = False, now_ms: int = 0) -> OverLimit | None:
        """Count the session for all of ``owners`` (again: renews it), or for none: then it says whose limit it is.
        ``back``: it comes for a stream that is counted already, and is let in at Redis's memory limit too."""
        triples = [part for owner in owners for part in (owner.name, owner.max_streams, owner.max_tries)]
        keys = [self._keys.streams_of_prefix, self._keys.tries_of_prefix]
        code, place = run(self._client, "own", keys, [now_ms, session, self._ttl_ms, int(back), *triples])
        return None if code == "OK" else OverLimit(owners[place - 1], too_fast=code == "FAST")

    def keep(self, streams: Mapping[str, Collection[str]], *, now_ms: int = 0) -> dict[str, int]:
        """Renew what live sessions (session -> names of its owners) count for; returns each owner's streams.
        Call at least three times per ``ttl_s``."""
        pairs = [(session, owner) for session, owners in streams.items() for owner in owners]
        if not pairs:
            return {}
        keys = [self._keys.streams_of_prefix]
        arguments: list[str | int] = [now_ms, self._ttl_ms, *(part for pair in pairs for part in pair)]
        _, counts = fetch(self._client, "keep", keys, arguments)
        return {owner: int(count) for (_, owner), count in zip(pairs, counts.split(), strict=True)}

    def remove(self, session: str, owners: Collection[str]) -> None:
        """The session has ended. Idempotent."""
        with guarded():
            pipeline = self._client.pipeline(transaction=False)
            for owner in owners:
                pipeline.zrem(self._keys.streams_of(owner), session)
            pipeline.execute()
