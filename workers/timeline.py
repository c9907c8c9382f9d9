"""Where speech is, what of the audio is decoded because of it, and back from its times to those of the audio. Pure.

Silence longer than `LONGEST_SILENCE_S` is left out before the model is asked: it costs time, and the model may fill
it with words that nobody said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from workers.transcriber import SAMPLE_RATE, Word

LONGEST_SILENCE_S = 2.0
"""Silence up to this length is decoded with the speech around it: the model reads pauses as punctuation."""

MARGIN_S = 0.5
"""What is kept around speech where silence is left out; weak onsets and tails are not always judged as speech."""


@dataclass(frozen=True, slots=True)
class Speech:
    """A stretch in which somebody speaks, in seconds."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The stretches of the audio that are decoded, joined in this order; at least one, ascending, apart."""

    kept: tuple[Speech, ...]

    @staticmethod
    def of(speech: Sequence[Speech], audio_s: float) -> Timeline:
        """What to keep of ``audio_s`` seconds with at least one stretch of ``speech``."""
        edges = [0.0, *(edge for stretch in speech for edge in (stretch.start_s, stretch.end_s)), audio_s]
        kept: list[Speech] = []
        start_s = 0.0
        for place, (silent_from, silent_to) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
            if silent_to - silent_from <= LONGEST_SILENCE_S:
                continue
            if place > 0:
                kept.append(Speech(start_s, silent_from + MARGIN_S))
            start_s = silent_to - MARGIN_S
            if place == len(speech):
                return Timeline(tuple(kept))
        return Timeline((*kept, Speech(start_s, audio_s)))

    @property
    def audio_s(self) -> float:
        """Seconds that are decoded."""
        return sum(stretch.end_s - stretch.start_s for stretch in self.kept)

    def measure(self, speech: Sequence[Speech]) -> tuple[float, float]:
        """Seconds of speech, and where the last of it ends in the joined stretches."""
        silent_s = self.kept[-1].end_s - speech[-1].end_s
        return sum(stretch.end_s - stretch.start_s for stretch in speech), self.audio_s - silent_s

    def cut(self, samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The kept samples, joined; the same array when all are kept."""
        if len(self.kept) == 1 and self.kept[0].start_s == 0 and self._place(self.kept[0].end_s) >= len(samples):
            return samples
        return np.concatenate([samples[self._place(one.start_s) : self._place(one.end_s)] for one in self.kept])

    @staticmethod
    def _place(seconds: float) -> int:
        return round(seconds * SAMPLE_RATE)

    def original(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Times in the audio of a span of the joined stretches; it stays within the stretch that its middle is in."""
        middle, before_s = (start_s + end_s) / 2, 0.0
        for stretch in self.kept:
            length_s = stretch.end_s - stretch.start_s
            if middle < before_s + length_s or stretch is self.kept[-1]:
                shift_s = stretch.start_s - before_s
                return (
                    min(max(start_s + shift_s, stretch.start_s), stretch.end_s),
                    min(max(end_s + shift_s, stretch.start_s), stretch.end_s),
                )
            before_s += length_s
        raise ValueError("a timeline keeps at least one stretch")

    def restore(self, words: Sequence[Word]) -> list[Word]:
        """The words with their times in the audio."""
        return [Word(word.text, *self.original(word.start_s, word.end_s), word.probability) for word in words]
