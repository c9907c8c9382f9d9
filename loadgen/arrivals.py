"""When streams begin: all together, evenly spread, or at random. An open loop: nobody waits for anybody's end.

With N streams of clips that last m seconds on average, streams begin at a rate of N / m, so that N are open at once
on average (Little 1961, L = lambda W) once the run is longer than a clip.
"""

from __future__ import annotations

import random
from enum import StrEnum

MAX_STREAMS = 100_000
"""Streams of one run: a mistyped duration must not fill the memory."""


class Arrivals(StrEnum):
    """How streams begin."""

    SYNCHRONIZED = "synchronized"
    """N at the same moment (and again every m seconds): the hardest for the queue."""
    STAGGERED = "staggered"
    """One every m / N seconds: the easiest."""
    POISSON = "poisson"
    """Exponential gaps with mean m / N: independent people."""


def offsets(
    kind: Arrivals, streams: int, mean_clip_s: float, duration_s: float | None, rng: random.Random
) -> list[float]:
    """Seconds from the start of the run to each stream's, ascending.

    Without ``duration_s`` exactly ``streams`` of them; with it all that fall into that time, at least one.
    Raises ValueError for nothing to do, and for more than `MAX_STREAMS`.
    """
    if streams < 1 or mean_clip_s <= 0 or (duration_s is not None and duration_s <= 0):
        raise ValueError("streams, the length of clips and the duration must be more than 0")
    gap_s = mean_clip_s / streams
    if (streams if duration_s is None else duration_s / gap_s) > MAX_STREAMS:
        raise ValueError(f"that would be more than {MAX_STREAMS} streams; shorten the run or use fewer")
    found: list[float] = []
    at = rng.expovariate(1 / gap_s) if kind is Arrivals.POISSON else 0.0
    while (len(found) < streams) if duration_s is None else (at < duration_s or not found):
        found.append(at)
        match kind:
            case Arrivals.SYNCHRONIZED:
                at = len(found) // streams * mean_clip_s
            case Arrivals.STAGGERED:
                at = len(found) * gap_s
            case Arrivals.POISSON:
                at += rng.expovariate(1 / gap_s)
    return found
