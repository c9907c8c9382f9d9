"""Sound, whatever it is, is never taken for a file, for text or for another sample format."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.errors import WrongAudio
from sessions.sniff import Sniffer

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no fault of the code."""

RATE = 16_000

OFF_CLOCK = 1.000731
"""No source of sound is locked to our sampling clock; tones that are get a test of their own."""

frequencies = st.sampled_from([50.0, 440.0, 1_000.0, 2_000.0, 4_000.0, 5_333.333]) | st.floats(20, 7_000)
amplitudes = st.sampled_from([1.0, 10.0, 127.0, 255.0, 16_384.0, 32_767.0]) | st.floats(0, 40_000)


@st.composite
def signals(draw: st.DrawFn) -> npt.NDArray[np.int16]:
    """Sums of silence, noise, tones, square waves, clicks and a constant, clipped; some with 8-bit steps."""
    count = draw(st.integers(1, 20_000))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    time = np.arange(count) / RATE
    x = np.full(count, float(draw(st.sampled_from([0, 0, 0, 5, -300, 15_000, -17_000, 30_000]))))
    for kind in draw(st.lists(st.sampled_from(["noise", "tone", "square", "clicks", "sweep", "pink"]), max_size=3)):
        level, phase = draw(amplitudes), draw(st.floats(0, 6.3))
        angle = 2 * np.pi * OFF_CLOCK * draw(frequencies) * time + phase
        if kind == "noise":
            x += rng.normal(0, level + 1e-9, count)
        elif kind == "pink":
            x += np.cumsum(rng.normal(0, level / 20 + 1e-9, count))
        elif kind == "tone":
            x += level * np.sin(angle)
        elif kind == "sweep":
            x += level * np.sin(angle * (1 + time))
        elif kind == "square":
            x += level * np.sign(np.sin(angle))
        else:
            x[rng.integers(0, count, 5)] += level
    x = np.clip(x, -32_768, 32_767)
    if draw(st.booleans()):
        x = np.floor(x / 256) * 256  # what an 8-bit recording becomes
    return np.asarray(x, "<i2")


@given(signals(), st.integers(1, 5_000))
@settings(patient, max_examples=300)
def test_sound_passes_unchanged(signal: npt.NDArray[np.int16], step: int) -> None:
    data = signal.tobytes()
    sniffer = Sniffer()
    out = b"".join(sniffer.feed(data[at : at + step]) for at in range(0, len(data), step)) + sniffer.end()
    assert out == data


@pytest.mark.parametrize("frequency", [50, 100, 125, 440, 500, 1_000, 2_000, 2_500, 3_200, 4_000, 5_000, 6_000, 8_000])
def test_tones_locked_to_the_sampling_clock_pass(frequency: int) -> None:
    time = np.arange(20_000) / RATE
    for level in (30, 1_000, 16_384, 20_000, 32_767):
        for phase in np.linspace(0, np.pi, 9):
            for wave in (np.sin, lambda angle: np.sign(np.sin(angle))):
                for faint in (0.0, 3.0):
                    x = level * wave(2 * np.pi * frequency * time + phase) + faint * np.sin(1_000.3 * time)
                    data = np.clip(x, -32_768, 32_767).astype("<i2").tobytes()
                    sniffer = Sniffer()
                    assert sniffer.feed(data) + sniffer.end() == data, (level, phase, faint)


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_every_level_passes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for level in (1, 3, 30, 300, 3_000, 30_000):
        data = np.clip(rng.normal(0, level, 70_000), -32_768, 32_767).astype("<i2").tobytes()
        sniffer = Sniffer()
        assert sniffer.feed(data) + sniffer.end() == data
    data = rng.integers(-32_768, 32_768, 70_000).astype("<i2").tobytes()
    sniffer = Sniffer()
    assert sniffer.feed(data) + sniffer.end() == data


@given(st.binary(max_size=400), st.integers(1, 64))
@settings(patient)
def test_any_bytes_are_passed_on_or_refused_the_same_however_they_are_cut(data: bytes, step: int) -> None:
    def outcome(size: int) -> bytes | str:
        sniffer, out = Sniffer(), b""
        try:
            for at in range(0, len(data), size):
                out += sniffer.feed(data[at : at + size])
            return out + sniffer.end()
        except WrongAudio as error:
            return error.cause

    assert outcome(step) == outcome(len(data) or 1)
