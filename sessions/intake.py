"""What a client sends as audio, on its way in: recognised, capped, joined to whole samples, cut where speech ends."""

from __future__ import annotations

from sessions.anchor import Anchor
from sessions.effects import AppendAudio
from sessions.endpointing import Endpointer
from sessions.framing import Framer
from sessions.limits import MAX_SEGMENT_S, SessionLimits, in_bytes
from sessions.segments import OpenSegment, Segment
from sessions.sniff import Sniffer

_QUIET_BYTES = in_bytes(1.0)
"""While nobody speaks, the little that a word to come may begin in stays here; this much may collect."""

_NOTED_BYTES = in_bytes(5.0)
"""Of a stream that may be resumed, silence stays here since the anchor, which is noted as soon as there is a new one,
so that nobody need send the silence before it again. This is not reached by silence alone."""


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
        self._noted: Anchor | None = None
        self.resumable = False
        """Whether the stream may be resumed: where it can be heard anew is noted, and the audio since then is kept."""
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
        return None if self._endpointer is None else self._endpointer.open

    @property
    def keep_from(self) -> int:
        """What lies before is part of no segment to come, nor needed by another connection."""
        if self._endpointer is None:
            return 0
        keep_from = self._endpointer.keep_from
        return min(keep_from, self._endpointer.anchor.hear_from) if self.resumable else keep_from

    @property
    def unnoted(self) -> Anchor | None:
        """The newest anchor, unless `note_anchor` was called for it."""
        anchor = None if self._endpointer is None or not self.resumable else self._endpointer.anchor
        return None if anchor is self._noted else anchor

    def note_anchor(self) -> Anchor | None:
        """`unnoted`, which goes to the buffer with everything heard so far, or after it."""
        anchor = self.unnoted
        self._noted = anchor or self._noted
        return anchor

    def go_on(self, position: int, anchor: Anchor, covered: int, audio: bytes) -> list[Segment]:
        """Take up a stream of which everything before ``position`` was accepted, and the ``audio`` from the anchor on
        is stored: it is heard once more. The segments that ended in it after ``covered``. Call once, first."""
        self.raw = position
        self._framer = Framer(position)
        if position:
            self._sniffer = Sniffer.recognised()
        self._noted = anchor
        self._endpointer = Endpointer.anchored(self.endpoint_s, anchor, covered, MAX_SEGMENT_S)
        return self._endpointer.feed(audio)

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
        segments = self._endpointer.feed(samples)
        self._framer.drop(min([self.keep_from, *(segment.start_byte for segment in segments)]))
        return segments

    def finish(self) -> Segment | None:
        """End the open segment here; None when nothing was said since the last one. After `hear`."""
        return None if self._endpointer is None else self._endpointer.finish()

    def worth_storing(self) -> bool:
        """Whether enough is in memory for a round trip to the buffer."""
        if self.open is not None:
            return self._framer.pending >= self._coalesce
        return self.unnoted is not None or self._framer.pending >= (_NOTED_BYTES if self.resumable else _QUIET_BYTES)

    def store(self, keep_from: int) -> list[AppendAudio]:
        """All that is not stored yet. ``keep_from``: what no job needs any more."""
        follows = self.stored
        piece = self._framer.take()
        return [] if piece is None else [AppendAudio(*piece, follows=follows, keep_from=keep_from)]

    def _accept(self, samples: bytes) -> bool:
        room = len(samples) if self._cap is None else self._cap - self._framer.fed
        self._framer.feed(samples[:room])
        return len(samples) > room
