"""The audio of sessions in Redis: one string of PCM16 each, always with an expiry."""

from __future__ import annotations

from collections.abc import Mapping

import redis


class AudioBuffer:
    """All sessions' audio in one Redis. Thread-safe. Any verb raises `QueueUnavailable` when Redis is away."""

    def __init__(self, client: redis.Redis, ttl_s: float = 3600.0, *, max_bytes: int = 32_000 * 3600) -> None:
        raise NotImplementedError

    def create(self, session: str, meta: Mapping[str, str]) -> None:
        """Describe a session; its audio starts empty."""
        raise NotImplementedError

    def append(self, session: str, offset: int, data: bytes) -> int:
        """Store ``data`` at byte ``offset`` (one round trip) and renew the expiry; returns the total bytes held.

        The same data at the same offset again changes nothing. Raises `AudioLost` when Redis holds less than
        ``offset`` bytes, ValueError beyond ``max_bytes``.
        """
        raise NotImplementedError

    def read(self, session: str, start: int, end: int) -> bytes:
        """Bytes ``start`` to ``end`` (exclusive). Raises `AudioLost` when fewer are there."""
        raise NotImplementedError

    def delete(self, session: str) -> None:
        """Forget the session's audio and description. Idempotent."""
        raise NotImplementedError
