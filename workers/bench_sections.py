"""The parts of a decoding benchmark, and what each adds to the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.bench_corpus import BenchError, Recording, load_hard, load_silent, to_pcm
from workers.bench_edge import measure_edge
from workers.bench_engines import Bank, Stopwatch
from workers.bench_fit import Point, measure_fit
from workers.bench_live import PAUSE_S, STREAMS, measure_live, measure_stable
from workers.bench_partials import measure_partials
from workers.bench_whole import Progress, batch_texts, contenders, measure_whole

FIT_REPEATS = 3
"""At least: a single decode may have met a slow moment."""

FIT_POINTS = 60
STABLE_RECORDINGS = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    folder: Path
    repeats: int
    streams: int
    seed: int
    batches: tuple[int, ...]
    sections: tuple[str, ...]
    live_s: tuple[int, ...] = tuple(STREAMS)


@dataclass
class Measured:
    """The report as it grows, and what is too long for it."""

    report: dict[str, Any] = field(default_factory=dict)
    spread: dict[str, Any] = field(default_factory=dict)
    points: dict[str, list[Point]] = field(default_factory=dict)
    texts: list[dict[str, str]] = field(default_factory=list)

    def add_loops(self, loops: Sequence[dict[str, str]]) -> None:
        """Loops of any section end up in one list."""
        self.report.setdefault("loops", []).extend(loops)


@dataclass(frozen=True, slots=True)
class _Work:
    bank: Bank
    recordings: Sequence[Recording]
    watch: Stopwatch
    plan: Plan
    progress: Progress


def _whole(work: _Work, measured: Measured) -> None:
    entrants = contenders(work.bank, work.plan.batches)
    whole = measure_whole(entrants, work.recordings, work.watch, work.plan.repeats, work.progress)
    measured.report["wer"] = {name: round(rate, 5) for name, rate in whole.wer.items()}
    measured.report["cpu_per_audio_s"] = whole.cost
    measured.spread["cpu_per_audio_s"] = whole.ranges
    measured.spread["texts_that_changed_between_repeats"] = whole.unsteady
    measured.add_loops(whole.loops)
    for name, texts in whole.texts.items():
        rows = zip(work.recordings, texts, strict=True)
        measured.texts += [
            {"decoder": name, "id": r.id, "text": text, "reference": r.reference or ""} for r, text in rows
        ]
    work.progress("whole utterances: texts of batches")
    measured.report["batch_texts"] = batch_texts(work.bank, work.recordings, max(work.plan.batches), whole, work.watch)


def _partials(work: _Work, measured: Measured) -> None:
    found = measure_partials(
        work.bank, work.recordings, work.watch, work.plan.repeats, work.plan.streams, work.progress
    )
    measured.report.update(found)


def _fit(work: _Work, measured: Measured) -> None:
    repeats = max(FIT_REPEATS, work.plan.repeats)
    found, measured.points = measure_fit(work.bank, work.recordings, work.watch, repeats, FIT_POINTS, work.progress)
    measured.report["fit"] = found


def _live(work: _Work, measured: Measured) -> None:
    plan = work.plan
    found = measure_live(work.bank.served(), work.recordings, plan.seed, work.watch, work.progress, plan.live_s)
    measured.report.update(found)


def _edge(work: _Work, measured: Measured) -> None:
    silent, hard = load_silent(work.plan.folder), load_hard(work.plan.folder)
    if not silent:
        work.progress(f"edge: left out, {work.plan.folder} has no edge.csv")
        return
    measured.report["edge"], loops = measure_edge(work.bank.served(), silent, hard, PAUSE_S, work.progress)
    measured.add_loops(loops)


def _stable(work: _Work, measured: Measured) -> None:
    found = measure_stable(work.bank.served(), work.recordings, STABLE_RECORDINGS, work.progress)
    measured.report["stable"] = found


def _detectors(work: _Work, measured: Measured) -> None:
    """What voice detection takes: Silero where audio is decoded, the endpointer where it arrives."""
    from sessions.endpointing import Endpointer
    from workers.speech import find_speech

    audio_s = sum(recording.audio_s for recording in work.recordings)

    def silero() -> None:
        for recording in work.recordings:
            find_speech(recording.samples)

    def endpointing() -> None:
        for recording in work.recordings:
            endpointer, pcm = Endpointer(PAUSE_S), to_pcm(recording.samples)
            for start in range(0, len(pcm), 3_200):
                endpointer.feed(pcm[start : start + 3_200])
            endpointer.finish()

    silero()  # loads its network
    seconds = {"silero": work.watch.time(silero)[0], "endpointer": work.watch.time(endpointing)[0]}
    found: dict[str, Any] = {name: {"cpu_per_audio_s": round(s / audio_s, 6)} for name, s in seconds.items()}
    if decode := (measured.report.get("cpu_per_audio_s") or {}).get("sized_b1"):
        found["silero"]["share_of_sized_b1"] = round(found["silero"]["cpu_per_audio_s"] / decode, 4)
    measured.report["detectors"] = found
    work.progress(f"detectors: {found}")


_SECTIONS: dict[str, Callable[[_Work, Measured], None]] = {
    "whole": _whole,
    "partials": _partials,
    "fit": _fit,
    "live": _live,
    "edge": _edge,
    "stable": _stable,
    "detectors": _detectors,
}
SECTIONS = tuple(_SECTIONS)


def measure(bank: Bank, recordings: Sequence[Recording], watch: Stopwatch, plan: Plan, progress: Progress) -> Measured:
    """Every section of the plan, in the order of `SECTIONS`; one that fails is under ``failed``, the others go on."""
    measured = Measured()
    work = _Work(bank, recordings, watch, plan, progress)
    for name, section in _SECTIONS.items():
        if name in plan.sections:
            try:
                section(work, measured)
            except (BenchError, ValueError) as error:
                measured.report.setdefault("failed", {})[name] = str(error)
                progress(f"{name}: {error}")
    return measured
