"""Sound that does not come from a file: standard input, a synthetic signal, the microphone; and cutting into frames.

Every source is an iterator of PCM16LE bytes at 16 kHz mono, in blocks of no particular size.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np

from loadgen.clips import BYTES_PER_SECOND, ClipError, Readable, Warn, decode, is_text
from loadgen.downmix import RATE

PEEK_BYTES = 2048
"""64 ms of PCM16: enough for every signature, and for two MP3 frame headers in a row."""

BLOCK_BYTES = BYTES_PER_SECOND // 10

MAX_SYNTHETIC_S = 86_400.0

SIGNATURES: tuple[tuple[int, bytes], ...] = (
    (0, b"RIFF"), (0, b"RF64"), (0, b"fLaC"), (0, b"OggS"), (0, b"ID3"), (4, b"ftyp"), (0, b"FORM"), (0, b"caff"),
    (0, b"\x1aE\xdf\xa3"), (0, b".snd"), (0, b"#!AMR"), (0, b"wvpk"), (0, b"MAC "), (0, b"0&\xb2u"), (0, b"FLV\x01"),
)  # fmt: skip
"""(offset, bytes) by which containers are told from raw PCM16."""


def read_stream(stream: Readable, warn: Warn, source: str = "standard input") -> Iterator[bytes]:
    """Raw PCM16 as it comes, or any container that can be read without seeking.

    ``stream.read(n)`` should return what is there (an unbuffered file does), or live sound would be held back.
    Raises `ClipError` for no bytes at all, for text, and for a container that cannot be decoded.
    """
    head = b""
    while len(head) < PEEK_BYTES and (piece := stream.read(PEEK_BYTES - len(head))):
        head += piece
    if not head:
        raise ClipError(source, "it ended before the first byte of sound")
    if is_text(head):
        raise ClipError(source, "this is text, not audio")
    if is_container(head):
        yield from decode(_Replayed(head, stream), source, warn)
        return
    yield head
    while block := stream.read(BLOCK_BYTES):
        yield block


def is_container(head: bytes) -> bool:
    """Whether an input that starts with ``head`` is a container (or MP3, ADTS) and not raw PCM16."""
    return any(head[at : at + len(mark)] == mark for at, mark in SIGNATURES) or _is_mpeg_audio(head)


def synthetic(seconds: float, seed: int = 1) -> Iterator[bytes]:
    """A signal like speech, the same for the same seed: a voice's harmonics under syllables, with pauses.

    It holds no words; it is for load and for limits, not for transcripts. Raises `ClipError` for a length that is
    negative, not finite or over `MAX_SYNTHETIC_S`.
    """
    if not (math.isfinite(seconds) and 0 <= seconds <= MAX_SYNTHETIC_S):
        raise ClipError(f"--synthetic {seconds:g}", f"give a length of 0 to {MAX_SYNTHETIC_S:.0f} seconds")
    noise = np.random.default_rng(seed)
    pitch_hz = 90.0 + 10.0 * (seed % 13)
    total = round(seconds * RATE)
    for first in range(0, total, RATE // 10):
        t = np.arange(first, min(first + RATE // 10, total)) / RATE
        # Four syllables a second, eight seconds of speech and two of near silence in every ten.
        syllables = np.clip(np.sin(2 * np.pi * 4.0 * t), 0, None) ** 0.5
        talking = (t % 10.0 < 8.0).astype(float)
        # The phase is a closed form of t, so blocks join without a click.
        phase = 2 * np.pi * (pitch_hz * t - 3.0 * np.cos(2 * np.pi * 0.7 * t))
        voice = sum(np.sin(h * phase) * _formants(h * pitch_hz) for h in range(1, 25))
        breath = noise.standard_normal(len(t)) * 0.01
        samples = 0.08 * voice * syllables * talking + breath * (0.1 + talking)
        yield (np.clip(samples, -1, 1) * 32_767).astype("<i2").tobytes()


def microphone() -> Iterator[bytes]:
    """The default input device, 100 ms at a time, until the caller stops; needs the package ``sounddevice``."""
    try:
        sounddevice: Any = importlib.import_module("sounddevice")
    except ModuleNotFoundError:
        raise ClipError(
            "--mic", f"needs the optional package sounddevice; install it: {sys.executable} -m pip install sounddevice"
        ) from None
    except OSError as error:
        raise ClipError(
            "--mic", f"the PortAudio library is missing ({error}); install it, on Debian: apt install libportaudio2"
        ) from error
    try:
        with sounddevice.RawInputStream(samplerate=RATE, channels=1, dtype="int16", blocksize=RATE // 10) as stream:
            while True:
                data, _overflowed = stream.read(RATE // 10)
                yield bytes(data)
    except sounddevice.PortAudioError as error:
        raise ClipError("--mic", f"the input device cannot be used: {error}") from error


def primed(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, the first of them fetched now, so that bad input is found before a connection is made."""
    first = next(blocks, None)
    return iter(()) if first is None else chain((first,), blocks)


def samples_only(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same blocks; raises `ClipError` for a WAV file, whose header would shift every position in the stream."""
    head = b""
    for block in blocks:
        head = (head + block[:4])[:4] if len(head) < 4 else head
        if head in {b"RIFF", b"RF64"}:
            raise ClipError("audio", "this is a WAV file, not its samples; read it with loadgen.clips.read_clip")
        yield block


class _Replayed:
    """A stream with its first bytes put back; it has no ``seek``, so FFmpeg does not try."""

    def __init__(self, head: bytes, rest: Readable) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int, /) -> bytes:
        if self._head:
            piece, self._head = self._head[:size], self._head[size:]
            return piece
        return self._rest.read(size)


def _formants(hz: float) -> float:
    return sum(math.exp(-(((hz - centre) / width) ** 2)) for centre, width in ((500, 250), (1500, 300), (2500, 400)))


_MPEG1_KBPS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0)
_MPEG2_KBPS = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0)


def _is_mpeg_audio(head: bytes) -> bool:
    """MP3 or ADTS by a frame header and a second one where the first frame ends: PCM16 does not do that by chance."""
    length = _mpeg_frame_bytes(head)
    return bool(length) and (len(head) < length + 4 or _mpeg_frame_bytes(head[length:]) > 0)


def _mpeg_frame_bytes(data: bytes) -> int:
    """Length of the MPEG layer III or ADTS frame that starts here; 0 if none does."""
    if len(data) < 7 or data[0] != 0xFF or data[1] & 0xE0 != 0xE0:
        return 0
    if data[1] & 0xF6 == 0xF0:
        return (data[3] & 3) << 11 | data[4] << 3 | data[5] >> 5
    version, layer, padding = data[1] >> 3 & 3, data[1] >> 1 & 3, data[2] >> 1 & 1
    rate = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}.get(version)
    kbps = (_MPEG1_KBPS if version == 3 else _MPEG2_KBPS)[data[2] >> 4]
    if rate is None or layer != 1 or data[2] >> 2 & 3 == 3 or not kbps:
        return 0
    return (144 if version == 3 else 72) * kbps * 1000 // rate[data[2] >> 2 & 3] + padding
