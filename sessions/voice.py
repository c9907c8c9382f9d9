"""How much each 16 ms of a stream sounds like a voice: a score in [0, 1] from `earshot`, a small recurrent network.

The network was made for speech at the usual level: 30 dB below it, its scores of speech sink into those of noise.
So what it hears is first brought to that level by a gain that follows the stream (`_Level`), frame by frame and from
the past alone: a score depends on nothing but the samples up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import earshot
import numpy as np
import numpy.typing as npt

FRAME_SAMPLES = 256
FRAME_S = FRAME_SAMPLES / 16_000

Frames = npt.NDArray[np.float32]
"""Shape (n, FRAME_SAMPLES), samples in [-1, 1]."""


class VoiceDetector(Protocol):
    """Keeps state: one per stream, and every frame of it in order."""

    def scores(self, frames: Frames) -> Sequence[float]:
        """One score in [0, 1] for each frame."""


_TARGET_RMS = 0.2
_LOWEST_LEVEL = 5e-4
"""What is quieter than -66 dBFS over seconds is no speech, and stays quiet."""
_FIRST_LEVEL = 0.03
_HALF_LIFE_S = 3.0


class EarshotDetector:
    """`earshot` behind a gain that brings the loudest of the last seconds to -14 dBFS."""

    def __init__(self) -> None:
        self._detector = earshot.Detector()
        self._level = _FIRST_LEVEL
        self._decay = 0.5 ** (FRAME_S / _HALF_LIFE_S)

    def scores(self, frames: Frames) -> list[float]:
        """A constant offset counts as no sound, neither for the level nor, after `frames` minus its mean, at all."""
        centred = frames - frames.mean(axis=1, keepdims=True)
        rms = np.sqrt(np.einsum("ij,ij->i", centred, centred) / FRAME_SAMPLES).tolist()
        levels = np.empty((len(rms), 1), np.float32)
        level = self._level
        for index, value in enumerate(rms):
            level = max(value, level * self._decay, _LOWEST_LEVEL)
            levels[index] = level
        self._level = level
        heard = np.clip(frames * (_TARGET_RMS / levels), -1.0, 1.0)
        return [self._detector.predict_f32(frame) for frame in heard]
