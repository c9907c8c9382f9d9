"""Audio that the server has not acknowledged yet: what a client must be able to send again."""

from __future__ import annotations


class Backlog:
    """The bytes from ``start`` (all before is acknowledged) to ``end``; at most ``capacity`` of them.

    Positions are bytes from the start of the stream. Not thread-safe.
    """

    def __init__(self, capacity: int) -> None:
        if capacity <= 0:
            raise ValueError(f"a backlog of {capacity} bytes holds nothing; give a positive number")
        self._capacity = capacity
        self._held = bytearray()
        self.start = 0

    @property
    def end(self) -> int:
        """Where the newest byte ends."""
        return self.start + len(self._held)

    @property
    def room(self) -> int:
        """How many bytes may be added."""
        return self._capacity - len(self._held)

    def append(self, data: bytes | memoryview) -> None:
        """Add bytes. Raises ValueError for more than there is room for: nothing is ever dropped to make room."""
        if len(data) > self.room:
            raise ValueError(f"{len(data)} bytes do not fit: {len(self._held)} of {self._capacity} are held")
        self._held += data

    def acknowledge(self, position: int) -> None:
        """Let go of what lies before ``position``; one that was acknowledged before changes nothing."""
        if position > self.end:
            raise ValueError(f"position {position} is beyond the newest byte, {self.end}")
        if position > self.start:
            del self._held[: position - self.start]
            self.start = position

    def piece(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``position`` on. Raises ValueError for a position whose bytes are gone."""
        if not self.start <= position <= self.end:
            raise ValueError(f"position {position} is not among the bytes held, {self.start} to {self.end}")
        first = position - self.start
        return bytes(self._held[first : first + size])
