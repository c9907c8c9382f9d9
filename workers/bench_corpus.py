"""What the decoding benchmark listens to: a folder of recordings with their texts, and streams made of them.

A folder holds ``manifest.csv`` (columns ``id``, ``file``, ``reference``), or audio files with ``NAME.txt`` beside
``NAME.flac``; unusual inputs are in its ``edge/`` with ``edge.csv`` (columns ``file``, ``expected``, ``reference``,
``derived_from``).
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from workers.transcriber import SAMPLE_RATE, samples_of

Samples = npt.NDArray[np.float32]

AUDIO_SUFFIXES = frozenset({".flac", ".wav", ".ogg", ".mp3", ".m4a", ".opus"})

PAUSE_S = (0.9, 1.6)
"""Between two utterances of a made stream: longer than the pause that ends a segment, as between two sentences."""

FLOOR_DBFS = -70.0
"""Level of the noise in those pauses; digital silence would be easier than any microphone."""

NOT_SPEECH = ("music", "hum", "noise-white")
"""Edge files of speech with these under it: taking the clean recording away leaves the music, the hum, the noise."""


HARD_GROUPS = ("content", "long", "real")


class BenchError(Exception):
    """The benchmark cannot run; the text says what to do. ``exit_status``: that of the command, as of all commands."""

    exit_status = 1


class Missing(BenchError):
    """Something that is needed is not there: a package, the recordings."""

    exit_status = 3


class WrongUse(BenchError):
    """An argument is wrong."""

    exit_status = 2


@dataclass(frozen=True, slots=True)
class Recording:
    """16 kHz mono samples, float32 in [-1, 1), with what is said in them (None where nobody knows)."""

    id: str
    samples: Samples
    reference: str | None

    @property
    def audio_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE


def load_recordings(folder: Path, limit: int | None = None) -> list[Recording]:
    """The folder's recordings that have a text, shortest first; with ``limit`` so many of them, of all lengths.

    Raises `Missing` when there are none or one cannot be read.
    """
    entries = sorted(_manifest(folder) if (folder / "manifest.csv").is_file() else _files(folder))
    if not entries:
        raise Missing(f"no recordings with texts in {folder}; it needs manifest.csv, or NAME.txt beside NAME.flac")
    if limit is not None and limit < len(entries):
        # The lengths are not known yet; every n-th by name keeps the speakers mixed.
        entries = [entries[index * len(entries) // limit] for index in range(limit)]
    recordings = [Recording(name, read_audio(path), text) for name, path, text in entries]
    return sorted(recordings, key=lambda recording: (len(recording.samples), recording.id))


def read_audio(path: Path) -> Samples:
    """A file as 16 kHz mono float32; raises `Missing`."""
    from faster_whisper.audio import decode_audio

    try:
        samples: Samples = decode_audio(str(path), sampling_rate=SAMPLE_RATE)
    except Exception as error:  # PyAV has an exception class for every FFmpeg error
        raise Missing(f"{path} cannot be read: {error}") from error
    return samples


def _manifest(folder: Path) -> Iterator[tuple[str, Path, str]]:
    for row in _rows(folder / "manifest.csv"):
        try:
            yield row["id"], folder / row["file"], row["reference"]
        except KeyError as error:
            raise Missing(f"{folder / 'manifest.csv'} lacks the column {error}") from None


def _files(folder: Path) -> Iterator[tuple[str, Path, str]]:
    if not folder.is_dir():
        raise Missing(f"there is no folder {folder}")
    for path in folder.iterdir():
        text = path.with_suffix(".txt")
        if path.suffix.lower() in AUDIO_SUFFIXES and text.is_file():
            yield path.stem, path, " ".join(text.read_text(encoding="utf-8").split())


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise Missing(f"cannot read {path}: {error.strerror}") from error


def load_silent(folder: Path) -> list[Recording]:
    """What nobody speaks in: the edge files that must give no text, and music, hum and noise without their speech.

    Empty where the folder has no ``edge.csv``.
    """
    if not (folder / "edge.csv").is_file():
        return []
    silent = []
    for row in _rows(folder / "edge.csv"):
        name = Path(row["file"]).stem
        if row["expected"].startswith("No text"):
            silent.append(Recording(name, read_audio(folder / row["file"]), ""))
        elif name.startswith(NOT_SPEECH):
            clean = folder / "utt" / f"{row['derived_from']}.flac"
            if clean.is_file():
                mixed = read_audio(folder / row["file"])
                silent.append(Recording(f"{name} without its speech", without(mixed, read_audio(clean)), ""))
    return silent


def without(mixed: Samples, clean: Samples) -> Samples:
    """What is left of a mix when the clean recording, scaled by least squares, is taken out of it."""
    shared = min(len(mixed), len(clean))
    part = clean[:shared]
    scale = float(mixed[:shared] @ part) / max(float(part @ part), 1e-12)
    left = mixed.copy()
    left[:shared] -= np.float32(scale) * part
    return left


def load_hard(folder: Path) -> list[Recording]:
    """Speech under difficulties: the readable edge files of sound quality and length that have a text."""
    if not (folder / "edge.csv").is_file():
        return []
    rows = [row for row in _rows(folder / "edge.csv") if row["group"] in HARD_GROUPS and row["reference"]]
    return [Recording(Path(row["file"]).stem, read_audio(folder / row["file"]), row["reference"]) for row in rows]


def to_pcm(samples: Samples) -> bytes:
    """As PCM16LE; the inverse of `samples_of` for audio that came as 16 bits."""
    return np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2").tobytes()


def endless(recordings: Sequence[Recording], rng: random.Random) -> Iterator[bytes]:
    """A speaker who never ends, as PCM16LE pieces: the recordings in random order, again and again, with pauses of
    `PAUSE_S` filled with noise at `FLOOR_DBFS`."""
    noise = np.random.default_rng(rng.getrandbits(32))
    while True:
        for recording in rng.sample(recordings, len(recordings)):
            yield to_pcm(recording.samples)
            pause = round(rng.uniform(*PAUSE_S) * SAMPLE_RATE)
            yield to_pcm(noise.normal(0.0, 10 ** (FLOOR_DBFS / 20), pause).astype(np.float32))


def stream_of(recordings: Sequence[Recording], seconds: float, rng: random.Random) -> Iterator[bytes]:
    """The first ``seconds`` of `endless`."""
    left = round(seconds * SAMPLE_RATE) * 2
    for piece in endless(recordings, rng):
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


def part(recording: Recording, seconds: float) -> Samples:
    """The first ``seconds`` of it."""
    return recording.samples[: round(seconds * SAMPLE_RATE)]


def pieces(recording: Recording, most_s: float) -> list[Samples]:
    """The recording as what may be decoded at once: itself, or what the endpointer without a pause rule makes of it."""
    if recording.audio_s <= most_s:
        return [recording.samples]
    from sessions.endpointing import Endpointer

    pcm = to_pcm(recording.samples)
    endpointer = Endpointer(None)
    segments = endpointer.feed(pcm)
    last = endpointer.finish()
    return [samples_of(pcm[s.start_byte : s.end_byte]) for s in [*segments, *([last] if last is not None else [])]]
