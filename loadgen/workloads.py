"""What is simulated: how long people speak, and what a decode of it costs.

Durations are real ones (LibriSpeech test-clean, 2,620 utterances); costs are models of one worker's time, made from
figures that docs/measurements.md lists.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from loadgen.clips import ClipError
from queueing.costs import prior_cost_ms, prior_costs
from queueing.lane import MAX_JOB_AUDIO_S, Kind, Lane

CostModel = Callable[[Kind, float], float]
"""(kind, seconds of audio) -> milliseconds of one worker."""

PROPORTIONAL_MS_PER_S = 36.7
"""Greedy tiny.en (int8, one thread) in right-sized windows: 0.0367 CPU s per second of audio over 150 utterances."""

FULL_WINDOW_MS = 448.0
DECODER_MS_PER_S = 28.3
"""In the fixed 30 s window the same 150 utterances (7.29 s on average) took 0.0897 CPU s per second. The encoder
costs 7.3 times as much in 30 s as in 10 s, so of 654 ms and 268 ms an utterance 448 ms are the full window's encoder
and 28.3 ms a second the decoder."""


def windowed(kind: Kind, audio_s: float) -> float:
    """Right-sized windows, by the queue's prior cost of each lane."""
    return prior_cost_ms(Lane.for_audio(kind, audio_s))


def proportional(kind: Kind, audio_s: float) -> float:  # noqa: ARG001  # all kinds cost the same
    """Right-sized windows without steps and without a fixed part."""
    return PROPORTIONAL_MS_PER_S * audio_s


def full_window(kind: Kind, audio_s: float) -> float:  # noqa: ARG001
    """Whisper's fixed 30 s window: costs hardly differ."""
    return FULL_WINDOW_MS + DECODER_MS_PER_S * audio_s


COST_MODELS: Mapping[str, CostModel] = {
    "proportional": proportional,
    "windowed": windowed,
    "full_window": full_window,
}


def read_durations(path: Path) -> list[float]:
    """The column ``seconds`` of a CSV file. Raises `ClipError` when there is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            durations = [float(row["seconds"]) for row in csv.DictReader(file)]
    except OSError as error:
        raise ClipError(
            str(path), f"cannot be read ({error.strerror}); name a CSV file with a column 'seconds'"
        ) from None
    except (KeyError, ValueError, TypeError):
        raise ClipError(str(path), "not a CSV file with a number in the column 'seconds' of every row") from None
    if not durations or not all(math.isfinite(seconds) and seconds > 0 for seconds in durations):
        raise ClipError(str(path), "there must be durations, all above 0")
    return durations


def pieces(seconds: float) -> tuple[float, ...]:
    """The jobs that this much audio makes, in seconds: as few as possible, all of one length."""
    parts = max(1, math.ceil(seconds / MAX_JOB_AUDIO_S))
    return (seconds / parts,) * parts


def lane_costs(jobs: Sequence[tuple[Lane, float]]) -> dict[Lane, float]:
    """What a queue would learn: the mean cost of each lane over these (lane, ms), the prior for lanes without any."""
    found: dict[Lane, list[float]] = {}
    for lane, cost_ms in jobs:
        found.setdefault(lane, []).append(cost_ms)
    return {**prior_costs(), **{lane: math.fsum(costs) / len(costs) for lane, costs in found.items()}}


def lane_shares(jobs: Sequence[tuple[Lane, float]]) -> dict[Lane, float]:
    """Which share of these jobs falls into each lane."""
    shares: dict[Lane, float] = {}
    for lane, _cost in jobs:
        shares[lane] = shares.get(lane, 0.0) + 1 / len(jobs)
    return shares
