"""From samples to the encoder's states, over a window as short as the audio allows.

Whisper was trained on windows of 30 s that hold silence behind short speech, and its decoder ends a text well only
when it finds that silence. So the audio's features are padded with zero *features* (padded samples would change the
features of the audio itself, which are clamped by their maximum) up to a short window, the encoder runs on that, and
behind its states come the ones it has for silence at those places: computed once, costing the encoder nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ctranslate2
import numpy as np
import numpy.typing as npt
from faster_whisper.feature_extractor import FeatureExtractor

FRAMES_PER_S = 100
STATES_PER_S = 50
LEAST_WINDOW_S = 2
FULL_WINDOW_S = 30

Features = npt.NDArray[np.float32]
"""Log-mel features of shape (mels, frames)."""

States = npt.NDArray[Any]
"""Encoder states of shape (batch, states, width), in the model's own arithmetic where numpy has it."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """How a window is sized: zero features for at least ``padding_s`` seconds behind the audio, and states of silence
    for ``silence_s`` more seconds behind the window. None in place of a sizing stands for the full window."""

    padding_s: float
    silence_s: float


def window_for(audio_s: float, sizing: Sizing | None) -> int:
    """The encoder window in whole seconds for ``audio_s`` seconds: the smallest that holds them and the padding, at
    least `LEAST_WINDOW_S` and at most the full one."""
    if sizing is None:
        return FULL_WINDOW_S
    return min(max(math.ceil(audio_s + sizing.padding_s), LEAST_WINDOW_S), FULL_WINDOW_S)


class Encoder:
    """Features and encoder of one model."""

    def __init__(self, model: ctranslate2.models.Whisper) -> None:
        self._model = model
        self._extract = FeatureExtractor(feature_size=model.n_mels)

    def features(self, samples: npt.NDArray[np.float32]) -> Features:
        """Log-mel features of samples of shape (n,), one column for each 10 ms."""
        found: Features = self._extract(samples)[..., :-1]
        return found

    def states(self, batch: Sequence[Features], window_s: int, silence_s: float = 0.0) -> States:
        """The states of each member over ``window_s`` seconds, and of ``silence_s`` seconds of silence behind."""
        frames = window_s * FRAMES_PER_S
        padded = np.zeros((len(batch), self._model.n_mels, frames), np.float32)
        for row, features in zip(padded, batch, strict=True):
            kept = features[:, :frames]
            row[:, : kept.shape[1]] = kept
        states = self._encode(padded)
        first = window_s * STATES_PER_S
        last = min(first + int(silence_s * STATES_PER_S), FULL_WINDOW_S * STATES_PER_S)
        if last <= first:
            return states
        silence = np.broadcast_to(self._silence[:, first:last], (len(batch), last - first, states.shape[2]))
        return np.concatenate([states, silence], axis=1)

    def view(self, states: States) -> ctranslate2.StorageView:
        """States as CTranslate2 takes them."""
        view = ctranslate2.StorageView.from_array(np.ascontiguousarray(states))
        if self._is_bfloat16:
            view = view.to(ctranslate2.DataType.bfloat16)
        return view

    @cached_property
    def _silence(self) -> States:
        return self._encode(np.zeros((1, self._model.n_mels, FULL_WINDOW_S * FRAMES_PER_S), np.float32))

    @property
    def _is_bfloat16(self) -> bool:
        return "bfloat16" in str(self._model.compute_type)

    def _encode(self, features: npt.NDArray[np.float32]) -> States:
        # A view shares the array's memory, so the array must outlive the call: it is held by this frame.
        states = self._model.encode(ctranslate2.StorageView.from_array(features), to_cpu=True)
        if self._is_bfloat16:  # numpy knows no such numbers
            states = states.to(ctranslate2.DataType.float32)
        return np.array(states)
