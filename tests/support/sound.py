"""PCM16 that passes for speech with the format checks, and the text that scripted workers make of it."""

from __future__ import annotations

import hashlib

import numpy as np


def speech(seconds: float, seed: int = 0) -> bytes:
    """A voice-like sound: harmonics of a wandering pitch in syllables, 16 kHz mono PCM16."""
    count = round(seconds * 16_000)
    t = np.arange(count) / 16_000
    rng = np.random.default_rng(seed)
    pitch = 120 + 25 * np.sin(2 * np.pi * (0.7 + 0.1 * rng.random()) * t)
    phase = 2 * np.pi * np.cumsum(pitch) / 16_000
    voice = sum(np.sin(h * phase + rng.random()) / h for h in range(1, 12))
    syllables = 0.5 - 0.5 * np.cos(2 * np.pi * 3.5 * t)
    noise = 0.01 * rng.standard_normal(count)
    return np.asarray((voice * syllables * 0.2 + noise) * 20_000, dtype="<i2").tobytes()


def text_of(data: bytes) -> str:
    """What a scripted worker hears: depends on every byte."""
    return f"heard {len(data)} bytes {hashlib.sha256(data).hexdigest()[:12]}"
