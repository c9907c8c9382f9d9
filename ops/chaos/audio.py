"""Known audio, and what a scripted worker must make of every range of it."""

from __future__ import annotations

import hashlib
import itertools
import random
from dataclasses import dataclass

import numpy as np

SAMPLE_RATE = 16_000
BYTES_PER_S = 2 * SAMPLE_RATE
BLOCK_BYTES = BYTES_PER_S // 2
SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")


@dataclass(frozen=True, slots=True)
class Clip:
    """Audio that streams send: PCM16LE, 16 kHz, mono."""

    name: str
    pcm: bytes

    @property
    def seconds(self) -> float:
        return len(self.pcm) / BYTES_PER_S

    def part(self, start_s: float, end_s: float) -> bytes:
        """The bytes of a range that the service named."""
        return self.pcm[2 * round(start_s * SAMPLE_RATE) : 2 * round(end_s * SAMPLE_RATE)]


def whole_hundredths(pcm: bytes) -> bytes:
    """Without what is left of a hundredth of a second at the end: the wire's times are rounded to less than a
    millisecond, and so a sample that is lost at the end of a stream shows."""
    return pcm[: len(pcm) - len(pcm) % (BYTES_PER_S // 100)]


def scripted_text(pcm: bytes) -> str:
    """The text of a scripted worker: a word for every half second that is not digital silence, spelled from a digest
    of its samples. Written down a second time here, so that the books do not trust the service's own."""
    blocks = (pcm[at : at + BLOCK_BYTES] for at in range(0, len(pcm), BLOCK_BYTES))
    return " ".join(_spell(block) for block in blocks if any(block))


def _spell(block: bytes) -> str:
    return "".join(SYLLABLES[byte % len(SYLLABLES)] for byte in hashlib.blake2b(block, digest_size=4).digest())


def voice(seconds: float, rng: random.Random) -> bytes:
    """A voice-like sound that a voice detector takes for one: harmonics of a wandering pitch, in syllables."""
    times = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    pitch = 120 + 25 * np.sin(2 * np.pi * rng.uniform(0.7, 0.8) * times)
    phase = 2 * np.pi * np.cumsum(pitch) / SAMPLE_RATE
    sound = sum(np.sin(harmonic * phase + rng.uniform(0, 1)) / harmonic for harmonic in range(1, 12))
    syllables = 0.5 - 0.5 * np.cos(2 * np.pi * 3.5 * times)
    noise = 0.01 * np.random.default_rng(rng.getrandbits(32)).standard_normal(len(times))
    return np.asarray((sound * syllables * 0.2 + noise) * 20_000, dtype="<i2").tobytes()


SHAPES: dict[str, tuple[float, ...]] = {
    "turns": (0.4, 2.0, 1.2, 1.6, 1.1, 2.4, 1.3, 1.4, 1.0, 1.8),
    "reading": (0.2, 11.0),
    "word": (0.3, 0.9),
    "late": (4.0, 2.2, 3.5, 1.5),
    "dialogue": (0.0, 3.1, 1.4, 2.6, 1.2, 2.9, 1.5, 2.2),
    "silence": (3.0,),
}
"""Seconds of silence, voice, silence, ..."""


def make_clips(rng: random.Random) -> tuple[Clip, ...]:
    """One clip for each shape. Every stretch of voice is another, so that its text tells where it was."""
    clips = []
    for name, shape in SHAPES.items():
        kinds = itertools.cycle((False, True))
        parts = [
            voice(seconds, rng) if voiced else bytes(2 * round(seconds * SAMPLE_RATE))
            for seconds, voiced in zip(shape, kinds, strict=False)
        ]
        clips.append(Clip(name, b"".join(parts)))
    return tuple(clips)
