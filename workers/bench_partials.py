"""The partials of live streams: one stream's alone, and those of eight streams in one call, against ``transcribe``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queueing.lane import Kind
from workers.bench_corpus import Recording, Samples, part
from workers.bench_engines import Bank, Engine, Stopwatch
from workers.bench_spread import spread
from workers.bench_whole import Progress

FIRST_S, EVERY_S, LAST_S = 0.5, 1.0, 8.0
"""A stream's first partial, then one for every further second, as the front end asks for them by default."""

STREAMS = 8


def moments() -> list[float]:
    """Seconds of audio in a stream's partials, the longest at `LAST_S`."""
    count = int((LAST_S - FIRST_S) / EVERY_S) + 1
    return [*(FIRST_S + EVERY_S * step for step in range(count)), LAST_S]


def rounds(recordings: Sequence[Recording], most_streams: int) -> list[list[Samples]]:
    """The partials of groups of `STREAMS` streams: all of a group have the same length. Recordings that end within
    `LAST_S` take part until they do."""
    chosen = recordings[:: max(1, len(recordings) // most_streams)][:most_streams]
    found = []
    for at in range(0, len(chosen), STREAMS):
        for seconds in moments():
            group = [
                part(recording, seconds) for recording in chosen[at : at + STREAMS] if recording.audio_s >= seconds
            ]
            if group:
                found.append(group)
    return found


def measure_partials(
    bank: Bank,
    recordings: Sequence[Recording],
    watch: Stopwatch,
    repeats: int,
    most_streams: int,
    progress: Progress,
) -> dict[str, Any]:
    """``partials_cpu_ratio`` and what it is made of: CPU seconds of a partial, by decoder."""
    groups = rounds(recordings, most_streams)
    count = sum(map(len, groups))
    audio_s = sum(len(samples) for group in groups for samples in group) / 16_000
    peer, ours = bank.peer(1), bank.served()
    spent: dict[str, list[float]] = {"transcribe": [], "batch1": [], f"batch{STREAMS}": []}
    for repeat in range(repeats):
        for name, engine, together in (("transcribe", peer, False), ("batch1", ours, False), ("batch8", ours, True)):
            spent[name].append(sum(_time(engine, group, together, watch) for group in groups))
            progress(f"partials: {name} {1000 * spent[name][-1] / count:.1f} ms each ({repeat + 1} of {repeats})")
    ratios = {
        name: spread([whole / part for whole, part in zip(spent["transcribe"], spent[name], strict=True)], 3)
        for name in ("batch1", "batch8")
    }
    return {
        "partials_cpu_ratio": {name: median for name, (median, _) in ratios.items()},
        "partials": {
            "count": count,
            "audio_s": round(audio_s, 1),
            "mean_batch": round(count / len(groups), 2),
            "cpu_s_each": {name: spread([s / count for s in values])[0] for name, values in spent.items()},
            "ratio_spread": {name: ranges for name, (_, ranges) in ratios.items()},
        },
    }


def _time(engine: Engine, group: Sequence[Samples], together: bool, watch: Stopwatch) -> float:
    if together:
        return watch.time(engine.texts, group, Kind.PARTIAL)[0]
    return sum(watch.time(engine.texts, [one], Kind.PARTIAL)[0] for one in group)
