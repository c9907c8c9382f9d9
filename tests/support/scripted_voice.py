"""A detector that reads its scores out of the samples: the first sample of a frame / 32768, so audio can be written."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sessions.endpointing import FRAME_BYTES
from sessions.voice import FRAME_S, FRAME_SAMPLES, Frames, Heard

VOICED = 0.9
SILENT = 0.1


class ScriptedVoice:
    """Stands for `EarshotDetector` in exact tests."""

    def listen(self, frames: Frames) -> Heard:
        scores = (frames[:, 0] / 32_767).round(4).tolist()
        return scores, scores


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
