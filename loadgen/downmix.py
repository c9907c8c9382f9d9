"""Decoded frames of any rate, format and layout to 16 kHz mono PCM16.

Mono and surround go through FFmpeg's own conversion (a 16 kHz mono PCM16 frame passes unchanged). Stereo is mixed
here: where the two channels cancel each other (one was wired inverted) their mean would be silence, so the left one
is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import av
import av.audio
import numpy as np
import numpy.typing as npt

RATE = 16_000

CANCELLED = 0.01
"""Stereo cancels out when the mean of its channels has less than this share (-20 dB) of their energy."""


class Downmixer:
    """Converts frames in order; a change of format in the middle (chained streams) is followed."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._warned: set[str] = set()
        self._resampler: av.AudioResampler | None = None
        self._source: tuple[str, str, int] | None = None
        self._stereo = False
        self._mean_energy = 0.0
        self._energy = 0.0

    def push(self, frame: av.AudioFrame) -> Iterator[bytes]:
        """Convert one frame; the resampler may keep a few milliseconds for the next."""
        source = (frame.format.name, frame.layout.name, frame.sample_rate)
        if source != self._source:
            yield from self.finish()
            self._source = source
            self._stereo = frame.layout.nb_channels == 2
            self._resampler = (
                av.AudioResampler(format="flt", layout="stereo", rate=RATE)
                if self._stereo
                else av.AudioResampler(format="s16", layout="mono", rate=RATE)
            )
        if frame.format.name.startswith(("flt", "dbl")):
            self._replace_non_numbers(frame)
        # Timestamps of damaged files jump; without them the resampler neither fills gaps nor drops overlaps.
        frame.pts = None
        yield from self._convert(frame)

    def finish(self) -> Iterator[bytes]:
        """What the resampler still holds."""
        if self._resampler is not None:
            yield from self._convert(None)
            self._resampler = None

    def _convert(self, frame: av.AudioFrame | None) -> Iterator[bytes]:
        assert self._resampler is not None
        for out in self._resampler.resample(frame):
            if out is not None and out.samples:
                samples = out.to_ndarray()[0]
                mono = self._mix(samples.reshape(-1, 2)) if self._stereo else samples.astype(np.int16, copy=False)
                yield mono.astype("<i2", copy=False).tobytes()

    def _mix(self, pairs: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
        """Shape (n, 2) in [-1, 1] to shape (n,)."""
        mean = pairs.mean(axis=1)
        self._mean_energy += float(np.square(mean).sum())
        self._energy += float(np.square(pairs).sum()) / 2
        if self._mean_energy < CANCELLED * self._energy:
            self._warn_once("the two channels cancel each other (one is inverted); the left one is used")
            mean = pairs[:, 0]
        mixed: npt.NDArray[np.int16] = np.clip(np.rint(mean * 32_768), -32_768, 32_767).astype(np.int16)
        return mixed

    def _replace_non_numbers(self, frame: av.AudioFrame) -> None:
        kind = np.float32 if frame.format.name.startswith("flt") else np.float64
        for plane in frame.planes:
            values = np.frombuffer(bytes(plane), dtype=kind)
            if not np.isfinite(values).all():
                plane.update(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0).tobytes())
                self._warn_once("samples that are not numbers (NaN or infinite) became silence")

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)
