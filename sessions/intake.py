"""What a client sends as audio, on its way to the buffer: recognised, capped, joined to whole samples."""

from __future__ import annotations

from sessions.effects import AppendAudio
from sessions.framing import Framer
from sessions.limits import SessionLimits, in_bytes
from sessions.sniff import Sniffer


class Intake:
    """Accepts at most ``max_audio_s`` of samples; positions are bytes of accepted PCM16."""

    def __init__(self, limits: SessionLimits) -> None:
        self._cap = in_bytes(limits.max_audio_s)
        self._sniffer = Sniffer()
        self._framer = Framer(in_bytes(limits.coalesce_s))
        self.raw = 0
        """Bytes that came in binary messages."""

    @property
    def accepted(self) -> int:
        """Bytes of whole samples accepted."""
        return self._framer.received

    @property
    def stored(self) -> int:
        """Bytes that were handed on to the buffer."""
        return self._framer.taken

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self._framer.pending + self._sniffer.held

    def take(self, data: bytes) -> bool:
        """Take the bytes of a message; True when some were beyond the cap and are discarded. Raises `WrongAudio`."""
        self.raw += len(data)
        return self._accept(self._sniffer.feed(data))

    def settle(self, *, end: bool) -> bool:
        """A final is asked for (``end``: the last one): accept what is still being recognised. As `take`."""
        return self._accept(self._sniffer.end() if end else self._sniffer.flush())

    def pieces(self, *, everything: bool = False) -> list[AppendAudio]:
        """What is worth appending now; ``everything``: all whole samples."""
        piece = self._framer.take(everything=everything)
        return [] if piece is None else [AppendAudio(*piece)]

    def _accept(self, samples: bytes) -> bool:
        room = self._cap - self._framer.fed
        self._framer.feed(samples[:room])
        return len(samples) > room
