"""Whole utterances through every decoder: word error rate, CPU seconds per audio second, and what batches change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from queueing.lane import Kind, Lane
from workers.bench_corpus import Recording, Samples, pieces
from workers.bench_engines import Bank, Engine, Stopwatch
from workers.bench_spread import spread
from workers.bench_text import loop_in, word_error_rate

Progress = Callable[[str], None]

MOST_S = 28.0
"""What one decode of ours may hold; `transcribe` gets longer recordings whole."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A decoder and how it is fed: ``batch`` pieces of the same window in one call, as jobs of ``kind``."""

    engine: Engine
    batch: int = 1
    kind: Kind = Kind.FINAL
    whole: bool = False
    """It gets every recording in one piece, however long."""


def contenders(bank: Bank, batches: Sequence[int]) -> dict[str, Contender]:
    """Every decoder by the name that its figures have.

    Batches are decoded as partials, the kind that a worker always decodes together.
    """
    found = {
        "transcribe_b1": Contender(bank.peer(1), whole=True),
        "transcribe_b5": Contender(bank.peer(5), whole=True),
        "full_b1": Contender(bank.ours(full=True)),
        "full_b5": Contender(bank.ours(full=True, final_beam=5)),
        "sized_b1": Contender(bank.ours(full=False)),
        "sized_b5": Contender(bank.ours(full=False, final_beam=5)),
    }
    for batch in batches:
        found[f"sized_b1_batch{batch}"] = Contender(bank.ours(full=False), batch, Kind.PARTIAL)
    return found


@dataclass
class Pass:
    """One decoder over all recordings: a text for each, and the seconds that all took."""

    texts: list[str]
    seconds: float = 0.0


@dataclass
class Whole:
    """The section's figures as they come in."""

    wer: dict[str, float] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    ranges: dict[str, dict[str, float]] = field(default_factory=dict)
    loops: list[dict[str, str]] = field(default_factory=list)
    texts: dict[str, list[str]] = field(default_factory=dict)
    unsteady: dict[str, int] = field(default_factory=dict)
    """Texts that were not the same in every repeat."""


def run_pass(contender: Contender, recordings: Sequence[Recording], watch: Stopwatch) -> Pass:
    """Decode all recordings once; those that are too long in pieces, their texts joined."""
    parts: list[tuple[int, Samples]] = [
        (index, piece)
        for index, recording in enumerate(recordings)
        for piece in ([recording.samples] if contender.whole else pieces(recording, MOST_S))
    ]
    found: dict[int, list[str]] = {index: [] for index in range(len(recordings))}
    texts: dict[int, str] = {}
    result = Pass([])
    for group in groups(parts, contender):
        batch = [samples for _, samples in (parts[place] for place in group)]
        seconds, answers = watch.time(contender.engine.texts, batch, contender.kind)
        result.seconds += seconds
        texts.update(zip(group, answers, strict=True))
    for place, (index, _) in enumerate(parts):
        found[index].append(texts[place])
    result.texts = [" ".join(" ".join(found[index]).split()) for index in range(len(recordings))]
    return result


def groups(parts: Sequence[tuple[int, Samples]], contender: Contender) -> list[list[int]]:
    """Which pieces go into one call: the next ``batch`` of the same window, as a worker claims them from a lane."""
    if contender.batch == 1:
        return [[place] for place in range(len(parts))]
    lanes: dict[int, list[int]] = {}
    for place, (_, samples) in enumerate(parts):
        lanes.setdefault(Lane.for_audio(contender.kind, len(samples) / 16_000).window_s, []).append(place)
    size = contender.batch
    return [places[at : at + size] for places in lanes.values() for at in range(0, len(places), size)]


def measure_whole(
    entrants: Mapping[str, Contender],
    recordings: Sequence[Recording],
    watch: Stopwatch,
    repeats: int,
    progress: Progress,
) -> Whole:
    """Every decoder ``repeats`` times, interleaved; word errors are those of the first time."""
    audio_s = sum(recording.audio_s for recording in recordings)
    costs: dict[str, list[float]] = {name: [] for name in entrants}
    whole = Whole()
    names = list(entrants)
    for repeat in range(repeats):
        # Each repeat starts with another decoder, so that a slow moment of the machine hits all alike.
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            done = run_pass(entrants[name], recordings, watch)
            costs[name].append(done.seconds / audio_s)
            if name not in whole.texts:
                whole.texts[name] = done.texts
                _judge(whole, name, recordings)
            whole.unsteady[name] = max(whole.unsteady.get(name, 0), _different(done.texts, whole.texts[name]))
            progress(
                f"whole utterances: {name} {costs[name][-1]:.4f} s per audio second, "
                f"{100 * whole.wer[name]:.2f} % word errors ({repeat + 1} of {repeats})"
            )
    for name, values in costs.items():
        whole.cost[name], whole.ranges[name] = spread(values)
    return whole


def _judge(whole: Whole, name: str, recordings: Sequence[Recording]) -> None:
    texts = whole.texts[name]
    rate, _ = word_error_rate((r.reference or "", text) for r, text in zip(recordings, texts, strict=True))
    whole.wer[name] = rate
    if name.startswith("transcribe"):
        return  # Its loops are not ours to answer for.
    for recording, text in zip(recordings, texts, strict=True):
        if (phrase := loop_in(text, recording.reference)) is not None:
            whole.loops.append({"decoder": name, "id": recording.id, "repeated": phrase})


def batch_texts(
    bank: Bank, recordings: Sequence[Recording], batch: int, whole: Whole, watch: Stopwatch
) -> dict[str, Any]:
    """How many texts differ when pieces come in calls of ``batch`` instead of one by one, for partials and finals.

    ``whole``: what was decoded already, finals one by one and partials in batches.
    """
    engine = bank.ours(full=False)
    partials = run_pass(Contender(engine, 1, Kind.PARTIAL), recordings, watch).texts
    finals = run_pass(Contender(engine, batch, Kind.FINAL), recordings, watch).texts
    return {
        "batch": batch,
        "texts": len(recordings),
        "partial_different": _different(partials, whole.texts[f"sized_b1_batch{batch}"]),
        "final_different": _different(finals, whole.texts["sized_b1"]),
    }


def _different(some: Sequence[str], others: Sequence[str]) -> int:
    return sum(a != b for a, b in zip(some, others, strict=True))
