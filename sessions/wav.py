"""A WAV file poured into the socket: its header is taken off, its metadata ignored, its samples passed on.

Pure and incremental: any split of the bytes over messages gives the same samples, and no chunk is held in memory.
Sizes in headers are not trusted: 0 and 0xFFFFFFFF (writers to a pipe) mean "to the end", and what follows the data
chunk is ignored only where it is a chunk of a kind that writers put there, of a size that they give it; else it is
another file, or audio that the header did not count, which is never dropped.
"""

from __future__ import annotations

import struct

from sessions.codes import ErrorCode
from sessions.errors import WrongAudio
from sessions.wire import BYTES_PER_SAMPLE, CHANNELS, SAMPLE_RATE

SEND_THIS = "send 16 kHz mono 16-bit little-endian PCM (e.g. ffmpeg -i FILE -ar 16000 -ac 1 -f s16le -)"

_MAGIC = (b"RIFF", b"RF64")
_UNKNOWN_SIZES = (0, 0xFFFFFFFF)
_MAX_FMT_BYTES = 4096
_MAX_CHUNK_BYTES = 64 * 1024 * 1024
_MAX_CHUNKS = 1000
_MAX_IGNORED_BYTES = _MAX_CHUNK_BYTES
_AFTER_DATA = frozenset(
    (b"LIST", b"id3 ", b"ID3 ", b"bext", b"cue ", b"fact", b"JUNK", b"junk", b"PAD ", b"FLLR", b"iXML", b"aXML",
     b"axml", b"smpl", b"inst", b"acid", b"plst", b"labl", b"note", b"ltxt", b"PEAK", b"_PMX", b"LGWV", b"chna")
)  # fmt: skip
"""Chunks that recorders and editors write behind the samples. Any four letters would not do: loud samples look so."""
_PCM, _EXTENSIBLE = 1, 0xFFFE
_PCM_GUID_TAIL = bytes.fromhex("000000001000800000aa00389b71")
_FORMATS = {2: "Microsoft ADPCM", 3: "floating point", 6: "A-law", 7: "mu-law", 17: "IMA ADPCM", 49: "GSM 6.10",
            80: "MPEG", 85: "MP3", 0x161: "WMA"}  # fmt: skip


def is_wav(data: bytes) -> bool:
    """Whether ``data`` begins as a RIFF or RF64 file; four bytes tell."""
    return data[:4] in _MAGIC


def may_be_wav(data: bytes) -> bool:
    """Whether further bytes could make ``data`` the beginning of such a file."""
    return any(magic.startswith(data[:4]) for magic in _MAGIC)


class WavStripper:
    """Feed it a WAV file in pieces, get its samples."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._step = self._riff
        self._skip = 0
        self._remaining: int | None = None
        self._odd = False
        self._format_seen = False
        self._data_seen = False
        self._long_data: int | None = None
        self._out = bytearray()
        self._chunks = 0
        self._ignored = 0

    @property
    def held(self) -> int:
        """Bytes in memory that wait for the rest of a header."""
        return len(self._buffer)

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the file, return the samples among them. Raises `WrongAudio`."""
        self._buffer += data
        while self._buffer and self._step():
            pass
        samples = bytes(self._out)
        self._out.clear()
        return samples

    def end(self) -> None:
        """The file ends here. Raises `WrongAudio` when no samples were announced."""
        if not self._data_seen:
            raise WrongAudio(ErrorCode.NOT_PCM16, "a WAV header that ends before its data chunk", SEND_THIS)

    def _riff(self) -> bool:
        if len(self._buffer) < 12:
            return False
        kind = bytes(self._buffer[8:12])
        if kind != b"WAVE":
            raise WrongAudio(ErrorCode.NOT_PCM16, f"a RIFF file that is not WAVE but {_shown(kind)}", SEND_THIS)
        self._drop(12)
        self._format_seen, self._long_data = False, None
        self._step = self._chunk
        return True

    def _chunk(self) -> bool:
        if len(self._buffer) < 8:
            return False
        name, size = struct.unpack_from("<4sI", self._buffer)
        self._drop(8)
        if name == b"data":
            if not self._format_seen:
                raise WrongAudio(ErrorCode.NOT_PCM16, "a WAV file whose data comes before its format", SEND_THIS)
            if size == 0xFFFFFFFF and self._long_data is not None:
                size = self._long_data
            self._remaining = None if size in _UNKNOWN_SIZES else size
            self._odd = bool(size % BYTES_PER_SAMPLE)
            self._step, self._data_seen = self._data, True
            return True
        if size > _MAX_CHUNK_BYTES:
            raise WrongAudio(
                ErrorCode.NOT_PCM16, f"a WAV header with a {_shown(name)} chunk of {size} bytes", SEND_THIS
            )
        self._count(size)
        self._skip = size + size % 2
        self._step = {b"fmt ": self._fmt, b"ds64": self._ds64}.get(name, self._skipping)
        return True

    def _skipping(self) -> bool:
        step = min(self._skip, len(self._buffer))
        self._drop(step)
        self._skip -= step
        if self._skip == 0:
            self._step = self._chunk
        return True

    def _fmt(self) -> bool:
        if not 16 <= self._skip <= _MAX_FMT_BYTES:
            raise WrongAudio(ErrorCode.NOT_PCM16, f"a WAV format chunk of {self._skip} bytes", SEND_THIS)
        if len(self._buffer) < self._skip:
            return False
        check_format(bytes(self._buffer[: self._skip]))
        self._format_seen = True
        self._step = self._skipping
        return True

    def _ds64(self) -> bool:
        """The 64-bit sizes of an RF64 file (EBU Tech 3306)."""
        if len(self._buffer) < min(self._skip, 16):
            return False
        if self._skip >= 16:
            self._long_data = int.from_bytes(self._buffer[8:16], "little")
        self._step = self._skipping
        return True

    def _data(self) -> bool:
        if self._remaining is None:
            self._pass(len(self._buffer))
            return False
        step = min(self._remaining, len(self._buffer))
        self._remaining -= step
        if self._remaining == 0 and self._odd and step:
            self._pass(step - 1)  # half a sample: joined to what follows it would shift every later one
            self._drop(1)
        else:
            self._pass(step)
        if self._remaining == 0:
            self._step = self._padding if self._odd else self._trailer
        return True

    def _padding(self) -> bool:
        if self._buffer[0] == 0:
            self._drop(1)
        self._step = self._trailer
        return True

    def _trailer(self) -> bool:
        """After the samples: more chunks, another file, or samples that the header did not count."""
        if len(self._buffer) < 4:
            return False
        name = bytes(self._buffer[:4])
        if is_wav(name):
            self._step = self._riff
            return True
        if name in _AFTER_DATA:
            if len(self._buffer) < 8:
                return False
            size = int.from_bytes(self._buffer[4:8], "little")
            if size <= _MAX_CHUNK_BYTES:
                self._drop(8)
                self._count(size)
                self._skip, self._step = size + size % 2, self._ignoring
                return True
        self._remaining, self._odd = None, False
        self._step = self._data
        return True

    def _count(self, ignored: int) -> None:
        """A file is mostly samples: whoever sends metadata without end keeps a server busy for nothing."""
        self._chunks += 1
        self._ignored += ignored
        if self._chunks > _MAX_CHUNKS or self._ignored > _MAX_IGNORED_BYTES:
            raise WrongAudio(
                ErrorCode.NOT_PCM16,
                f"WAV metadata of {self._chunks} chunks and {self._ignored} bytes; at most {_MAX_CHUNKS} and "
                f"{_MAX_IGNORED_BYTES} are skipped",
                SEND_THIS,
            )

    def _ignoring(self) -> bool:
        step = min(self._skip, len(self._buffer))
        self._drop(step)
        self._skip -= step
        if self._skip == 0:
            self._step = self._trailer
        return True

    def _pass(self, count: int) -> None:
        self._out += self._buffer[:count]
        self._drop(count)

    def _drop(self, count: int) -> None:
        del self._buffer[:count]


def check_format(fmt: bytes) -> None:
    """Check a WAV format chunk of at least 16 bytes. Raises `WrongAudio` naming what it announces."""
    tag, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", fmt)
    if tag == _EXTENSIBLE and len(fmt) >= 40 and fmt[26:40] == _PCM_GUID_TAIL:
        tag = int.from_bytes(fmt[24:26], "little")
    if (tag, channels, rate, bits) == (_PCM, CHANNELS, SAMPLE_RATE, 8 * BYTES_PER_SAMPLE):
        return
    coding = "PCM" if tag == _PCM else _FORMATS.get(tag, f"format {tag:#x}")
    raise WrongAudio(
        ErrorCode.UNSUPPORTED_FORMAT,
        f"a WAV file with {bits}-bit {coding}, {rate} Hz, {channels} channel{'' if channels == 1 else 's'}",
        SEND_THIS,
    )


def _shown(name: bytes) -> str:
    return repr(name.decode("ascii", "replace"))
