"""The audio of sessions in Redis: one string of PCM16 each, always with an expiry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import redis

from queueing.scripts import guarded
from sessions.errors import AudioLost
from sessions.keys import SessionKeys
from sessions.scripts import run
from sessions.wire import BYTES_PER_SECOND

DEFAULT_MAX_BYTES = 3600 * BYTES_PER_SECOND


class AudioBuffer:
    """All sessions' audio in one Redis. Thread-safe. Any verb raises `QueueUnavailable` when Redis is away."""

    def __init__(self, client: redis.Redis, ttl_s: float = 3600.0, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        """``client`` returns bytes. ``ttl_s``: seconds a session is kept after its last append. ``max_bytes`` each."""
        self._client = client
        self._ttl_ms = round(ttl_s * 1000)
        self._max_bytes = max_bytes

    def create(self, session: str, meta: Mapping[str, str]) -> None:
        """Describe a session (one round trip); describing it again replaces fields and leaves its audio alone."""
        key = SessionKeys(session).meta
        with guarded(), self._client.pipeline(transaction=True) as pipe:
            pipe.hset(key, items=[part for field in meta.items() for part in field])
            pipe.pexpire(key, self._ttl_ms)
            pipe.execute()

    def append(self, session: str, offset: int, data: bytes) -> int:
        """Store ``data`` at byte ``offset`` (one round trip) and renew the expiry; returns the total bytes held.

        The same data at the same offset again changes nothing. Raises `AudioLost` when Redis holds less than
        ``offset`` bytes, ValueError beyond ``max_bytes``.
        """
        keys = SessionKeys(session)
        code, held = run(self._client, "append", [keys.audio, keys.meta], [offset, data, self._ttl_ms, self._max_bytes])
        if code == "LOST":
            raise AudioLost(session, held, offset)
        if code == "FULL":
            raise ValueError(f"session {session}: {offset + len(data)} bytes of audio; at most {self._max_bytes} fit")
        return held

    def read(self, session: str, start: int, end: int) -> bytes:
        """Bytes ``start`` to ``end`` (exclusive). Raises `AudioLost` when fewer are there."""
        if not 0 <= start <= end:
            raise ValueError(f"no byte range: {start} to {end}")
        if start == end:
            return b""
        with guarded():
            data = cast(bytes, self._client.getrange(SessionKeys(session).audio, start, end - 1))
        if len(data) < end - start:
            raise AudioLost(session, start + len(data), end)
        return data

    def delete(self, session: str) -> None:
        """Forget the session's audio and description. Idempotent."""
        keys = SessionKeys(session)
        with guarded():
            self._client.unlink(keys.audio, keys.meta)
