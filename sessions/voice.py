"""How much each 16 ms of a stream sounds like a voice: a score in [0, 1] from `earshot`, a small recurrent network.

The network was made for speech at the usual level: 30 dB below it, its scores of speech sink into those of noise.
So what it hears is first brought to that level, by a gain that follows the stream frame by frame and from the past
alone: a score depends on nothing but the samples up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import earshot
import numpy as np
import numpy.typing as npt

FRAME_SAMPLES = 256
FRAME_S = FRAME_SAMPLES / 16_000

Frames = npt.NDArray[np.int16]
"""Shape (n, FRAME_SAMPLES), PCM16."""

Heard = tuple[Sequence[float], Sequence[float]]
"""For each frame a score in [0, 1], and the energy of its samples around their mean."""


class VoiceDetector(Protocol):
    """Keeps state: one per stream, and every frame of it in order."""

    def listen(self, frames: Frames) -> Heard:
        """Hear the next frames."""


_TARGET_RMS = 0.07
"""The level at which the scores part best, of full scale 1."""

_LOWEST_LEVEL = 16.0
"""In units of a sample: what stays below -66 dBFS for seconds is not made louder any more."""

_FIRST_LEVEL = 300.0
"""Before anything was heard; speech of a usual level is above it, and one that is not is found within the half-life."""

_HALF_LIFE_S = 3.0

_KNOCK_FRAMES = 3
"""What is loud in no more of them is a knock and no voice: were it the loudest of the last seconds, quiet speech after
it would not be heard for as long. 32 ms never touch more than three frames, wherever they begin."""

_ONES = np.ones(FRAME_SAMPLES)


class EarshotDetector:
    """`earshot` behind a gain that brings the loudest of the last seconds to -23 dBFS.

    Few NumPy calls on purpose: at 300 streams on a core, each costs as much as a fiftieth of the network.
    """

    def __init__(self, level: float = _FIRST_LEVEL) -> None:
        """``level``: that of the sound before, where it is known."""
        self._predict = earshot.Detector().predict_f32
        self._level = level
        self._before = (0.0,) * _KNOCK_FRAMES
        self._decay = 0.5 ** (FRAME_S / _HALF_LIFE_S)

    @property
    def level(self) -> float:
        """Of the loudest of the last seconds, in units of a sample."""
        return self._level

    def listen(self, frames: Frames) -> Heard:
        """A constant offset is no sound to the level; the network itself does not mind one."""
        exact = frames.astype(np.float64)  # sums of whole numbers below 2^53: the same in whatever order they are added
        level = self._level
        decay = self._decay
        oldest, older, old = self._before
        energies = []
        gains = []
        for square, total in zip(np.vecdot(exact, exact).tolist(), np.dot(exact, _ONES).tolist(), strict=True):
            energy = max(0.0, square - total * total / FRAME_SAMPLES)
            energies.append(energy)
            level = max((min(energy, old, older, oldest) / FRAME_SAMPLES) ** 0.5, level * decay, _LOWEST_LEVEL)
            oldest, older, old = older, old, energy
            gains.append(_TARGET_RMS / level)
        self._level = level
        self._before = oldest, older, old
        heard = (exact * np.array(gains)[:, None]).astype(np.float32)
        predict = self._predict
        return [predict(frame) for frame in heard], energies
