"""What a load run plays: clips with their reference texts, and which one begins when."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loadgen.arrivals import Arrivals, offsets
from loadgen.clips import BYTES_PER_SECOND, ClipError, Warn, load_clip

AUDIO_SUFFIXES = frozenset({".flac", ".wav", ".ogg", ".mp3", ".m4a", ".opus", ".aiff"})
MAX_CLIPS = 1_000
MAX_HELD_BYTES = 2**30
"""Sound held in memory by one run."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording as PCM16; ``reference`` is None where nobody knows what is said."""

    id: str
    audio: bytes
    reference: str | None = None

    @property
    def seconds(self) -> float:
        return len(self.audio) / BYTES_PER_SECOND


@dataclass(frozen=True, slots=True)
class PlannedStream:
    """A clip to be streamed from ``at_s`` seconds after the start of the run."""

    at_s: float
    clip: Clip


@dataclass(frozen=True, slots=True)
class Scenario:
    """A run in full: the same arguments give the same scenario."""

    streams: list[PlannedStream]
    clips: list[Clip]
    """Every clip that is played, once."""


def load_clips(folder: Path, count: int, max_clip_s: float, rng: random.Random, warn: Warn) -> list[Clip]:
    """Up to ``count`` clips of at most ``max_clip_s``, in an order drawn by ``rng``.

    A folder with a ``manifest.csv`` (id, file, seconds, reference) plays its rows; any other plays its audio
    files, with ``NAME.txt`` beside ``NAME.flac`` as reference. Raises `ClipError` when nothing is found.
    """
    entries = sorted(_manifest(folder) if (folder / "manifest.csv").is_file() else _files(folder))
    rng.shuffle(entries)
    clips: list[Clip] = []
    held = 0
    for name, path, reference in entries:
        if len(clips) >= min(count, MAX_CLIPS):
            break
        try:
            audio = load_clip(path, warn, limit_s=max_clip_s)
        except ClipError as error:
            if "longer than" not in error.problem:
                raise
            continue
        held += len(audio)
        if held > MAX_HELD_BYTES:
            warn(f"{folder}: the run uses the first {len(clips)} clips, as more would need over 1 GiB")
            break
        clips.append(Clip(name, audio, reference))
    if not clips:
        raise ClipError(str(folder), f"no recordings of at most {max_clip_s:g} s in it")
    return clips


def plan(
    clips: list[Clip],
    arrivals: Arrivals,
    streams: int,
    duration_s: float | None,
    rng: random.Random,
    speed: float = 1.0,
) -> Scenario:
    """Give every arrival a clip, in turn; a clip takes its seconds / ``speed`` (speed 0: as if it were 1).

    Raises ValueError as `offsets` does.
    """
    mean_s = sum(clip.seconds for clip in clips) / len(clips) / (speed or 1.0)
    starts = offsets(arrivals, streams, mean_s, duration_s, rng)
    planned = [PlannedStream(at, clips[index % len(clips)]) for index, at in enumerate(starts)]
    return Scenario(planned, clips[: len(planned)])


def _manifest(folder: Path) -> Iterator[tuple[str, Path, str | None]]:
    with (folder / "manifest.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            try:
                yield row["id"], folder / row["file"], row.get("reference") or None
            except KeyError as error:
                raise ClipError(str(folder / "manifest.csv"), f"a column {error} is missing") from None


def _files(folder: Path) -> Iterator[tuple[str, Path, str | None]]:
    if not folder.is_dir():
        raise ClipError(str(folder), "there is no such folder")
    for path in folder.iterdir():
        if path.suffix.lower() in AUDIO_SUFFIXES:
            text = path.with_suffix(".txt")
            yield path.name, path, " ".join(text.read_text(encoding="utf-8").split()) if text.is_file() else None
