"""Where to cut speech that does not pause: between words rather than in one. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

GAP_SEARCH_S = 10.0
"""A segment without a pause is cut within its last 10 s."""

MIN_GAP_FRAMES = 3
"""Silent frames that make a gap between words, 48 ms; a stop consonant is as silent but shorter."""


def best_gap(past: Sequence[tuple[float, float]], silent_below: float) -> tuple[int, int]:
    """(first frame, frames) of the longest silent run among ``past``, (score, energy) of frames of 16 ms.

    Of equally long ones the quietest; without one of `MIN_GAP_FRAMES` the frame of the least energy times score.
    """
    best = (0, 0.0)
    found: tuple[int, int] | None = None
    run = 0
    for index in range(len(past) + 1):
        if index < len(past) and past[index][0] < silent_below:
            run += 1
            continue
        if run >= MIN_GAP_FRAMES:
            energy = sum(energy for _, energy in past[index - run : index]) / run
            if (run, -energy) > best:
                best = (run, -energy)
                found = (index - run, run)
        run = 0
    if found is not None:
        return found
    weakest = min(range(len(past)), key=lambda index: (past[index][0] + 1e-3) * past[index][1])
    return weakest, 1
