"""A detector that reads its scores out of the samples: the first sample of a frame / 32768, so audio can be written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from sessions.endpointing import FRAME_BYTES
from sessions.voice import FIRST_LOUDNESS, FRAME_S, FRAME_SAMPLES, Frames, Loudness

VOICED = 0.9
SILENT = 0.1


class ScriptedVoice:
    """Stands for `EarshotDetector` in exact tests. It settles within a few frames."""

    def __init__(self) -> None:
        self._newest: deque[None] = deque(maxlen=5)

    def listen(self, frames: Frames) -> Iterator[tuple[float, float]]:
        for score in (frames[:, 0] / 32_767).round(4).tolist():
            self._newest.append(None)
            yield score, score

    def settle(self) -> tuple[int, Loudness]:
        return len(self._newest), FIRST_LOUDNESS


def audio(scores: Iterable[float]) -> bytes:
    """One frame for each score; its energy is the score."""
    frames = np.zeros((len(list_of := list(scores)), FRAME_SAMPLES), "<i2")
    frames[:, 0] = np.round(np.array(list_of, float) * 32_767)
    return frames.tobytes()


def speech(seconds: float) -> bytes:
    """Voiced frames, as many as fit."""
    return audio([VOICED] * frames_of(seconds))


def silence(seconds: float) -> bytes:
    """Silent frames, as many as fit."""
    return audio([SILENT] * frames_of(seconds))


def frames_of(seconds: float) -> int:
    """Whole frames in a time."""
    return round(seconds / FRAME_S)


def at(seconds: float) -> int:
    """The byte where the frame nearest to that time begins."""
    return frames_of(seconds) * FRAME_BYTES
