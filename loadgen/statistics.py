"""Percentiles of measured values, and word error rates."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PERCENTILES = (50, 90, 95, 99)


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: the smallest value that at least ``percent`` % of the values do not exceed.

    Always a value that was measured, never one in between: with 8 values p99 is the largest.
    Raises ValueError for no values, and for a percentage outside (0, 100].
    """
    if not values:
        raise ValueError("a percentile of no values")
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile is above 0 and at most 100, got {percent}")
    ordered = sorted(values)
    # The rank is exact for whole percentages; 1e-9 keeps 0.95 * 20 from becoming 20 by rounding.
    return ordered[math.ceil(percent / 100 * len(ordered) - 1e-9) - 1]


def spread(values: Sequence[float], digits: int = 1) -> dict[str, float | int | None]:
    """Count, mean, percentiles and maximum; a figure without its count says nothing."""
    found: dict[str, float | int | None] = {"count": len(values)}
    known = bool(values)
    found["mean"] = round(math.fsum(values) / len(values), digits) if known else None
    for percent in PERCENTILES:
        found[f"p{percent}"] = round(percentile(values, percent), digits) if known else None
    found["max"] = round(max(values), digits) if known else None
    return found


@dataclass(frozen=True, slots=True)
class WordErrors:
    """Word errors over many texts: all errors by all reference words, so long texts count for more."""

    words: int
    substitutions: int
    deletions: int
    insertions: int

    @property
    def rate(self) -> float | None:
        """Word error rate, 0.1 for 10 %; None without reference words."""
        errors = self.substitutions + self.deletions + self.insertions
        return errors / self.words if self.words else None


class MissingPackages(Exception):
    """What an optional figure needs is not installed; the message has the command."""

    def __init__(self, purpose: str, *packages: str) -> None:
        super().__init__(
            f"{purpose} needs {' and '.join(packages)}: {sys.executable} -m pip install {' '.join(packages)}"
        )


def word_errors(pairs: Sequence[tuple[str, str]]) -> WordErrors:
    """Errors of (reference, hypothesis) pairs, both through the Whisper English normalizer.

    Raises `MissingPackages`: the two packages come with the extra ``test``.
    """
    try:
        jiwer: Any = importlib.import_module("jiwer")
        english: Any = importlib.import_module("whisper_normalizer.english")
    except ModuleNotFoundError:
        raise MissingPackages("the word error rate", "jiwer", "whisper-normalizer") from None
    normalize = english.EnglishTextNormalizer()
    cleaned = [(normalize(reference), normalize(hypothesis)) for reference, hypothesis in pairs]
    known = [(reference, hypothesis) for reference, hypothesis in cleaned if reference]
    if not known:
        return WordErrors(0, 0, 0, 0)
    found = jiwer.process_words([reference for reference, _ in known], [hypothesis for _, hypothesis in known])
    words = sum(len(reference.split()) for reference, _ in known)
    return WordErrors(words, found.substitutions, found.deletions, found.insertions)
