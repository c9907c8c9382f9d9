"""Is what the model wrote also what was said? Pure checks on a decoded segment; none of them knows any phrase.

Whisper fills sound without speech with words it has often seen, and can fall into a loop. What gives it away is
measurable: nobody speaks at that time, or the text is more than anyone can say, again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workers.transcriber import Word

MAX_COMPRESSION = 2.4
"""zlib ratio above which text counts as repetitive (OpenAI's Whisper, ``compression_ratio_threshold``)."""

MAX_CHARS_PER_S = 28.0
"""Fast English speech is about 20 characters a second (200 to 220 words a minute); loops write hundreds."""

SPARE_CHARS = 12
"""A word may be cut at both ends of the audio and still be written whole."""

NO_SPEECH_PROBABILITY = 0.6
MIN_LOG_PROBABILITY = -1.0
"""Silence when the first is exceeded and the average log probability is below the second (OpenAI's Whisper)."""

SPEECH_MARGIN_S = 1.0
"""Whisper's segment times are off by up to about a second; only what is further from all speech is made up."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One decoded segment; times in seconds from the start of the audio."""

    text: str
    start_s: float
    end_s: float
    compression_ratio: float
    average_log_probability: float
    no_speech_probability: float


@dataclass(frozen=True, slots=True)
class Speech:
    """A stretch in which somebody speaks, in seconds."""

    start_s: float
    end_s: float


def is_plausible(heard: Heard, speech: Sequence[Speech]) -> bool:
    """Whether the segment may stand in the transcript, given where speech is."""
    return _has_words(heard) and not (_off_speech(heard, speech) or _silent(heard) or _is_loop(heard))


def fits(text: str, audio_s: float) -> bool:
    """Whether so much can be said in so short a time at all."""
    return len(text) <= MAX_CHARS_PER_S * audio_s + SPARE_CHARS


def _has_words(heard: Heard) -> bool:
    return any(character.isalnum() for character in heard.text)


def _is_loop(heard: Heard) -> bool:
    """Repetitive *and* faster than anyone speaks; a speaker who really repeats takes the time to do so."""
    duration_s = max(heard.end_s - heard.start_s, 0.1)
    return heard.compression_ratio > MAX_COMPRESSION and len(heard.text.strip()) / duration_s > MAX_CHARS_PER_S


def _silent(heard: Heard) -> bool:
    return heard.no_speech_probability > NO_SPEECH_PROBABILITY and heard.average_log_probability < MIN_LOG_PROBABILITY


def _off_speech(heard: Heard, speech: Sequence[Speech]) -> bool:
    return not any(
        heard.start_s < stretch.end_s + SPEECH_MARGIN_S and stretch.start_s - SPEECH_MARGIN_S < heard.end_s
        for stretch in speech
    )


def in_order(words: Sequence[Word], audio_s: float) -> tuple[Word, ...]:
    """The words with times that never step back and lie within [0, ``audio_s``]."""
    ordered, reached = [], 0.0
    for word in words:
        start = min(max(word.start_s, reached, 0.0), audio_s)
        end = min(max(word.end_s, start), audio_s)
        reached = end
        ordered.append(Word(text=word.text, start_s=start, end_s=end, probability=word.probability))
    return tuple(ordered)
