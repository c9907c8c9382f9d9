"""From bytes in frames of any length to whole samples, each heard once and stored once."""

from __future__ import annotations

from sessions.wire import BYTES_PER_SAMPLE


class Framer:
    """Joins samples that were split between frames and keeps what is not stored yet.

    Positions are bytes from the start of the stream.
    """

    def __init__(self, start: int = 0) -> None:
        """``start``: the position of what comes first."""
        self._pending = bytearray()
        self._start = start
        self._heard = start
        self._taken = start

    @property
    def received(self) -> int:
        """Bytes of whole samples fed so far."""
        return self._start + len(self._pending) // BYTES_PER_SAMPLE * BYTES_PER_SAMPLE

    @property
    def fed(self) -> int:
        """Bytes fed so far, with half a sample perhaps."""
        return self._start + len(self._pending)

    @property
    def taken(self) -> int:
        """Where the newest piece that was handed on ends."""
        return self._taken

    @property
    def pending(self) -> int:
        """Bytes held here."""
        return len(self._pending)

    def feed(self, data: bytes) -> None:
        """Add bytes; a lone one at the end waits for its other half."""
        self._pending += data

    def hear(self) -> bytes:
        """The whole samples that came since the last call. Call after every `feed`, before `drop` and `take`."""
        received = self.received
        fresh = bytes(self._pending[self._heard - self._start : received - self._start])
        self._heard = received
        return fresh

    def drop(self, before: int) -> None:
        """What lies before this position, and was heard, need not be handed on."""
        end = min(before, self._heard)
        if end > self._start:
            del self._pending[: end - self._start]
            self._start = end

    def take(self) -> tuple[int, bytes] | None:
        """All whole samples that are here, and their offset; None when there are none."""
        whole = self.received - self._start
        if not whole:
            return None
        offset, data = self._start, bytes(self._pending[:whole])
        del self._pending[:whole]
        self._start += whole
        self._taken = self._start
        return offset, data
