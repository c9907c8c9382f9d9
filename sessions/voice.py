"""How much each 16 ms of a stream sounds like a voice: a score in [0, 1] from `earshot`, a small recurrent network.

The network was made for speech at the usual level: 30 dB below it, its scores of speech sink into those of noise.
So what it hears is first brought to that level, by a gain that follows the stream frame by frame and from the past
alone: a score depends on nothing but the samples up to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import earshot
import numpy as np
import numpy.typing as npt

FRAME_SAMPLES = 256
FRAME_S = FRAME_SAMPLES / 16_000

Frames = npt.NDArray[np.int16]
"""Shape (n, FRAME_SAMPLES), PCM16."""


@dataclass(frozen=True, slots=True)
class Loudness:
    """What the gain of the next frame follows."""

    level: float
    """Of the loudest of the last seconds, in units of a sample."""
    before: tuple[float, ...]
    """Energies of the newest frames, oldest first."""


class VoiceDetector(Protocol):
    """Keeps state: one per stream, and every frame of it in order."""

    def listen(self, frames: Frames) -> Iterator[tuple[float, float]]:
        """Hear the next frames, one at a time: a score in [0, 1] each, and the energy of its samples around their mean.
        To be taken to its end before the next call."""

    def settle(self) -> tuple[int, Loudness]:
        """Know nothing any more but the newest frames, `SETTLING_FRAMES` of them or all there were: how many, and the
        loudness before the first. A new detector with that loudness that hears them is then in the same state."""


SETTLING_FRAMES = 31
"""Half a second. A network that has heard nothing yet takes noise for a voice: for 0.1 to 0.4 s, so it is measured."""

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


FIRST_LOUDNESS = Loudness(_FIRST_LEVEL, (0.0,) * _KNOCK_FRAMES)


class EarshotDetector:
    """`earshot` behind a gain that brings the loudest of the last seconds to -23 dBFS.

    Few NumPy calls on purpose: at 300 streams on a core, each costs as much as a fiftieth of the network.
    """

    def __init__(self, loudness: Loudness = FIRST_LOUDNESS) -> None:
        """``loudness``: that of the sound before."""
        self._network = earshot.Detector()
        self._loudness = loudness
        self._newest: deque[tuple[tuple[float, ...], npt.NDArray[np.float32]]] = deque(maxlen=SETTLING_FRAMES)
        """Each as the network heard it, with level and energies before it."""
        self._decay = 0.5 ** (FRAME_S / _HALF_LIFE_S)

    def listen(self, frames: Frames) -> Iterator[tuple[float, float]]:
        """A constant offset is no sound to the level; the network itself does not mind one."""
        exact = frames.astype(np.float64)  # sums of whole numbers below 2^53: the same in whatever order they are added
        level = self._loudness.level
        decay = self._decay
        oldest, older, old = self._loudness.before
        energies, gains, before = [], [], []
        for square, total in zip(np.vecdot(exact, exact).tolist(), np.dot(exact, _ONES).tolist(), strict=True):
            before.append((level, oldest, older, old))
            energy = max(0.0, square - total * total / FRAME_SAMPLES)
            energies.append(energy)
            level = max((min(energy, old, older, oldest) / FRAME_SAMPLES) ** 0.5, level * decay, _LOWEST_LEVEL)
            oldest, older, old = older, old, energy
            gains.append(_TARGET_RMS / level)
        self._loudness = Loudness(level, (oldest, older, old))
        heard = (exact * np.array(gains)[:, None]).astype(np.float32)
        predict, newest = self._network.predict_f32, self._newest
        for known, frame, energy in zip(before, heard, energies, strict=True):
            newest.append((known, frame))
            yield predict(frame), energy

    def settle(self) -> tuple[int, Loudness]:
        self._network.reset()
        for _, frame in self._newest:
            self._network.predict_f32(frame)
        if not self._newest:
            return 0, self._loudness
        level, *before = self._newest[0][0]
        return len(self._newest), Loudness(level, tuple(before))
