"""When was each word said? Cross-attention alignment, read as faster-whisper reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import ctranslate2
import numpy as np
from faster_whisper.tokenizer import Tokenizer
from faster_whisper.transcribe import merge_punctuations

from workers.encoder import FRAMES_PER_S, STATES_PER_S
from workers.hypothesis import Segment
from workers.transcriber import Word

OPENING = "\"'“¿([{-"
CLOSING = "\"'.。,，!！?？:：”)]}、"
"""Signs that belong to the word behind or before them (faster-whisper's defaults)."""

MOST_MEDIAN_S = 0.7
"""The median duration of a word is taken for no longer than this (faster-whisper)."""
SENTENCE_ENDS = ".。!！?？"


@dataclass(slots=True)
class _Timed:
    text: str
    start_s: float
    end_s: float
    probability: float
    tokens: int


def time_words(
    model: ctranslate2.models.Whisper,
    states: ctranslate2.StorageView,
    segments: Sequence[Segment],
    tokenizer: Tokenizer,
    audio_s: float,
) -> list[list[Word]]:
    """The words of each segment, in seconds from the start of the ``states`` (of one piece of audio)."""
    tokens = [token for segment in segments for token in segment.tokens]
    if not tokens:
        return [[] for _ in segments]
    timed = _align(model, states, tokens, tokenizer, audio_s)
    longest_s = _longest(timed)
    _shorten_at_sentence_ends(timed, longest_s)
    found, place, reached = [], 0, 0
    for segment in segments:
        end = reached + len(segment.tokens)
        mine = []
        while place < len(timed) and reached < end:
            reached += timed[place].tokens
            mine.append(timed[place])
            place += 1
        _stay_in_segment(mine, segment, longest_s)
        found.append(_merge(mine))
    return found


def _align(
    model: ctranslate2.models.Whisper,
    states: ctranslate2.StorageView,
    tokens: list[int],
    tokenizer: Tokenizer,
    audio_s: float,
) -> list[_Timed]:
    frames = max(2, int(audio_s * FRAMES_PER_S))
    (result,) = model.align(states, list(tokenizer.sot_sequence), [tokens], frames, median_filter_width=7)
    texts, parts = tokenizer.split_to_word_tokens([*tokens, tokenizer.eot])
    if len(parts) <= 1 or not result.alignments:
        return []
    written = np.array([pair[0] for pair in result.alignments])
    heard = np.array([pair[1] for pair in result.alignments])
    jumps = heard[np.pad(np.diff(written), (1, 0), constant_values=1).astype(bool)] / STATES_PER_S
    edges = np.pad(np.cumsum([len(part) for part in parts[:-1]]), (1, 0))
    return [
        _Timed(
            text,
            float(jumps[first]),
            float(jumps[last]),
            float(np.mean(result.text_token_probs[first:last])),
            int(last - first),
        )
        for text, first, last in zip(texts, edges[:-1], edges[1:], strict=False)
    ]


def _longest(timed: Sequence[_Timed]) -> float:
    durations = np.array([word.end_s - word.start_s for word in timed])
    durations = durations[durations.nonzero()]
    return 2 * min(MOST_MEDIAN_S, float(np.median(durations))) if len(durations) else 0.0


def _shorten_at_sentence_ends(timed: Sequence[_Timed], longest_s: float) -> None:
    """The pause at a sentence's end belongs to no word."""
    for before, word in pairwise(timed):
        if word.end_s - word.start_s > longest_s:
            if word.text in SENTENCE_ENDS:
                word.end_s = word.start_s + longest_s
            elif before.text in SENTENCE_ENDS:
                word.start_s = word.end_s - longest_s


def _stay_in_segment(mine: Sequence[_Timed], segment: Segment, longest_s: float) -> None:
    """A first or last word that takes a pause with it is held to the segment's own times."""
    if not mine:
        return
    first, last = mine[0], mine[-1]
    if first.end_s - first.start_s > longest_s:
        first.start_s = max(first.start_s, first.end_s - longest_s, min(segment.start_s, first.end_s))
    if last.end_s - last.start_s > longest_s and segment.end_s > last.start_s:
        last.end_s = min(last.end_s, max(segment.end_s, last.start_s + longest_s / 2))


def _merge(mine: Sequence[_Timed]) -> list[Word]:
    alignment: list[dict[str, Any]] = [
        {"word": word.text, "tokens": [], "start": word.start_s, "end": word.end_s, "probability": word.probability}
        for word in mine
    ]
    merge_punctuations(alignment, OPENING, CLOSING)
    return [
        Word(str(one["word"]).strip(), float(one["start"]), float(one["end"]), float(one["probability"]))
        for one in alignment
        if str(one["word"]).strip()
    ]
