"""Sounds for tests: the project's own speech, and sound that is no speech; float32, 16 kHz mono, as PCM16 gives it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from faster_whisper.audio import decode_audio

RATE = 16_000
DATA = Path(__file__).resolve().parent.parent / "data"
Samples = npt.NDArray[np.float32]


@cache
def recording(name: str) -> Samples:
    """``tests/data/NAME.flac``."""
    samples: Samples = decode_audio(str(DATA / f"{name}.flac"))
    return samples


def words_of(name: str) -> str:
    """What is said in it, in one line."""
    return " ".join((DATA / f"{name}.txt").read_text().split())


def ending_with_speech(samples: Samples, seconds: float, tail_s: float = 0.1) -> Samples:
    """The last ``seconds`` of ``samples``, cut ``tail_s`` after the last sound."""
    end = int(np.flatnonzero(np.abs(samples) > 1e-3)[-1]) + 1 + int(tail_s * RATE)
    samples = np.pad(samples, (0, max(0, end - len(samples))))[:end]
    length = round(seconds * RATE)
    assert length <= len(samples), f"only {len(samples) / RATE:.1f} s are there"
    return samples[len(samples) - length :]


def silence(seconds: float) -> Samples:
    return np.zeros(int(seconds * RATE), np.float32)


def white_noise(seconds: float, level_db: float, seed: int = 1) -> Samples:
    """White noise of this RMS level in dB below full scale."""
    noise = np.random.default_rng(seed).normal(0.0, 10 ** (level_db / 20), int(seconds * RATE))
    return _pcm(noise)


def brown_noise(seconds: float, level_db: float, seed: int = 1) -> Samples:
    """Rumble, as of wind or a fan."""
    walk = np.cumsum(np.random.default_rng(seed).normal(0.0, 1.0, int(seconds * RATE)))
    walk -= np.convolve(walk, np.ones(4_000) / 4_000, mode="same")
    return _pcm(walk / np.sqrt(np.mean(walk**2)) * 10 ** (level_db / 20))


def hum(seconds: float, hertz: float = 50.0) -> Samples:
    """Mains hum with its harmonics."""
    return _pcm(sum(0.1 / harmonic * np.sin(_turns(seconds) * hertz * harmonic) for harmonic in range(1, 7)))


def tone(seconds: float, hertz: float = 440.0) -> Samples:
    return _pcm(0.25 * np.sin(_turns(seconds) * hertz))


def touch_tones(seconds: float) -> Samples:
    """Telephone keys, a tenth of a second each with pauses."""
    rows, columns = (697, 770, 852, 941), (1209, 1336, 1477)
    pieces = []
    for key in range(int(seconds / 0.2)):
        pair = np.sin(_turns(0.1) * rows[key % 4]) + np.sin(_turns(0.1) * columns[key % 3])
        pieces += [0.2 * pair, np.zeros(RATE // 10)]
    return _pcm(np.concatenate(pieces))


def music(seconds: float, seed: int = 1) -> Samples:
    """A melody of plucked strings over a bass, four notes a second."""
    rng = np.random.default_rng(seed)
    scale = (261.6, 293.7, 329.6, 349.2, 392.0, 440.0, 493.9, 523.3)
    decay = np.exp(-4 * np.arange(RATE // 4) / RATE)
    notes = []
    for _ in range(int(seconds * 4)):
        pitch = scale[rng.integers(len(scale))]
        strings = sum(np.sin(_turns(0.25) * pitch * partial) / partial for partial in range(1, 7))
        notes.append(0.1 * decay * (strings + np.sin(_turns(0.25) * pitch / 4)))
    return _pcm(np.concatenate(notes))


def clicks(seconds: float) -> Samples:
    """A sample at full scale four times a second."""
    samples = silence(seconds)
    samples[:: RATE // 4] = 0.9
    return samples


def direct_current(seconds: float) -> Samples:
    """A constant offset under faint noise."""
    return _pcm(0.3 + np.random.default_rng(1).normal(0.0, 0.001, int(seconds * RATE)))


NOT_SPEECH: dict[str, Callable[[], Samples]] = {
    "white noise": lambda: white_noise(12, -30),
    "loud white noise": lambda: white_noise(6, -12),
    "faint white noise": lambda: white_noise(6, -55),
    "brown noise": lambda: brown_noise(8, -20),
    "hum of 50 Hz": lambda: hum(10, 50),
    "hum of 120 Hz": lambda: hum(10, 120),
    "tone": lambda: tone(5),
    "touch tones": lambda: touch_tones(4),
    "music": lambda: music(15),
    "clicks": lambda: clicks(5),
    "direct current": lambda: direct_current(5),
    "very short noise": lambda: white_noise(0.1, -20),
    "one sample": lambda: tone(1)[5:6],
}


def _turns(seconds: float) -> npt.NDArray[np.float64]:
    return 2 * np.pi * np.arange(int(seconds * RATE)) / RATE


def _pcm(samples: npt.NDArray[np.float64] | float) -> Samples:
    """Rounded to 16 bits and back."""
    return (np.clip(np.round(np.asarray(samples) * 32768), -32768, 32767) / 32768).astype(np.float32)
