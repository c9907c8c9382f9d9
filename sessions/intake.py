"""What a client sends as audio, on its way in: recognised, capped, joined to whole samples, cut where speech ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sessions.effects import AppendAudio
from sessions.endpointing import FRAME_BYTES, Endpointer, OpenSegment, Segment
from sessions.framing import Framer
from sessions.limits import MAX_SEGMENT_S, SessionLimits, in_bytes
from sessions.sniff import Sniffer
from sessions.voice import FRAME_SAMPLES, EarshotDetector

_QUIET_BYTES = in_bytes(1.0)
"""While nobody speaks, the little that a word to come may begin in stays here; this much may collect."""

_NOTED_BYTES = in_bytes(3.0)
"""Of a stream that may be resumed, where silence ends is noted this often, so that nobody need send it again."""


class Intake:
    """Accepts at most ``max_audio_s`` of samples; positions are bytes of accepted PCM16.

    Segments depend on nothing but the accepted samples and where `finish` was called among them.
    """

    def __init__(self, limits: SessionLimits) -> None:
        self._cap = None if limits.max_audio_s is None else in_bytes(limits.max_audio_s)
        self._sniffer = Sniffer()
        self._coalesce = in_bytes(limits.coalesce_s)
        self._framer = Framer()
        self._endpointer: Endpointer | None = None
        self._origin = 0
        """Where the endpointer began to hear; its positions count from there."""
        self.noted = False
        """Whether silence is noted in the buffer too."""
        self.endpoint_s = limits.endpoint_s
        """The pause that ends a segment, None: none does. May be set until the first samples are accepted."""
        self.raw = 0
        """Bytes that came in binary messages."""

    @property
    def accepted(self) -> int:
        """Bytes of whole samples accepted."""
        return self._framer.received

    @property
    def stored(self) -> int:
        """Where the newest piece that was handed on to the buffer ends."""
        return self._framer.taken

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self._framer.pending + self._sniffer.held

    @property
    def open(self) -> OpenSegment | None:
        """The segment being spoken; None while nobody speaks."""
        spoken = None if self._endpointer is None else self._endpointer.open
        if spoken is None or not self._origin:
            return spoken
        return OpenSegment(spoken.start_byte + self._origin, spoken.speech_s)

    @property
    def keep_from(self) -> int:
        """What lies before is part of no segment to come."""
        return self._origin + (0 if self._endpointer is None else self._endpointer.keep_from)

    def go_on(self, position: int, origin: int, audio: bytes) -> list[Segment]:
        """Take up a stream of which everything before ``position`` was accepted, and the ``audio`` from ``origin`` on
        is stored and part of no final yet: it is heard once more. The segments that ended in it. Call once, first."""
        self.raw = position
        self._framer = Framer(position)
        if position:
            self._sniffer = Sniffer.recognised()
        self._origin = origin
        if not audio:
            return []
        whole = np.frombuffer(audio[: len(audio) // FRAME_BYTES * FRAME_BYTES], dtype="<i2")
        # What it sounds like decides how loud speech is: without that, quiet speech would not be heard again.
        level = EarshotDetector()
        if whole.size:
            level.listen(whole.reshape(-1, FRAME_SAMPLES))
        self._endpointer = Endpointer(self.endpoint_s, MAX_SEGMENT_S, EarshotDetector(level.level))
        return self._placed(self._endpointer.feed(audio))

    def take(self, data: bytes) -> bool:
        """Take the bytes of a message; True when some were beyond the cap and are discarded. Raises `WrongAudio`."""
        self.raw += len(data)
        return self._accept(self._sniffer.feed(data))

    def settle(self, *, end: bool) -> bool:
        """A final is asked for (``end``: the last one): accept what is still being recognised. As `take`."""
        return self._accept(self._sniffer.end() if end else self._sniffer.flush())

    def hear(self) -> list[Segment]:
        """The segments that ended in what was accepted since the last call. Silence before them is not stored."""
        samples = self._framer.hear()
        if not samples:
            return []
        if self._endpointer is None:
            self._endpointer = Endpointer(self.endpoint_s, MAX_SEGMENT_S)
        segments = self._placed(self._endpointer.feed(samples))
        self._framer.drop(segments[0].start_byte if segments else self.keep_from)
        return segments

    def finish(self) -> Segment | None:
        """End the open segment here; None when nothing was said since the last one. After `hear`."""
        part = None if self._endpointer is None else self._endpointer.finish()
        return part if part is None else self._placed([part])[0]

    def worth_storing(self) -> bool:
        """Whether enough is in memory for a round trip to the buffer."""
        if self._framer.pending >= (self._coalesce if self.open is not None else _QUIET_BYTES):
            return True
        return self.noted and self.accepted - self.stored >= _NOTED_BYTES

    def store(self, keep_from: int) -> list[AppendAudio]:
        """All that is not stored yet. ``keep_from``: what no job needs any more."""
        follows = self.stored
        piece = self._framer.take()
        return [] if piece is None else [AppendAudio(*piece, follows=follows, keep_from=keep_from)]

    def _placed(self, segments: list[Segment]) -> list[Segment]:
        by = self._origin
        if not by:
            return segments
        return [
            replace(
                part,
                covers_from=part.covers_from + by,
                covers_to=part.covers_to + by,
                start_byte=part.start_byte + by,
                end_byte=part.end_byte + by,
            )
            for part in segments
        ]

    def _accept(self, samples: bytes) -> bool:
        room = len(samples) if self._cap is None else self._cap - self._framer.fed
        self._framer.feed(samples[:room])
        return len(samples) > room
