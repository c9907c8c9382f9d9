"""How often a stable word differs from the final: partials every second over recordings, with the bundled model.

``python -m tests.support.stable_partials ../shared/speech`` (a quarter of an hour on one core; ``--limit N``: the first
N recordings) prints a line for every rule of `sessions.assembler`, as in docs/endpointing.md.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from faster_whisper.audio import decode_audio
from whisper_normalizer.english import EnglishTextNormalizer

from queueing.lane import Kind
from sessions.assembler import Assembler
from sessions.endpointing import BYTES_PER_S, Endpointer
from workers.model_files import resolve_model
from workers.transcriber import DecodeRequest, Transcriber, Transcript, samples_of
from workers.whisper import WhisperOptions, fetch_from_hub, known_sizes, load_whisper

INTERVAL_S = 1.0
ENDPOINT_S = 0.8
SETTLED_S = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
RULES = [(every, settle_s, held_back) for every in (1, 2, 3) for settle_s in SETTLED_S for held_back in (0, 1)]

normal = EnglishTextNormalizer()


@dataclass(frozen=True, slots=True)
class Heard:
    """One segment: what its partials said, a second apart, and its final."""

    recording: str
    hypotheses: list[str]
    final: str


@dataclass(frozen=True, slots=True)
class Rate:
    """``stable`` of ``final`` words were stable when the final came, ``wrong`` of them are not in it.

    ``behind``: words of a partial that are not stable, on average. ``every``: seconds between partials.
    """

    every: int
    settle_s: float
    held_back: int
    final: int
    stable: int
    wrong: int
    behind: float

    def __str__(self) -> str:
        return (
            f"a partial every {self.every} s, settled {self.settle_s:g} s, held back {self.held_back}: {self.stable} "
            f"of {self.final} words stable at the final, {self.wrong} of them wrong "
            f"({100 * self.wrong / max(1, self.stable):.2f} %); {self.behind:.1f} "
            "words of a partial not stable"
        )


def pcm(path: Path) -> bytes:
    """A recording as PCM16LE."""
    samples = decode_audio(str(path))
    return bytes((samples * 32_768).round().clip(-32_768, 32_767).astype("<i2").tobytes())


def hear(transcriber: Transcriber, name: str, data: bytes) -> Iterator[Heard]:
    """Decode the segments of a recording as a live stream would: from its start to every second of it, and whole."""
    cutter = Endpointer(ENDPOINT_S)
    segments = cutter.feed(data)
    last = cutter.finish()
    for segment in [*segments, *([last] if last is not None else [])]:
        audio = data[segment.start_byte : segment.end_byte]
        step = int(INTERVAL_S * BYTES_PER_S)
        pieces = [audio[:end] for end in range(step, len(audio), step)]
        asked = [DecodeRequest(samples_of(piece), Kind.PARTIAL) for piece in pieces]
        texts = said(transcriber, [*asked, DecodeRequest(samples_of(audio), Kind.FINAL)])
        yield Heard(name, texts[:-1], texts[-1])


def said(transcriber: Transcriber, requests: Sequence[DecodeRequest]) -> list[str]:
    """The texts of the requests, decoded one by one."""
    texts = []
    for request in requests:
        (answer,) = transcriber.decode([request])
        assert isinstance(answer, Transcript), answer
        texts.append(answer.text)
    return texts


def rate(heard: Sequence[Heard], every: int, settle_s: float, held_back: int) -> Rate:
    """Count over segments, through the Whisper English normalizer."""
    final = stable = wrong = partials = behind = 0
    for segment in heard:
        assembler = Assembler(settle_s, held_back)
        settled = text = ""
        for end_s in range(every, len(segment.hypotheses) + 1, every):
            settled, text = assembler.partial(segment.hypotheses[end_s - 1], end_s)
            partials += 1
            behind += len(text.split()) - len(settled.split())
        words = normal(settled).split()
        final += len(normal(segment.final).split())
        stable += len(words)
        wrong += misses(words, normal(segment.final).split())
    return Rate(every, settle_s, held_back, final, stable, wrong, behind / max(1, partials))


def misses(words: Sequence[str], final: Sequence[str]) -> int:
    """The edit distance of ``words`` to the nearest beginning of ``final``."""
    row = list(range(len(final) + 1))
    for count, word in enumerate(words, 1):
        before, row = row, [count]
        for column, other in enumerate(final, 1):
            row.append(min(before[column - 1] + (word != other), before[column] + 1, row[-1] + 1))
    return min(row)


def recordings(folder: Path, limit: int | None = None) -> Iterator[tuple[str, bytes]]:
    """(id, PCM16LE) of the rows of its manifest.csv, evenly drawn when limited."""
    with (folder / "manifest.csv").open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: row["id"])
    step = max(1, len(rows) // limit) if limit else 1
    for row in rows[::step][:limit]:
        yield row["id"], pcm(folder / row["file"])


def bundled() -> Transcriber:
    """The model that comes with the installation, on one thread."""
    files = resolve_model("bundled", model_dir=None, sizes=known_sizes(), fetch=fetch_from_hub)
    return load_whisper(files, WhisperOptions(threads=1))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--limit", type=int, help="Recordings; default: all.")
@click.option("--keep", type=click.Path(dir_okay=False, path_type=Path), help="Write the hypotheses here, as JSON.")
def main(folder: Path, limit: int | None, keep: Path | None) -> None:
    """Measure every rule on the recordings of FOLDER."""
    transcriber = bundled()
    heard: list[Heard] = []
    for name, data in recordings(folder, limit):
        heard += hear(transcriber, name, data)
        if sys.stderr.isatty():
            click.echo(f"\r{len(heard)} segments", nl=False, err=True)
        if keep is not None:
            keep.write_text(json.dumps([asdict(segment) for segment in heard]), encoding="utf-8")
    click.echo(f"{len(heard)} segments, {sum(len(segment.hypotheses) for segment in heard)} partials")
    for every, settle_s, held_back in RULES:
        click.echo(rate(heard, every, settle_s, held_back))


if __name__ == "__main__":
    main()
