"""What happened in one stream: counts, latencies, and whether the server kept its promises.

Times are seconds of one monotonic clock in this process; docs/measurements.md defines every figure. Memory is
bounded: finals are kept, partials only counted (and a number for each).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from loadgen.clips import BYTES_PER_SECOND
from sessions.wire import Done, Error, Final, Partial, Ready, ServerMessage

TIME_TOLERANCE_S = 0.002
"""Times on the wire may be rounded to milliseconds."""


@dataclass
class Recorder:
    """Fed by the sender (`sent`, `ended`) and by the receiver (`received`), each from one thread."""

    started_at: float = 0.0
    """When the schedule of the audio begins (`loadgen.pacing.Pace.start`)."""
    speed: float = 1.0
    first_sent_at: float | None = None
    last_sent_at: float | None = None
    ended_at: float | None = None
    first_partial_at: float | None = None
    first_text_at: float | None = None
    last_final_at: float | None = None
    done_at: float | None = None
    sent_bytes: int = 0
    again_bytes: int = 0
    """Sent once more after a connection was lost; not part of ``sent_bytes``."""
    gaps_s: list[float] = field(default_factory=list)
    """For every time that the stream came back: from the loss of its connection, as seen here, to the `ready` after."""
    max_lag_s: float = 0.0
    """How late the sender ever was; above some tens of ms the load generator, not the service, was the bottleneck."""
    session: str = ""
    partials: int = 0
    partial_ages_s: list[float] = field(default_factory=list)
    segment_latencies_s: list[float] = field(default_factory=list)
    """For every final but the last: from the end of the audio that was decoded for it, by the schedule, to it."""
    finals: list[Final] = field(default_factory=list)
    errors: list[Error] = field(default_factory=list)
    done: Done | None = None
    close_code: int | None = None
    """The server's close code after `done`; None when it left the closing to the client."""
    faults: list[str] = field(default_factory=list)
    """Broken promises: gaps in seq, finals twice or out of order, stable text that changed, messages after
    the end."""
    _seq: int = 0
    _final_end_s: float = 0.0
    _stable: tuple[float, str] = (0.0, "")
    """Where the segment of the newest partial starts, and its stable text."""
    _lost_at: float | None = None

    def begin(self, at: float, speed: float) -> None:
        """The stream is open; its audio is scheduled from ``at`` on."""
        self.started_at = at
        self.speed = speed

    def sent(self, at: float, size: int, lag_s: float = 0.0, again: int = 0) -> None:
        """A frame with ``size`` new bytes was handed to the socket, ``lag_s`` after it was due.

        ``again``: bytes in it that an earlier connection was given already.
        """
        self.again_bytes += again
        if again and not size:
            return
        self.first_sent_at = at if self.first_sent_at is None else self.first_sent_at
        self.last_sent_at = at
        self.sent_bytes += size
        self.max_lag_s = max(self.max_lag_s, lag_s)

    def ended(self, at: float) -> None:
        """``end`` was sent."""
        self.ended_at = at

    def lost(self, at: float) -> None:
        """The connection of a stream that can come back was lost."""
        self._lost_at = at

    def received(self, at: float, message: ServerMessage) -> None:
        """A message of the server arrived (none twice, and no `ack`)."""
        if self.done is not None:
            self.faults.append(f"a {message.type} after done")
        match message:
            case Ready():
                self._ready(at, message)
            case Partial():
                self._count(message.seq)
                self._partial(at, message)
            case Final():
                self._count(message.seq)
                self._final(at, message)
            case Done():
                self.done = message
                self.done_at = at
                if message.finals != len(self.finals):
                    self.faults.append(f"done counts {message.finals} finals, {len(self.finals)} came")
            case Error():
                self.errors.append(message)

    def _ready(self, at: float, message: Ready) -> None:
        if self._lost_at is not None:
            self.gaps_s.append(at - self._lost_at)
            self._lost_at = None
            self._stable = (0.0, "")  # the words of a segment may be guessed anew
        elif self.session:
            self.faults.append("ready twice")
        self.session = message.session

    def _count(self, seq: int) -> None:
        if seq != self._seq + 1:
            self.faults.append(f"seq {seq} after {self._seq}")
        self._seq = seq

    def _partial(self, at: float, message: Partial) -> None:
        self.partials += 1
        self.first_partial_at = at if self.first_partial_at is None else self.first_partial_at
        self._text(at, message.text)
        if self.speed > 0:
            self.partial_ages_s.append(at - self._recorded_at(message.end_s))
        if message.start_s < self._final_end_s - TIME_TOLERANCE_S:
            self.faults.append(f"a partial of {message.start_s:.3f} s, which is final up to {self._final_end_s:.3f} s")
        if self.finals and self.finals[-1].last:
            self.faults.append("a partial after the last final")
        start_s, stable = self._stable
        if not message.text.startswith(message.stable):
            self.faults.append(f"a partial that does not begin with its stable text {message.stable!r}")
        elif start_s == message.start_s and not message.stable.startswith(stable):
            self.faults.append(f"the stable text {stable!r} became {message.stable!r}")
        self._stable = (message.start_s, message.stable)

    def _text(self, at: float, text: str) -> None:
        if self.first_text_at is None and text.strip():
            self.first_text_at = at

    def _recorded_at(self, position_s: float) -> float:
        """When a sample of the stream was recorded, by the schedule; not for speed 0."""
        return self.started_at + position_s / self.speed

    def _final(self, at: float, message: Final) -> None:
        if self.finals and self.finals[-1].last:
            self.faults.append("a final after the last one")
        if abs(message.start_s - self._final_end_s) > TIME_TOLERANCE_S:
            self.faults.append(f"a final from {message.start_s:.3f} s after one up to {self._final_end_s:.3f} s")
        self._text(at, message.text)
        if not message.last and message.speech_end_s is not None and self.speed > 0:
            self.segment_latencies_s.append(at - self._recorded_at(message.speech_end_s))
        self._final_end_s = message.end_s
        self.finals.append(message)
        self.last_final_at = at

    @property
    def text(self) -> str:
        """All finals as one text."""
        return " ".join(final.text.strip() for final in self.finals if final.text.strip())

    @property
    def resumes(self) -> int:
        """How often the stream lost its connection and came back."""
        return len(self.gaps_s)

    @property
    def audio_s(self) -> float:
        """Seconds of audio sent."""
        return self.sent_bytes / BYTES_PER_SECOND

    @property
    def complete(self) -> bool:
        """Whether the last final and `done` arrived and the finals cover all that was sent."""
        return self.done is not None and bool(self.finals) and self.finals[-1].last and not self.missing_s

    @property
    def missing_s(self) -> float:
        """Seconds of sent audio that no final covers (an odd last byte does not count)."""
        missing = self.audio_s - self._final_end_s
        return missing if missing > TIME_TOLERANCE_S else 0.0

    @property
    def final_latency_s(self) -> float | None:
        """From the last byte of audio sent to the last final received; None while either is missing."""
        if not self.finals or not self.finals[-1].last or self.last_final_at is None or self.last_sent_at is None:
            return None
        return self.last_final_at - self.last_sent_at

    @property
    def first_partial_s(self) -> float | None:
        """From the start of the audio to the first partial received."""
        return None if self.first_partial_at is None else self.first_partial_at - self.started_at

    @property
    def first_text_s(self) -> float | None:
        """From the first audio sent to the first partial or final that has text."""
        if self.first_text_at is None or self.first_sent_at is None:
            return None
        return self.first_text_at - self.first_sent_at

    def timings_ms(self, name: str) -> list[int]:
        """``queue_ms`` or ``decode_ms`` of every final that carries timing."""
        return [int(getattr(final.timing, name)) for final in self.finals if final.timing is not None]
