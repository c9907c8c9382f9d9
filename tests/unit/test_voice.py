"""The detector: one score per frame, the same bit for bit however many frames come at a time."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

from sessions.segments import ONSET
from sessions.voice import FRAME_SAMPLES, SETTLING_FRAMES, EarshotDetector, Frames
from tests.support.recordings import recording

Samples = npt.NDArray[np.int16]


def frames_of(data: bytes) -> Frames:
    whole = len(data) // (2 * FRAME_SAMPLES) * FRAME_SAMPLES
    return np.frombuffer(data, "<i2")[:whole].reshape(-1, FRAME_SAMPLES)


def heard(frames: Frames) -> tuple[list[float], list[float]]:
    """Scores and energies."""
    scores, energies = zip(*EarshotDetector().listen(frames), strict=True)
    return list(scores), list(energies)


def test_scores_do_not_depend_on_how_many_frames_come_at_a_time(rng: random.Random) -> None:
    frames = frames_of(recording("sample"))
    together = list(EarshotDetector().listen(frames))
    detector = EarshotDetector()
    found: list[tuple[float, float]] = []
    position = 0
    while position < len(frames):
        size = rng.choice((1, 1, 2, 3, 7, 64))
        found += detector.listen(frames[position : position + size])
        position += size
    assert found == together


def test_speech_scores_high_and_silence_low_at_any_loudness() -> None:
    speech = frames_of(recording("sample"))
    for gain in (1.0, 0.1, 0.03):
        scores, _ = heard((speech * gain).round().astype("<i2"))
        assert np.quantile(np.array(scores), 0.6) > 0.8
    silent, energies = heard(np.zeros((100, FRAME_SAMPLES), "<i2"))
    assert max(silent) < 0.35
    assert set(energies) == {0.0}


def test_a_constant_offset_is_no_energy() -> None:
    offset = np.full((5, FRAME_SAMPLES), 1_500, "<i2")
    assert set(heard(offset)[1]) == {0.0}


@pytest.mark.parametrize("knock_ms", [1, 6, 12, 20, 32])
@pytest.mark.parametrize("gain", [0.1, 0.03])
def test_a_knock_leaves_quiet_speech_after_it_audible(knock_ms: int, gain: float, rng: random.Random) -> None:
    speech = (np.frombuffer(recording("sample"), "<i2")[: 5 * 16_000] * gain).round().astype("<i2")
    quiet = np.array([rng.randint(-2, 2) for _ in range(8_000 + rng.randrange(FRAME_SAMPLES))], "<i2")
    knock = np.array([rng.choice((-30_000, 30_000)) for _ in range(knock_ms * 16)], "<i2")

    def voiced(*before: Samples) -> int:
        pcm = np.concatenate([*before, quiet, speech]).tobytes()
        return sum(score >= 0.45 for score in heard(frames_of(pcm))[0])

    undisturbed = voiced(quiet)
    assert undisturbed > 100
    assert voiced(quiet, knock) > 0.9 * undisturbed


def test_a_detector_that_has_settled_is_known_by_its_last_frames(rng: random.Random) -> None:
    frames = frames_of(recording("pauses"))
    detector = EarshotDetector()
    position = 0
    for _ in range(6):
        size = rng.choice((1, SETTLING_FRAMES - 1, 100, 300))
        for _score in detector.listen(frames[position : position + size]):
            position += 1
    count, loudness = detector.settle()
    assert count == min(position, SETTLING_FRAMES)
    other = EarshotDetector(loudness)
    assert len(list(other.listen(frames[position - count : position]))) == count
    assert list(other.listen(frames[position:])) == list(detector.listen(frames[position:]))


def test_a_detector_may_settle_between_the_frames_that_it_is_given() -> None:
    frames = frames_of(recording("sample"))
    detector, by_one = EarshotDetector(), EarshotDetector()
    together = []
    for at, heard in enumerate(detector.listen(frames)):
        together.append(heard)
        if at in (3, 200):
            marked = detector.settle()
    for at, frame in enumerate(frames):
        assert list(by_one.listen(frame[None])) == [together[at]]
        if at in (3, 200):
            assert at == 3 or by_one.settle() == marked
            if at == 3:
                by_one.settle()


def test_noise_is_no_voice_to_a_detector_that_has_just_settled(rng: random.Random) -> None:
    noise = np.array([rng.gauss(0, 300) for _ in range(400 * FRAME_SAMPLES)]).astype("<i2").reshape(-1, FRAME_SAMPLES)
    detector = EarshotDetector()
    list(detector.listen(noise[:200]))
    for frame in noise[200:]:
        detector.settle()
        ((score, _),) = detector.listen(frame[None])
        assert score < ONSET
