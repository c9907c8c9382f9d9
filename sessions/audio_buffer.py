"""The audio of sessions in Redis: of each the part that is not final yet, as PCM16, always with an expiry.

Positions are bytes from the start of the stream, whatever of it is still held: a job addresses its audio by them, and
it is the session that says what no job will ask for any more.
"""

from __future__ import annotations

from collections.abc import Mapping

import redis

from queueing.scripts import guarded
from sessions.errors import AudioLost
from sessions.keys import SessionKeys
from sessions.scripts import fetch, run
from sessions.wire import BYTES_PER_SECOND

DEFAULT_MAX_BYTES = 300 * BYTES_PER_SECOND
"""Well above what waits for its final at once (`sessions.limits`)."""


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

    def append(self, session: str, offset: int, data: bytes, *, follows: int | None = None, keep_from: int = 0) -> int:
        """Store ``data`` at position ``offset`` (one round trip) and renew the expiry; returns the position up to which
        audio is held.

        ``follows``: where the piece before ended, ``offset`` when None; what lies between was left out. ``keep_from``:
        what lies before will not be read again. The same data at the same offset again changes nothing.
        Raises `AudioLost` when Redis holds less than ``follows`` says and what is missing is needed, ValueError beyond
        ``max_bytes``.
        """
        keys = SessionKeys(session)
        follows = offset if follows is None else follows
        code, held = run(
            self._client,
            "append",
            [keys.audio, keys.meta],
            [offset, follows, keep_from, data, self._ttl_ms, self._max_bytes],
        )
        if code == "LOST":
            raise AudioLost(session, held, follows)
        if code == "FULL":
            raise ValueError(
                f"session {session}: audio up to byte {offset + len(data)}, held up to {held}; at most "
                f"{self._max_bytes} bytes fit: trim what is final"
            )
        return held

    def read(self, session: str, start: int, end: int) -> bytes:
        """Bytes ``start`` to ``end`` (exclusive) of the stream, one round trip. Raises `AudioLost` when not all of
        them are held."""
        if not 0 <= start <= end:
            raise ValueError(f"no byte range: {start} to {end}")
        if start == end:
            return b""
        keys = SessionKeys(session)
        code, data = fetch(self._client, "read", [keys.audio, keys.meta], [start, end])
        if code == "LOST" or len(data) < end - start:
            raise AudioLost(session, start + len(data), end)
        return data

    def trim(self, session: str, before: int) -> int:
        """Forget what lies before this position (one round trip); returns the bytes held afterwards. Idempotent."""
        keys = SessionKeys(session)
        return run(self._client, "trim", [keys.audio, keys.meta], [before, self._ttl_ms])[1]

    def delete(self, session: str) -> None:
        """Forget the session's audio and description. Idempotent."""
        keys = SessionKeys(session)
        with guarded():
            self._client.unlink(keys.audio, keys.meta)
