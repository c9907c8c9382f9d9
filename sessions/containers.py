"""What the first bytes of a stream are when they are not samples: known file formats, text, coded frames.

Pure. A format is told by at least 24 fixed bits; where it has fewer (MP3, ADTS: 11), by three frames in a row, so that
samples, noise included, are not taken for one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MORE = "more"
"""Not to be told yet: as far as it goes, this could be such a format."""

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"OggS", "an Ogg file (Opus, Vorbis or Speex)"),
    (0, b"OpusHead", "an Opus stream header"),
    (0, b"fLaC", "a FLAC file"),
    (0, b"\x1aE\xdf\xa3", "a WebM or Matroska file, as browsers' MediaRecorder makes it"),
    (0, b"\x1f\x8b\x08", "gzip-compressed data"),
    (0, b"BZh91AY&SY", "bzip2-compressed data"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"\xfd7zXZ\x00", "xz-compressed data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
    (4, b"ftyp", "an MP4 or M4A file (AAC or ALAC)"),
    (4, b"styp", "a fragment of an MP4 file"),
    (4, b"moof", "a fragment of an MP4 file"),
    (4, b"moov", "an MP4 or M4A file (AAC or ALAC)"),
    (0, b".snd", "a Sun AU file"),
    (0, b"caff", "a Core Audio (CAF) file"),
    (0, b"#!AMR", "an AMR file"),
    (0, b"NIST_1A", "a NIST SPHERE file"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "a WMA or ASF file"),
    (0, b"RIFX", "a big-endian WAV file (RIFX)"),
    (0, b"riff\x2e\x91\xcf\x11", "a Wave64 file"),
    (0, b"\x93NUMPY", "a NumPy .npy file"),
    (0, b"%PDF-", "a PDF file"),
    (0, b"\x89PNG\r\n", "a PNG image"),
    (0, b"\xff\xd8\xff\xe0", "a JPEG image"),
)

_TEXT_BYTES = 64
"""Bytes that must all be text: 32 samples of sound which are has a probability below 1e-13 even for noise."""

_TEXT_VARIETY = 6
"""Different bytes at even and at odd places: the high bytes of a constant 30,000 with faint noise are all ``u``."""

_MP3_KBITS_V1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MP3_KBITS_V2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_MP3_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_FRAMES_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """What the bytes are; None for samples. ``more``: further bytes are needed to tell."""

    cause: str | None = None
    more: bool = False


def identify(data: bytes, *, complete: bool = False) -> Finding:
    """Say what ``data``, the beginning of a stream, is. ``complete``: no further bytes will come."""
    more = False
    for test in (_by_magic, _by_tags, _by_frames, _by_text):
        answer = test(data)
        if answer == MORE:
            more = True
        elif answer is not None:
            return Finding(cause=answer)
    return Finding(more=more and not complete)


def _by_magic(data: bytes) -> str | None:
    more = None
    for offset, magic, cause in _MAGIC:
        seen = data[offset : offset + len(magic)]
        if seen == magic:
            return cause
        if len(data) < offset + len(magic) and magic.startswith(seen):
            more = MORE
    return more


def _by_tags(data: bytes) -> str | None:
    """ID3 before an MP3 (10 bytes, four of them below 0x80), and AIFF."""
    if data[:3] == b"ID3"[: len(data)]:
        if len(data) < 10:
            return MORE
        if data[3] < 5 and not data[5] & 0x0F and max(data[6:10]) < 0x80:
            return "an MP3 file (with ID3 tags)"
    if data[:4] == b"FORM"[: len(data)]:
        if len(data) < 12:
            return MORE
        if data[8:12] in (b"AIFF", b"AIFC"):
            return "an AIFF file"
    return None


def _by_frames(data: bytes) -> str | None:
    for length_of, cause in ((_mp3_frame, "MP3 data"), (_adts_frame, "AAC data (ADTS)")):
        answer = _frames_in_a_row(data, length_of)
        if answer is True:
            return cause
        if answer is None:
            return MORE
    return None


def _frames_in_a_row(data: bytes, length_of: Callable[[bytes], int]) -> bool | None:
    """Whether frame headers follow each other at the distances that they announce; None when data ends first."""
    at = 0
    for _ in range(_FRAMES_IN_A_ROW):
        header = data[at : at + 7]
        if header[:1] not in (b"", b"\xff"):
            return False
        if len(header) < 7:
            return None
        length = length_of(header)
        if length <= 0:
            return False
        at += length
    return True


def _mp3_frame(header: bytes) -> int:
    """Length of an MPEG audio layer III frame in bytes (ISO 11172-3, 2.4.1.3); 0 when this is no such header."""
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    bitrate, rate = header[2] >> 4, header[2] >> 2 & 3
    if header[1] & 0xE0 != 0xE0 or version == 1 or layer != 1 or bitrate in (0, 15) or rate == 3:
        return 0
    kbits = (_MP3_KBITS_V1 if version == 3 else _MP3_KBITS_V2)[bitrate]
    factor = 144_000 if version == 3 else 72_000
    return factor * kbits // _MP3_RATES[version][rate] + (header[2] >> 1 & 1)


def _adts_frame(header: bytes) -> int:
    """Length of an AAC frame in an ADTS stream in bytes (ISO 13818-7, 6.2); 0 when this is no such header."""
    if header[1] & 0xF6 != 0xF0 or header[2] >> 2 & 15 > 12:
        return 0
    length = (header[3] & 3) << 11 | header[4] << 3 | header[5] >> 5
    return length if length > 7 else 0


def _by_text(data: bytes) -> str | None:
    head = data[:_TEXT_BYTES]
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.end < len(head) or error.reason != "unexpected end of data":
            return None
        text = head[: error.start].decode("utf-8")
    if not all(char.isprintable() or char in "\t\r\n\ufeff" for char in text):
        return None
    if len(data) < _TEXT_BYTES:
        return MORE
    if min(len(set(head[parity::2])) for parity in (0, 1)) < _TEXT_VARIETY:
        return None
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        return "JSON text in a binary message"
    return "text"
