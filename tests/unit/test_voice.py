"""The detector: one score per frame, the same bit for bit however many frames come at a time."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

from sessions.voice import FRAME_SAMPLES, EarshotDetector, Frames
from tests.support.recordings import recording

Samples = npt.NDArray[np.int16]


def frames_of(data: bytes) -> Frames:
    whole = len(data) // (2 * FRAME_SAMPLES) * FRAME_SAMPLES
    return np.frombuffer(data, "<i2")[:whole].reshape(-1, FRAME_SAMPLES)


def test_scores_do_not_depend_on_how_many_frames_come_at_a_time(rng: random.Random) -> None:
    frames = frames_of(recording("sample"))
    together = EarshotDetector().listen(frames)
    detector = EarshotDetector()
    scores: list[float] = []
    energies: list[float] = []
    position = 0
    while position < len(frames):
        size = rng.choice((1, 1, 2, 3, 7, 64))
        some = detector.listen(frames[position : position + size])
        scores += some[0]
        energies += some[1]
        position += size
    assert (scores, energies) == together


def test_speech_scores_high_and_silence_low_at_any_loudness() -> None:
    speech = frames_of(recording("sample"))
    for gain in (1.0, 0.1, 0.03):
        scores, _ = EarshotDetector().listen((speech * gain).round().astype("<i2"))
        assert np.quantile(np.array(scores), 0.6) > 0.8
    silent, energies = EarshotDetector().listen(np.zeros((100, FRAME_SAMPLES), "<i2"))
    assert max(silent) < 0.35
    assert set(energies) == {0.0}


def test_a_constant_offset_is_no_energy() -> None:
    offset = np.full((5, FRAME_SAMPLES), 1_500, "<i2")
    assert set(EarshotDetector().listen(offset)[1]) == {0.0}


@pytest.mark.parametrize("knock_ms", [1, 6, 12, 20, 32])
@pytest.mark.parametrize("gain", [0.1, 0.03])
def test_a_knock_leaves_quiet_speech_after_it_audible(knock_ms: int, gain: float, rng: random.Random) -> None:
    speech = (np.frombuffer(recording("sample"), "<i2")[: 5 * 16_000] * gain).round().astype("<i2")
    quiet = np.array([rng.randint(-2, 2) for _ in range(8_000 + rng.randrange(FRAME_SAMPLES))], "<i2")
    knock = np.array([rng.choice((-30_000, 30_000)) for _ in range(knock_ms * 16)], "<i2")

    def voiced(*before: Samples) -> int:
        pcm = np.concatenate([*before, quiet, speech]).tobytes()
        return sum(score >= 0.45 for score in EarshotDetector().listen(frames_of(pcm))[0])

    undisturbed = voiced(quiet)
    assert undisturbed > 100
    assert voiced(quiet, knock) > 0.9 * undisturbed
