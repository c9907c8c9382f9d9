"""What the benchmark makes of texts: word errors, loops, and stable words that did not stay."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from workers.bench_corpus import Missing

LONGEST_PHRASE = 12
SHORT_REPEATS = 4
"""So often in a row one or two words count as a loop ("no, no, no" is speech); three words or more: twice."""


def words_of(text: str) -> list[str]:
    """Lower case, without punctuation."""
    return re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower())


def word_counter() -> tuple[Any, Any]:
    """(Whisper's English normalizer, jiwer); raises `Missing` where one is."""
    try:
        english: Any = importlib.import_module("whisper_normalizer.english")
        return english.EnglishTextNormalizer(), importlib.import_module("jiwer")
    except ModuleNotFoundError:
        raise Missing(
            "the word error rate needs two packages: pip install 'whisper-normalizer>=0.1.12' 'jiwer>=4.0' "
            "(`make test` installs them too)"
        ) from None


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> tuple[float, int]:
    """(rate, reference words) of (reference, text) pairs: all errors over all words, both sides normalized.

    Raises `Missing` where a package is missing, ValueError without any reference word.
    """
    normalize, jiwer = word_counter()
    cleaned = [(normalize(reference), normalize(text)) for reference, text in pairs]
    known = [(reference, text) for reference, text in cleaned if reference]
    if not known:
        raise ValueError("no reference word: nothing to count errors against")
    found = jiwer.process_words([reference for reference, _ in known], [text for _, text in known])
    words = sum(len(reference.split()) for reference, _ in known)
    return (found.substitutions + found.deletions + found.insertions) / words, words


def loop_in(text: str, reference: str | None) -> str | None:
    """The first phrase that is said again at once without being so in the reference; None for none.

    A phrase of three words or more counts when said twice in a row, a shorter one when said `SHORT_REPEATS` times.
    """
    words = words_of(text)
    said = f" {' '.join(words_of(reference or ''))} "
    for length in range(1, LONGEST_PHRASE + 1):
        times = SHORT_REPEATS if length < 3 else 2
        for start in range(len(words) - length * times + 1):
            phrase = words[start : start + length]
            run = words[start : start + length * times]
            if run == phrase * times and f" {' '.join(run)} " not in said:
                return " ".join(run)
    return None


def changed_words(stable: Sequence[str], final: Sequence[str]) -> int:
    """How many of the stable words differ from the final: the edit distance to that beginning of the final which is
    most like them (Levenshtein's algorithm, its last row's minimum: the final may go on, stable text may not)."""
    row = list(range(len(final) + 1))
    for count, word in enumerate(stable, 1):
        before, row[0] = row[0], count
        for index, other in enumerate(final, 1):
            before, row[index] = row[index], min(row[index] + 1, row[index - 1] + 1, before + (word != other))
    return min(row)
