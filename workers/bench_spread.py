"""A figure that was measured several times: its median, and how far the repeats lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], digits: int = 5) -> tuple[float, dict[str, float]]:
    """(median, {least, most}) of at least one value, rounded to ``digits``."""
    median = round(statistics.median(values), digits)
    return median, {"least": round(min(values), digits), "most": round(max(values), digits)}


def quantile(values: Sequence[float], share: float) -> float:
    """Linear between the two nearest of the ordered values, as numpy's default; ``share`` in [0, 1]."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
