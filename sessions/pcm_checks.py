"""Sample formats that PCM16 is often mistaken for: told by statistics of the first seconds with sound in them.

Each check rests on a structure that a microphone's samples, noise, tones or silence cannot have; tests
hold them against real recordings. What cannot be told: 8 kHz audio (it is just faster speech), mu-law,
headerless codecs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

BLOCK_BYTES = 16_384
"""Audio that is judged at a time: 0.5 s, and a whole number of samples of every format in question."""

MAX_BLOCKS = 8
"""Blocks until the stream is taken for what it says it is."""

MIN_BYTES = 2_048
"""Less is not judged."""

_GRAIN = 1_024

_HALF_EMPTY = "32-bit integer samples, or stereo with one silent channel"
_STEREO = "interleaved stereo, or audio of half the sample rate with every sample repeated"
_INTERLEAVED = (_HALF_EMPTY, _STEREO)

Samples = npt.NDArray[np.float64]


class PcmChecks:
    """Watches a stream that passes by until it is sure; raises nothing, `feed` returns the likely cause or None."""

    def __init__(self) -> None:
        self._grain = bytearray()
        self._block = bytearray()
        self._blocks = 0
        self._suspect: str | None = None

    @property
    def finished(self) -> bool:
        """Nothing more is looked at."""
        return self._blocks >= MAX_BLOCKS

    def feed(self, data: bytes) -> str | None:
        """Look at the next bytes of the stream."""
        position = 0
        while position < len(data) and not self.finished:
            step = min(_GRAIN - len(self._grain), len(data) - position)
            self._grain += data[position : position + step]
            position += step
            if len(self._grain) == _GRAIN:
                if any(self._grain):
                    self._block += self._grain
                self._grain.clear()
            if len(self._block) == BLOCK_BYTES:
                cause = self._judge()
                if cause is not None:
                    return cause
        return None

    def end(self) -> str | None:
        """The stream ends: judge what there is, if it is enough."""
        return None if self.finished or len(self._block) < MIN_BYTES else self._judge()

    def _judge(self) -> str | None:
        cause = judge(bytes(self._block))
        self._block.clear()
        self._blocks += 1
        if cause in _INTERLEAVED and cause != self._suspect:
            # Two channels that sound alike for half a second may be chance; a format is there all the time.
            self._suspect = cause
            return None
        return cause


def judge(block: bytes) -> str | None:
    """The likely cause why ``block`` is not 16 kHz mono PCM16; None when nothing speaks against it."""
    block = block[: len(block) // 8 * 8]
    for kind, cause in (("<f4", "32-bit float samples"), ("<f8", "64-bit float samples"),
                        (">f4", "big-endian 32-bit float samples")):  # fmt: skip
        if _is_float(block, kind):
            return cause
    samples = np.frombuffer(block, "<i2").astype(np.float64)
    if _is_swapped(samples, np.frombuffer(block, ">i2").astype(np.float64)):
        return "big-endian 16-bit samples, or samples shifted by one byte"
    # Within a few pitch periods a voice can look like two channels, within half a second it does not.
    return _interleaving(samples) if len(block) >= BLOCK_BYTES else None


def _is_float(block: bytes, kind: str) -> bool:
    """Nearly all words are floats of audible size, of both signs, in several octaves, and their lower halves are not.

    As PCM16, a float's upper half lies within two narrow bands (13,696 to 18,304 and its mirror), and the 16 bits
    of mantissa below it anywhere: no sound keeps every second sample in those bands and roams in between.
    """
    width = int(kind[-1])
    below = np.frombuffer(block, f"{kind[0]}i2").astype(np.float64)[
        1 if kind[0] == ">" else width // 2 - 2 :: width // 2
    ]
    below = below[below != 0]  # quiet floats that were integers once have none there
    if len(below) > 0 and np.mean(below**2) < 3_000**2:
        return False
    with np.errstate(all="ignore"):
        values = np.frombuffer(block, kind).astype(np.float64)
        shifted = np.frombuffer(block[width // 2 : width // 2 - width], kind).astype(np.float64)
        if not _plausible_floats(values) or _share_plausible(shifted) > 0.5:
            return False
        sounding = values[values != 0]
        if len(np.unique(sounding)) < 64 or np.mean(np.diff(np.sign(sounding)) != 0) > 0.9:
            return False  # tones whose period is a few samples
        octaves = np.unique(np.floor(np.log2(np.abs(sounding))), return_counts=True)[1]
    return int(np.sum(octaves >= 0.02 * len(sounding))) >= 3


def _plausible_floats(values: Samples) -> bool:
    sounding = values[values != 0]
    if len(sounding) < max(64, 0.2 * len(values)):
        return False
    return (
        _share_plausible(values) >= 0.98 and float(np.mean(sounding > 0)) > 0.02 and float(np.mean(sounding < 0)) > 0.02
    )


def _share_plausible(values: Samples) -> float:
    """The share of the values that are not 0 which are between 1e-6 and 65,536."""
    sounding = values[values != 0]
    if len(sounding) == 0:
        return 0.0
    size = np.abs(sounding)
    return float(np.mean((size > 1e-6) & (size < 65_536)))


def _is_swapped(little: Samples, big: Samples) -> bool:
    """Read as it should be the block is noise at high level, read with swapped bytes it is smooth.

    Real speech has at most 0.13 times the roughness of its swapped bytes, so the factor 4 has a wide margin.
    The high bytes must be anything, as low bytes of sound are: a loud tone near 8 kHz with a faint sound on it
    has two.
    """
    rough_little = float(np.mean(np.abs(np.diff(little))))
    if rough_little <= 4_000:  # first, for it lets nearly all go that are samples
        return False
    return (
        0.02 < float(np.mean(big < 0)) < 0.98  # with 8-bit steps the low bytes are all 0
        and rough_little > 4 * float(np.mean(np.abs(np.diff(big))))
        and len(np.unique(np.floor(little / 256))) >= 64
        and _neighbours_correlate(little) < 0.4
        and _neighbours_correlate(big) > 0.4
    )


def _interleaving(samples: Samples) -> str | None:
    """Two sequences in one: one of them empty, or both alike.

    A tone at exactly 4 kHz looks the same, so the sequence taken alone must be smooth, which that tone is not.
    """
    even, odd = samples[0::2], samples[1::2]
    power_even, power_odd = float(np.mean(even**2)), float(np.mean(odd**2))
    louder = even if power_even >= power_odd else odd
    if max(power_even, power_odd) < 100 or _neighbours_correlate(louder) < 0.5:
        return None
    if float(np.mean(louder)) ** 2 > 0.5 * max(power_even, power_odd):
        return None  # mostly a constant: with a tone at 8 kHz it may be none in every second sample
    if min(power_even, power_odd) < 1e-3 * max(power_even, power_odd):
        return _HALF_EMPTY
    if float(np.mean(odd[:-1] != even[1:])) < 0.3:
        return None  # steps so rare that they may all fall between two pairs, as a slow square wave's do
    within = 1 - abs(_correlate(even, odd))
    across = 1 - abs(_correlate(odd[:-1], even[1:]))
    # Below 0.005 (a hum, a slow tone) the difference is one of rounding; speech has 0.01 (at 48 kHz) to 0.3.
    if _neighbours_correlate(np.diff(louder)) < 0.1:
        return None  # a slow sound with a 4 kHz tone on it
    return _STEREO if across > 0.005 and within < 0.2 * across else None


def _correlate(x: Samples, y: Samples) -> float:
    """Pearson's correlation; 0 when one of them is constant."""
    x, y = x - x.mean(), y - y.mean()
    power = float(np.dot(x, x)) * float(np.dot(y, y))
    return float(np.dot(x, y)) / power**0.5 if power > 0 else 0.0


def _neighbours_correlate(x: Samples) -> float:
    """Autocorrelation at lag one."""
    return _correlate(x[:-1], x[1:])
