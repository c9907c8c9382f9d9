"""What is done about a suspicious decode, and about one that stopped too early. Everything is counted.

Suspicious text is decoded once more in the full window. Finals whose text still looks like a loop then get one search
in which sequences of tokens may not come twice: deterministic and no dearer than the first, where sampling at rising
temperatures can take many times as long and gives another text each time. What is likelier stays, so that a speaker
who really repeats himself is heard. Partials are never searched a third time, nor decoded again for being improbable
alone: many are, since they are cut off in the middle of a word, and the next one comes anyway.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workers.decoding import Decoder, Piece
from workers.encoder import FULL_WINDOW_S, Sizing, window_for
from workers.hypothesis import Hypothesis
from workers.plausible import LOOPS, Cause, begins_as_it_ended, repeats_a_phrase, suspicions
from workers.transcriber import SAMPLE_RATE

MOST_CONTINUATIONS = 3
"""How often a decode that stopped before the end of the speech is taken up again."""

REST_S = 1.0
"""Less audio than this behind the last timestamp is not taken up again: timestamps are off by so much."""

UNHEARD_S = 0.3
"""Speech behind the last timestamp that is too short to be taken up again but long enough for a word."""

NO_REPEAT = 5
"""The bounded search forbids sequences of five tokens to come twice."""

FULL_WINDOW = "full_window"
BOUNDED_SEARCH = "bounded_search"
CONTINUED = "continued"


@dataclass(slots=True, eq=False)
class Part:
    """A decoded piece and where it begins in what is decoded of its request, in seconds."""

    start_s: float
    piece: Piece


class SecondLook:
    """Decodes again what needs it. ``counters`` is where kinds and causes are counted."""

    def __init__(self, decoder: Decoder, counters: Counter[str]) -> None:
        self._decoder = decoder
        self._counters = counters

    def complete(
        self, piece: Piece, sizing: Sizing | None, speech_s: float, speech_to_s: float, *, partial: bool
    ) -> list[Part]:
        """The parts of a piece that was decoded once in the window of its ``sizing``: checked, and gone on with where
        the model stopped before the end. ``speech_s``: seconds of speech in it, the last at ``speech_to_s``; 0 where
        nobody measured."""
        self._check(piece, window_for(piece.audio_s, sizing), speech_s, speech_to_s, partial=partial)
        parts = [Part(0.0, piece)]
        while len(parts) <= MOST_CONTINUATIONS and (rest_s := _rest(parts[-1].piece)) is not None:
            last = parts[-1]
            self._counters[CONTINUED] += 1
            piece = self._decoder.piece(last.piece.samples[round(rest_s * SAMPLE_RATE) :], last.piece.manner)
            piece.language = last.piece.language
            window_s = window_for(piece.audio_s, sizing)
            self._decoder.decode([piece], [window_s], sizing.silence_s if sizing else 0.0)
            self._check(piece, window_s, 0.0, max(0.0, speech_to_s - last.start_s - rest_s), partial=partial)
            parts.append(Part(last.start_s + rest_s, piece))
        return self._whole(parts, speech_s) if sizing and _overlap(parts) else parts

    def _whole(self, parts: list[Part], speech_s: float) -> list[Part]:
        """What was gone on with too early is heard twice: the first piece in the full window if that tells all of it
        once, else the parts as they are."""
        piece = parts[0].piece
        self._counters[f"suspicious_{Cause.REPEATED_PHRASE}"] += 1
        self._counters[FULL_WINDOW] += 1
        first, states = piece.found, piece.states
        self._decoder.decode([piece], [FULL_WINDOW_S])
        second, causes = self._judge(piece, speech_s, 0.0)
        if second.goes_on_at_s is None and not causes & LOOPS:
            return parts[:1]
        piece.hypothesis, piece.states = first, states
        return parts

    def _check(self, piece: Piece, window_s: int, speech_s: float, speech_to_s: float, *, partial: bool) -> None:
        first, causes = self._judge(piece, speech_s, speech_to_s)
        if partial:
            causes &= LOOPS
        if not causes:
            return
        for cause in causes:
            self._counters[f"suspicious_{cause}"] += 1
        if window_s < FULL_WINDOW_S:
            self._counters[FULL_WINDOW] += 1
            states = piece.states
            self._decoder.decode([piece], [FULL_WINDOW_S])
            second, causes_then = self._judge(piece, speech_s, speech_to_s)
            if _rank(causes_then, second) > _rank(causes, first):
                piece.hypothesis, piece.states = first, states
            else:
                first, causes = second, causes_then
        if partial or not causes & LOOPS:
            return
        self._counters[BOUNDED_SEARCH] += 1
        self._decoder.search([piece], no_repeat=NO_REPEAT)
        third, _ = self._judge(piece, speech_s, speech_to_s)
        if third.average_log_probability <= first.average_log_probability:
            piece.hypothesis = first

    @staticmethod
    def _judge(piece: Piece, speech_s: float, speech_to_s: float) -> tuple[Hypothesis, frozenset[Cause]]:
        found = piece.found
        causes = suspicions(found, piece.audio_s, speech_s)
        if found.goes_on_at_s is not None and _rest(piece) is None and speech_to_s - found.goes_on_at_s >= UNHEARD_S:
            causes |= {Cause.UNHEARD_END}
        return found, causes


def _rank(causes: frozenset[Cause], found: Hypothesis) -> tuple[int, int, float]:
    """Less is better: signs of a loop, then any, then improbability."""
    return len(causes & LOOPS), len(causes), -found.average_log_probability


def _overlap(parts: Sequence[Part]) -> bool:
    """Whether a word stands at the end of a part and again at the beginning of the next, or the parts together repeat a
    phrase that none of them repeats by itself."""
    texts = [part.piece.found.text for part in parts]
    if any(begins_as_it_ended(before, after) for before, after in pairwise(texts)):
        return True
    return repeats_a_phrase(" ".join(texts)) and not any(map(repeats_a_phrase, texts))


def _rest(piece: Piece) -> float | None:
    """Where to go on, in seconds of the piece; None where the model came to the end or did not get anywhere."""
    goes_on_at_s = piece.found.goes_on_at_s
    if goes_on_at_s is None or not REST_S <= goes_on_at_s <= piece.audio_s - REST_S:
        return None
    return goes_on_at_s
