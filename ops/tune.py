"""``hearline doctor --tune``: how many workers, and with how many threads each, suit this machine and model.

Workers decode the partials and finals of real utterances, as many at a time as would run side by side; what is
counted is the audio that all of them decode in a second, and how long a final takes meanwhile.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ops.errors import Failed, Missing
from ops.procfile import python_module
from ops.tether import tether

MOST_THREADS = 8
"""A stream of small matrices gains nothing from more."""

BOUND_S = 1.0
"""Longest decode of a final of 10 s of audio (95 of 100) that is taken for good: a speaker waits at least that long."""

TOTAL_S = 80.0
"""Decoding time of a whole measurement, shared by the settings that are tried."""

MOST_EACH_S = 10.0
LEAST_EACH_S = 3.0
READY_S = 120.0
SAME = 0.05
"""Rates that differ by less are alike: the setting with fewer processes is taken, for it needs less memory."""

SAMPLES = Path(__file__).resolve().parent.parent / "tests" / "data"
"""Two recordings; not part of an installed wheel."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting and what it gave: ``rate`` is audio seconds decoded in a second, the others seconds of a decode."""

    threads: int
    workers: int
    rate: float
    final_p95_s: float
    partial_p95_s: float
    memory_mib: int

    @property
    def busy(self) -> int:
        """CPUs that it keeps busy."""
        return self.threads * self.workers


def candidates(cpus: int) -> list[tuple[int, int]]:
    """(threads, workers) worth trying: powers of two of threads, workers that fill the CPUs or leave one free.

    The web process and Redis need little beside decoding, but not nothing, hence the one.
    """
    found: set[tuple[int, int]] = set()
    threads = 1
    while threads <= min(cpus, MOST_THREADS):
        for busy in (cpus, cpus - 1):
            if busy >= threads:
                found.add((threads, busy // threads))
        threads *= 2
    found.add((1, 1))
    return sorted(found)


def choose(trials: Sequence[Trial], bound_s: float) -> tuple[Trial, bool]:
    """(the best, whether it keeps the bound): of those that do, the highest rate, of alike ones the fewest workers.

    Where none does, the one whose finals are fastest.
    """
    good = [trial for trial in trials if trial.final_p95_s <= bound_s]
    if not good:
        return min(trials, key=lambda trial: trial.final_p95_s), False
    best = max(trial.rate for trial in good)
    alike = [trial for trial in good if trial.rate >= best * (1 - SAME)]
    return min(alike, key=lambda trial: (trial.workers, trial.busy, -trial.rate)), True


def percentile95(values: Sequence[float]) -> float:
    """Nearest rank, of at least one value."""
    ordered = sorted(values)
    return ordered[-(-95 * len(ordered) // 100) - 1]


def find_recordings(speech: Path | None, environment: Mapping[str, str]) -> Path:
    """The folder given, else HEARLINE_SPEECH, else the project's samples; raises `Missing` without any."""
    if speech is not None:
        return speech
    if named := environment.get("HEARLINE_SPEECH"):
        return Path(named)
    if SAMPLES.is_dir():
        return SAMPLES
    raise Missing("no recordings to decode: name a folder with some of 10 s and more, and their texts: --speech DIR")


def tune(folder: Path, environment: Mapping[str, str], cpus: int, bound_s: float, progress: Progress) -> dict[str, Any]:
    """Try every candidate; JSON-able. Raises `Failed` when a worker cannot decode."""
    pairs = candidates(cpus)
    each_s = min(MOST_EACH_S, max(LEAST_EACH_S, TOTAL_S / len(pairs)))
    trials: list[Trial] = []
    model: dict[str, Any] = {}
    for threads, workers in pairs:
        trial, model = try_out(folder, environment, threads, workers, each_s)
        trials.append(trial)
        progress(
            f"{workers} worker{'s' if workers > 1 else ''} x {threads} thread{'s' if threads > 1 else ''}: "
            f"{trial.rate:.1f} s of audio a second, finals of 10 s in {trial.final_p95_s:.2f} s"
        )
    best, kept = choose(trials, bound_s)
    return {
        "model": model,
        "cpus": cpus,
        "bound_s": bound_s,
        "bound_kept": kept,
        "seconds_each": round(each_s, 1),
        "trials": [asdict(trial) for trial in trials],
        "best": {"HEARLINE_THREADS": best.threads, "worker": best.workers},
        "command": f"HEARLINE_THREADS={best.threads} hearline up worker={best.workers}",
        "memory_mib": best.memory_mib,
    }


def try_out(
    folder: Path, environment: Mapping[str, str], threads: int, workers: int, seconds: float
) -> tuple[Trial, dict[str, Any]]:
    """One setting: start the workers, let them decode at the same time; (figures, what the model is)."""
    with ExitStack() as stack:
        running = [stack.enter_context(_Worker(folder, environment, threads)) for _ in range(workers)]
        ready = [_line(process) for process in running]
        for process in running:
            assert process.stdin is not None
            process.stdin.write(f"{seconds}\n")
            process.stdin.flush()
        found = [_line(process) for process in running]
    trial = Trial(
        threads=threads,
        workers=workers,
        rate=round(sum(one["audio_s"] / one["wall_s"] for one in found), 2),
        final_p95_s=percentile95([s for one in found for s in one["final"]]),
        partial_p95_s=percentile95([s for one in found for s in one["partial"]]),
        memory_mib=sum(one["memory_mib"] for one in ready),
    )
    return trial, {name: ready[0][name] for name in ("model", "device", "compute_type")}


class _Worker:
    """A measuring worker for the length of a ``with``."""

    def __init__(self, folder: Path, environment: Mapping[str, str], threads: int) -> None:
        self._process = subprocess.Popen(
            [*tether(), *python_module("workers.bench_tune"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "HEARLINE_THREADS": str(threads)},
        )

    def __enter__(self) -> subprocess.Popen[str]:
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, said = process.communicate(timeout=READY_S)
        raise Failed(f"a worker could not be measured: {said.strip()[-1_000:] or 'it said nothing'}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The result for people."""
    model = found["model"]
    yield f"{model['model']} ({model['compute_type']}) on {found['cpus']} CPUs; rate: audio seconds decoded a second"
    yield f"{'workers':>9}{'threads':>9}{'rate':>8}{'final p95':>12}{'partial p95':>13}{'memory':>12}"
    for one in found["trials"]:
        yield (
            f"{one['workers']:>9}{one['threads']:>9}{one['rate']:>8.1f}{one['final_p95_s']:>10.2f} s"
            f"{one['partial_p95_s']:>11.2f} s{one['memory_mib']:>8} MiB"
        )
    if not found["bound_kept"]:
        yield f"No setting decodes a final of 10 s within {found['bound_s']:g} s; the fastest one is taken."
        yield "A smaller model, or HEARLINE_FINAL_BEAM=1, helps."
    yield "Best here:"
    yield f"  {found['command']}"
