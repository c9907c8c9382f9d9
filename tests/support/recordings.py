"""The project's own recordings as PCM16: real speech for what listens to speech."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import av

DATA = Path(__file__).resolve().parents[1] / "data"


@cache
def recording(name: str) -> bytes:
    """``tests/data/NAME.flac`` as 16 kHz mono PCM16LE: "sample" (10.3 s) or "pauses" (39.8 s, seven sentences)."""
    with av.open(str(DATA / f"{name}.flac")) as container:
        resampler = av.AudioResampler(format="s16", layout="mono", rate=16_000)
        frames = [out for frame in container.decode(audio=0) for out in resampler.resample(frame)]
        frames += resampler.resample(None)
        return b"".join(frame.to_ndarray().tobytes() for frame in frames)
