"""What the model wrote, read back from its tokens. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TIME_STEP_S = 0.02
"""Seconds from one of Whisper's timestamp tokens to the next."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Text tokens between two timestamps, in seconds from the start of what was decoded."""

    start_s: float
    end_s: float
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One search's answer for one piece of audio.

    ``goes_on_at_s``: the model opened a segment there and wrote nothing into it, so what follows is still to be
    decoded; None when it came to the end. ``capped``: the search ran into its limit of tokens.
    """

    segments: tuple[Segment, ...]
    text: str
    average_log_probability: float
    no_speech_probability: float
    goes_on_at_s: float | None = None
    capped: bool = False


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The token ids from which the special ones begin: ``end`` closes the text, times start at ``first_time``."""

    end: int
    first_time: int


def read_tokens(
    tokens: Sequence[int], vocabulary: Vocabulary, audio_s: float
) -> tuple[tuple[Segment, ...], float | None]:
    """(segments, where it goes on) of a token sequence as Whisper writes it: ``<|0.00|> text
    <|3.20|><|3.20|> text <|5.00|>``. Text that no timestamp closes ends with the audio."""
    segments: list[Segment] = []
    opened: float | None = None
    text: list[int] = []
    for token in tokens:
        if token < vocabulary.end:
            text.append(token)
        elif token >= vocabulary.first_time:
            time_s = round((token - vocabulary.first_time) * TIME_STEP_S, 2)
            if text:
                segments.append(_segment(opened, segments, time_s, text))
                opened, text = None, []
            else:
                opened = time_s
    if text:
        segments.append(_segment(opened, segments, audio_s, text))
        return tuple(segments), None
    return tuple(segments), opened if segments else None


def _segment(opened: float | None, before: Sequence[Segment], end_s: float, text: Sequence[int]) -> Segment:
    start_s = opened if opened is not None else (before[-1].end_s if before else 0.0)
    return Segment(start_s, max(start_s, end_s), tuple(text))
