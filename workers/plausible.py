"""Is what the model wrote also what was said? Pure checks on a decode; none of them knows any phrase.

Whisper fills sound without speech with words it has often seen, and can fall into a loop. What gives it away is
measurable: nobody speaks at that time, or the text is more than anyone can say, again and again. `suspicions` asks
whether to decode once more; `is_plausible` whether a segment may stand in the transcript after all.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from workers.hypothesis import Hypothesis
from workers.timeline import Speech
from workers.transcriber import Word

MAX_COMPRESSION = 2.4
"""zlib ratio above which text counts as repetitive (OpenAI's Whisper, ``compression_ratio_threshold``)."""

SUSPICIOUS_COMPRESSION = 2.0
"""The same, where the price is no more than a second look."""

MAX_CHARS_PER_S = 28.0
"""Fast English speech is about 20 characters a second (200 to 220 words a minute); loops write hundreds."""

MIN_CHARS_PER_S = 2.0
"""Slow speech has five times as many letters; languages that write a syllable with one sign have three or more."""

SPARE_CHARS = 12
"""A word may be cut at both ends of the audio and still be written whole."""

NO_SPEECH_PROBABILITY = 0.6
MIN_LOG_PROBABILITY = -1.0
"""Silence when the first is exceeded and the average log probability is below the second (OpenAI's Whisper)."""

SPEECH_MARGIN_S = 1.0
"""Whisper's segment times are off by up to about a second; only what is further from all speech is made up."""

PHRASE_WORDS = 3
"""Words that a phrase must have to count when it is said twice at once."""

MUCH_SPEECH_S = 3.0
"""So much speech has some text."""


class Cause(StrEnum):
    """Why a decode is suspicious."""

    COMPRESSION = "compression"
    RATE = "rate"
    REPEATED_PHRASE = "repeated_phrase"
    BEYOND_END = "beyond_end"
    UNFINISHED = "unfinished"
    SHORT_TEXT = "short_text"
    UNHEARD_END = "unheard_end"
    LOG_PROBABILITY = "log_probability"


LOOPS = frozenset({Cause.COMPRESSION, Cause.RATE, Cause.REPEATED_PHRASE, Cause.BEYOND_END, Cause.UNFINISHED})
"""The causes that a search without repeated sequences can mend."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One decoded segment; times in seconds from the start of the audio."""

    text: str
    start_s: float
    end_s: float
    compression_ratio: float
    average_log_probability: float
    no_speech_probability: float


def compression_ratio(text: str) -> float:
    """Bytes of the text over bytes of its zlib compression (OpenAI's Whisper, ``compression_ratio``)."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def suspicions(found: Hypothesis, audio_s: float, speech_s: float) -> frozenset[Cause]:
    """What speaks against a hypothesis for ``audio_s`` seconds with ``speech_s`` seconds of speech in them."""
    text = found.text.strip()
    checks = {
        Cause.COMPRESSION: compression_ratio(text) > SUSPICIOUS_COMPRESSION,
        Cause.RATE: not fits(text, audio_s),
        Cause.REPEATED_PHRASE: repeats_a_phrase(text),
        Cause.BEYOND_END: any(segment.start_s >= audio_s for segment in found.segments),
        Cause.UNFINISHED: found.capped,
        Cause.SHORT_TEXT: speech_s >= MUCH_SPEECH_S
        and found.goes_on_at_s is None
        and len(text) < MIN_CHARS_PER_S * speech_s,
        Cause.LOG_PROBABILITY: found.average_log_probability < MIN_LOG_PROBABILITY
        and found.no_speech_probability <= NO_SPEECH_PROBABILITY,
    }
    return frozenset(cause for cause, holds in checks.items() if holds)


def repeats_a_phrase(text: str) -> bool:
    """Whether `PHRASE_WORDS` words or more are followed by the same words at once, or fewer by the same twice.

    Signs and case count for nothing.
    """
    words = _bare_words(text)

    def repeated(start: int, length: int, times: int) -> bool:
        phrase = words[start : start + length]
        return all(words[start + n * length : start + (n + 1) * length] == phrase for n in range(1, times))

    return any(
        repeated(start, length, times)
        for length in range(1, len(words) // 2 + 1)
        for times in (2 if length >= PHRASE_WORDS else 3,)
        for start in range(len(words) - times * length + 1)
    )


def begins_as_it_ended(before: str, after: str) -> bool:
    """Whether a text begins with the word that the text before it ended with."""
    ended, begun = _bare_words(before)[-1:], _bare_words(after)[:1]
    return bool(ended) and ended == begun


def _bare_words(text: str) -> list[str]:
    words = ["".join(filter(str.isalnum, word)).casefold() for word in text.split()]
    return [word for word in words if word]


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
