"""What one stream says to its client: numbered without gaps, with times from the start of the stream."""

from __future__ import annotations

from queueing.job import Delivery
from sessions.assembler import Assembler
from sessions.codes import CODES, ErrorCode
from sessions.finals import DueFinal
from sessions.results import DecodeResult
from sessions.wire import BYTES_PER_SECOND, Done, Error, Final, Partial, Timing, Word

_DIGITS = 4
"""Of all times, to a tenth of a millisecond: rounded differently, a word could lie outside of its final."""


def seconds(byte: int) -> float:
    """The time of a byte position."""
    return round(byte / BYTES_PER_SECOND, _DIGITS)


class Outgoing:
    """Builds the messages of one stream and counts what was said."""

    def __init__(self, *, retry_after_s: float, event_timing: bool) -> None:
        self.words = False
        self.finals = 0
        self._seq = 0
        self._assembler = Assembler()
        self._retry_after_s = retry_after_s
        self._event_timing = event_timing

    def go_on(self, last_seq: int, finals: int) -> None:
        """Take up a stream whose client has everything up to number ``last_seq``, ``finals`` finals of it."""
        self._seq, self.finals = last_seq, finals

    def partial(self, delivery: Delivery) -> Partial:
        """The guess of a finished partial. Raises ValueError when the worker's result is malformed."""
        stable, text = self._assembler.partial(
            DecodeResult.from_dict(delivery.result or {}).text, seconds(delivery.end_byte)
        )
        return Partial(
            seq=self._next(),
            start_s=seconds(delivery.start_byte),
            end_s=seconds(delivery.end_byte),
            stable=stable,
            text=text,
        )

    def next_segment(self) -> None:
        """The segment of the partials so far has ended."""
        self._assembler.reset()

    def final(self, due: DueFinal, result: DecodeResult | None) -> Final:
        """The text of an answered segment; ``result``: what its delivery holds, None for one without a decode."""
        text, words, timing, decoded = "", None, None, None
        if due.delivery is not None and result is not None:
            text = result.text
            decoded = (seconds(due.delivery.start_byte), seconds(due.delivery.end_byte))
            if self.words:
                words = self._words(result, due.delivery)
            if self._event_timing:
                timing = Timing(
                    queue_ms=max(0, round(due.delivery.queue_ms)),
                    decode_ms=max(0, round(due.delivery.decode_ms)),
                    audio_s=due.delivery.audio_s,
                )
        elif self.words:
            words = ()
        message = Final(
            seq=self._next(),
            start_s=seconds(due.covers_from),
            end_s=seconds(due.covers_to),
            text=text,
            last=due.last,
            speech_start_s=decoded[0] if decoded else None,
            speech_end_s=decoded[1] if decoded else None,
            words=words,
            timing=timing,
        )
        self.finals += 1
        return message

    def done(self, audio_bytes: int) -> Done:
        """The end of a complete stream."""
        return Done(audio_s=seconds(audio_bytes), finals=self.finals)

    def error(self, code: ErrorCode, message: str) -> Error:
        """An error; whether it is fatal and has ``retry_after_s`` follows from its code."""
        info = CODES[code]
        return Error(
            code=code.value,
            message=message,
            fatal=info.fatal,
            retry_after_s=self._retry_after_s if info.retry else None,
        )

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    @staticmethod
    def _words(result: DecodeResult, delivery: Delivery) -> tuple[Word, ...]:
        offset = delivery.start_byte / BYTES_PER_SECOND
        end = delivery.end_byte / BYTES_PER_SECOND
        placed = []
        for word in result.words:
            # Whisper's word times may lie a frame outside the audio.
            start_s = min(max(offset + word.start_s, offset), end)
            end_s = min(max(offset + word.end_s, start_s), end)
            placed.append(
                Word(
                    text=word.text,
                    start_s=round(start_s, _DIGITS),
                    end_s=round(end_s, _DIGITS),
                    probability=min(max(word.probability, 0.0), 1.0),
                )
            )
        return tuple(placed)
