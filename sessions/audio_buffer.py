"""The audio of sessions in Redis: of each the part that is not final yet, as PCM16, always with an expiry; and beside
it the session's description, which is all that another front end needs to go on with it.

Positions are bytes from the start of the stream, whatever of it is still held: a job addresses its audio by them, and
it is the session that says what no job will ask for any more.

``epoch`` counts the connections of a session from 1. Who writes names its own: what comes of an older one than the
newest is refused (`TakenOver`) and changes nothing. 0 is a session that is never resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import redis

from queueing.scripts import guarded
from sessions.errors import AudioLost, ResumeRefused, TakenOver
from sessions.keys import SessionKeys
from sessions.ledger import StoredSession
from sessions.scripts import as_text, ask, fetch, run
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

    def create(self, session: str, meta: Mapping[str, str], *, epoch: int = 0) -> None:
        """Describe a session (one round trip); describing it again replaces fields and leaves its audio alone."""
        self.remember(session, meta, epoch=epoch)

    def append(
        self,
        session: str,
        offset: int,
        data: bytes,
        *,
        follows: int | None = None,
        keep_from: int = 0,
        epoch: int = 0,
        fields: Mapping[str, str] | None = None,
    ) -> int:
        """Store ``data`` at position ``offset`` (one round trip) and renew the expiry; returns the position up to which
        audio is held.

        ``follows``: where the piece before ended, ``offset`` when None; what lies between was left out. ``keep_from``:
        what lies before will not be read again. ``fields`` are noted with it, both or neither. The same data at the
        same offset again changes nothing. Raises `AudioLost` when Redis holds less than ``follows`` says and what is
        missing is needed, `TakenOver`, ValueError beyond ``max_bytes``.
        """
        keys = SessionKeys(session)
        follows = offset if follows is None else follows
        code, held = run(
            self._client,
            "append",
            [keys.audio, keys.meta],
            [offset, follows, keep_from, data, self._ttl_ms, self._max_bytes, epoch, *_flat(fields)],
        )
        if code == "LOST":
            raise AudioLost(session, held, follows)
        if code == "TAKEN":
            raise TakenOver(session)
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

    def remember(
        self,
        session: str,
        fields: Mapping[str, str],
        gone: Sequence[str] = (),
        *,
        before: int = 0,
        epoch: int = 0,
    ) -> int:
        """Note ``fields`` of the session's description, forget those ``gone``, and the audio before ``before``, all in
        one round trip and all or nothing; returns the bytes of audio held afterwards. Idempotent. Raises `TakenOver`.
        """
        keys = SessionKeys(session)
        code, held = run(
            self._client,
            "remember",
            [keys.audio, keys.meta],
            [before, self._ttl_ms, epoch, len(gone), *gone, *_flat(fields)],
        )
        if code == "TAKEN":
            raise TakenOver(session)
        return held

    def trim(self, session: str, before: int, *, epoch: int = 0) -> int:
        """Forget what lies before this position (one round trip); returns the bytes held afterwards. Idempotent.
        Raises `TakenOver`."""
        return self.remember(session, {}, before=before, epoch=epoch)

    def take_up(self, session: str, token: str, fresh: str, *, label: str, front: str) -> StoredSession:
        """The session's client is back (one round trip): its description, with the new epoch; no older connection
        writes from now on. ``token``, ``fresh``: digests of the token it has and of the one it gets. ``label``: of its
        API key. ``front``: the new one; the description has the old. Raises `ResumeRefused`."""
        keys = SessionKeys(session)
        code, answer = ask(self._client, "take_up", [keys.audio, keys.meta], [token, fresh, label, front, self._ttl_ms])
        if code == "REFUSED":
            raise ResumeRefused
        held, flat = answer
        texts = [as_text(part) for part in flat]
        return StoredSession(session, dict(zip(texts[::2], texts[1::2], strict=True)), int(held))

    def epoch(self, session: str) -> int:
        """Which connection has the session; 0 where nothing is known of it."""
        with guarded():
            return int(self._client.hget(SessionKeys(session).meta, "epoch") or 0)

    def delete(self, session: str, *, epoch: int = -1) -> None:
        """Forget the session's audio and description. Idempotent. Raises `TakenOver` when a connection newer than
        ``epoch`` has it; -1: whichever has."""
        keys = SessionKeys(session)
        code, _ = run(self._client, "forget", [keys.audio, keys.meta], [epoch])
        if code == "TAKEN":
            raise TakenOver(session)


def _flat(fields: Mapping[str, str] | None) -> list[str]:
    return [part for field in (fields or {}).items() for part in field]
