"""From bytes in frames of any length to whole samples in pieces worth a round trip."""

from __future__ import annotations

from sessions.wire import BYTES_PER_SAMPLE


class Framer:
    """Joins samples that were split between frames and collects about ``coalesce_bytes`` before handing on."""

    def __init__(self, coalesce_bytes: int) -> None:
        self._coalesce_bytes = coalesce_bytes
        self._pending = bytearray()
        self._taken = 0

    @property
    def received(self) -> int:
        """Bytes of whole samples fed so far."""
        return self._taken + len(self._pending) // BYTES_PER_SAMPLE * BYTES_PER_SAMPLE

    @property
    def fed(self) -> int:
        """Bytes fed so far, with half a sample perhaps."""
        return self._taken + len(self._pending)

    @property
    def taken(self) -> int:
        """Bytes handed on: the offset of the next piece."""
        return self._taken

    @property
    def pending(self) -> int:
        """Bytes held here."""
        return len(self._pending)

    def feed(self, data: bytes) -> None:
        """Add bytes; a lone one at the end waits for its other half."""
        self._pending += data

    def take(self, *, everything: bool = False) -> tuple[int, bytes] | None:
        """The next piece and its offset, when enough is there (``everything``: when anything is there)."""
        whole = len(self._pending) // BYTES_PER_SAMPLE * BYTES_PER_SAMPLE
        if whole == 0 or (whole < self._coalesce_bytes and not everything):
            return None
        offset, data = self._taken, bytes(self._pending[:whole])
        del self._pending[:whole]
        self._taken += whole
        return offset, data
