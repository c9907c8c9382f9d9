"""Sound without speech must give no text, however it comes; speech under difficulties no loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from queueing.lane import Kind
from workers.bench_corpus import Recording, Samples, to_pcm
from workers.bench_engines import Engine
from workers.bench_live import Buffer, live_decodes
from workers.bench_text import loop_in, word_error_rate
from workers.bench_whole import Progress
from workers.transcriber import samples_of


def decodes_of(recording: Recording, pause_s: float | None) -> Iterator[tuple[Kind, Samples]]:
    """What a live stream of this recording would ask of the model."""
    for decode in live_decodes([to_pcm(recording.samples)], Buffer(), pause_s):
        yield decode.kind, samples_of(decode.pcm)


def texts_of(engine: Engine, recording: Recording, pause_s: float | None) -> tuple[str, list[str]]:
    """(text of all finals, every text of a partial)."""
    finals: list[str] = []
    partials: list[str] = []
    for kind, samples in decodes_of(recording, pause_s):
        text = engine.texts([samples], kind)[0]
        (finals if kind is Kind.FINAL else partials).append(text)
    return " ".join(text for text in finals if text), [text for text in partials if text]


def measure_edge(
    engine: Engine, silent: Sequence[Recording], hard: Sequence[Recording], pause_s: float, progress: Progress
) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """(the ``edge`` object, loops). Silent ones are streamed with the pause rule and without: without it the light
    detector of the front end keeps nothing from the model."""
    found: dict[str, str] = {}
    loops: list[dict[str, str]] = []
    for recording in silent:
        for name, pause in (("pause", pause_s), ("no pause rule", None)):
            final, partials = texts_of(engine, recording, pause)
            if final or partials:
                found[f"{recording.id} ({name})"] = final or partials[0]
        progress(f"edge: {recording.id}: {'text!' if any(key.startswith(recording.id) for key in found) else 'empty'}")
    errors: dict[str, float] = {}
    for recording in hard:
        text, partials = texts_of(engine, recording, pause_s)
        errors[recording.id] = round(word_error_rate([(recording.reference or "", text)])[0], 4)
        phrases = (loop_in(heard, recording.reference) for heard in (text, *partials))
        loops += [{"decoder": "edge", "id": recording.id, "repeated": phrase} for phrase in phrases if phrase]
        progress(f"edge: {recording.id}: {100 * errors[recording.id]:.1f} % word errors")
    return {
        "silent": [recording.id for recording in silent],
        "empty": not found,
        "texts": found,
        "wer": errors,
    }, loops
