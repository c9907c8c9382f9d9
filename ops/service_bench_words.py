"""Word error rates for the service benchmark, by the same packages as everywhere: whisper-normalizer and jiwer."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from ops.errors import Missing


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


def word_error_rate(pairs: Sequence[tuple[str, str]]) -> float:
    """All errors over all reference words of (reference, text) pairs, both through Whisper's English normalizer.

    Raises `Missing` without the packages or without any reference word.
    """
    normalize, jiwer = word_counter()
    known = [(clean, normalize(text)) for reference, text in pairs if (clean := normalize(reference))]
    if not known:
        raise Missing("no reference text: nothing to count word errors against")
    found = jiwer.process_words([reference for reference, _ in known], [text for _, text in known])
    words = sum(len(reference.split()) for reference, _ in known)
    return float((found.substitutions + found.deletions + found.insertions) / words)
