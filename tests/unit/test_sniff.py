"""What is recognised in a client's bytes, and that the answer names it and what to send."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from sessions.codes import ErrorCode
from sessions.errors import WrongAudio
from sessions.sniff import Sniffer, is_control_message
from tests.support.session_driver import speechlike

SEND = "send 16 kHz mono 16-bit little-endian PCM"
SOUND = speechlike(0.2)


def mp3_frames(count: int) -> bytes:
    """MPEG-1 layer III, 128 kbit/s, 44.1 kHz, padded: frames of 418 bytes."""
    return (b"\xff\xfb\x92\x00" + b"\x55" * 414) * count


def adts_frames(count: int) -> bytes:
    """AAC-LC, 44.1 kHz, stereo: frames of 100 bytes."""
    return (bytes([0xFF, 0xF1, 0x50, 0x80, 100 >> 3, (100 & 7) << 5 | 0x1F, 0xFC]) + b"\x55" * 93) * count


def refusal(data: bytes, step: int | None = None) -> WrongAudio:
    with pytest.raises(WrongAudio) as caught:
        passed(data, step)
    return caught.value


def passed(data: bytes, step: int | None = None) -> bytes:
    sniffer, out = Sniffer(), b""
    for at in range(0, len(data), step or len(data) or 1):
        out += sniffer.feed(data[at : at + (step or len(data))])
    return out + sniffer.end()


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (b"OggS\x00\x02", "Ogg"),
        (b"fLaC\x00\x00", "FLAC"),
        (b"\x1aE\xdf\xa3\x9f", "WebM"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"ID3\x04\x00\x00\x00\x00\x0f\x76", "MP3"),
        (b"\x00\x00\x00\x20ftypM4A ", "MP4 or M4A"),
        (b"\x00\x00\x00\x18ftypisom", "MP4 or M4A"),
        (b"FORM\x00\x01\x00\x00AIFF", "AIFF"),
        (b"FORM\x00\x01\x00\x00AIFC", "AIFF"),
        (b".snd\x00\x00\x00\x18", "Sun AU"),
        (b"RIFX\x00\x00\x00\x00WAVE", "big-endian WAV"),
        (b"caff\x00\x01", "CAF"),
        (b"#!AMR\n", "AMR"),
        (b"PK\x03\x04\x14\x00", "ZIP"),
        (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "WMA"),
        (b"NIST_1A\n", "NIST"),
    ],
)
def test_files_are_named(start: bytes, named: str) -> None:
    for step in (None, 1, 3):
        error = refusal(start + SOUND, step)
        assert error.code is ErrorCode.NOT_PCM16
        assert named in error.cause
        assert SEND in str(error)


@pytest.mark.parametrize(("data", "named"), [(mp3_frames(4), "MP3"), (adts_frames(4), "AAC")])
def test_coded_frames_without_a_header_are_named(data: bytes, named: str) -> None:
    for step in (None, 1, 100):
        assert named in refusal(data, step).cause


@pytest.mark.parametrize(
    "data", [mp3_frames(1) + SOUND, b"\xff\xfb\x90\x00", adts_frames(2) + SOUND, b"\xff\xf1" + SOUND]
)
def test_a_frame_header_that_none_follows_is_sound(data: bytes) -> None:
    assert passed(data) == data


@pytest.mark.parametrize("data", [b"", b"R", b"RIF", b"Ogg", b"\x1f\x8b", b"\x00\x00\x00\x18fty", b"ID3\x04", b"FORM"])
def test_the_beginning_of_a_magic_number_alone_is_sound(data: bytes) -> None:
    assert passed(data) == data
    sniffer = Sniffer()
    assert sniffer.feed(data) == b""
    assert sniffer.held == len(data)
    assert sniffer.flush() + sniffer.feed(SOUND) == data + SOUND


def test_text_and_json_are_named() -> None:
    prose = b"When is a lobster not a lobster? When it is a crayfish. " * 3
    assert refusal(prose, 7).cause == "this is text"
    assert refusal("Wann ist ein Hummer kein Hummer? Für Köche: nie. ".encode() * 3).cause == "this is text"
    error = refusal(b'{"type":"start","sample_rate":16000,"encoding":"pcm_s16le","channels":1,"language":"en"}')
    assert "JSON" in error.cause
    assert "as text" in error.fix
    assert passed(b"ab" * 100) == b"ab" * 100, "two letters in turn are a constant, not text"
    offset = np.asarray(30_000 + np.random.default_rng(1).integers(-3, 4, 500), "<i2").tobytes()
    assert offset[:64].isascii(), "a constant with faint noise may consist of letters"
    assert passed(offset) == offset


def test_control_messages_in_binary_frames() -> None:
    assert is_control_message(b'{"type":"end"}')
    assert is_control_message(b'{ "type" : "start", "language": "en" }')
    for data in (b"", b"{", b"{}", b'{"a":1}', b'["type"]', b'{"type":"end"', SOUND, b'{"type":"end"}' + bytes(20_000)):
        assert not is_control_message(data)


def wav(fmt: bytes, data: bytes, *, riff: bytes = b"RIFF", before: bytes = b"") -> bytes:
    body = (
        b"WAVE" + before + b"fmt " + struct.pack("<I", len(fmt)) + fmt + b"data" + struct.pack("<I", len(data)) + data
    )
    return riff + struct.pack("<I", len(body)) + body


def fmt(tag: int = 1, channels: int = 1, rate: int = 16_000, bits: int = 16) -> bytes:
    align = channels * bits // 8
    return struct.pack("<HHIIHH", tag, channels, rate, rate * align, align, bits)


@pytest.mark.parametrize(
    ("header", "named"),
    [
        (fmt(rate=8_000), "16-bit PCM, 8000 Hz, 1 channel"),
        (fmt(channels=2, rate=44_100), "16-bit PCM, 44100 Hz, 2 channels"),
        (fmt(bits=24), "24-bit PCM"),
        (fmt(tag=3, bits=32), "32-bit floating point"),
        (fmt(tag=7, rate=8_000, bits=8), "8-bit mu-law"),
        (fmt(tag=0x4242), "format 0x4242"),
        (fmt(channels=0), "0 channels"),
    ],
)
def test_a_wav_of_another_format_is_refused_naming_it(header: bytes, named: str) -> None:
    error = refusal(wav(header, SOUND), 5)
    assert error.code is ErrorCode.UNSUPPORTED_FORMAT
    assert named in error.cause
    assert SEND in error.fix


def test_an_extensible_wav_is_judged_by_its_sub_format() -> None:
    guid = bytes.fromhex("000000001000800000aa00389b71")
    pcm = fmt(tag=0xFFFE) + struct.pack("<HHIH", 22, 16, 4, 1) + guid
    assert passed(wav(pcm, SOUND)) == SOUND
    floats = fmt(tag=0xFFFE, bits=32) + struct.pack("<HHIH", 22, 32, 4, 3) + guid
    assert "floating point" in refusal(wav(floats, SOUND)).cause


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"RIFF\x00\x00\x00\x00AVI " + SOUND, "'AVI '"),
        (b"RIFF\x24\x00\x00\x00", "ends before its data"),
        (wav(fmt(), b"")[:-8], "ends before its data"),
        (b"RIFF\x00\x00\x00\x00WAVEdata\x04\x00\x00\x00abcd", "before its format"),
        (b"RIFF\x00\x00\x00\x00WAVEfmt \x04\x00\x00\x00abcd", "format chunk of 4 bytes"),
        (b"RIFF\x00\x00\x00\x00WAVELIST\xff\xff\xff\x7f" + SOUND, "chunk of 2147483647 bytes"),
    ],
)
def test_a_broken_wav_is_refused(data: bytes, named: str) -> None:
    error = refusal(data, 11)
    assert error.code is ErrorCode.NOT_PCM16
    assert named in error.cause


def test_what_follows_a_wav_without_being_a_chunk_is_audio_that_the_header_did_not_count() -> None:
    short = wav(fmt(), SOUND[:2_000])
    assert passed(short + SOUND[2_000:]) == SOUND
    assert passed(short + b"LIST\x04\x00\x00\x00INFO") == SOUND[:2_000]
    assert passed(short + b"LI") == SOUND[:2_000]
    odd = wav(fmt(), SOUND[:2_001]) + b"\x00"
    assert passed(odd + b"LIST\x04\x00\x00\x00INFO" + short) == SOUND[:2_000] * 2


@pytest.mark.parametrize(
    "looks_like_a_chunk",
    [
        b"AABB\xff\x7f\xff\x7f",  # loud samples: no writer calls a chunk so
        b"data\x00\x01\x00\x00",
        b"LIST\xff\xff\xff\x7f",  # a known name with an absurd size
    ],
)
def test_loud_samples_behind_a_too_small_data_size_are_not_taken_for_a_chunk(looks_like_a_chunk: bytes) -> None:
    rest = looks_like_a_chunk + SOUND
    assert passed(wav(fmt(), SOUND[:2_000]) + rest, 7) == SOUND[:2_000] + rest


@pytest.mark.parametrize("where", ["before", "after"])
def test_metadata_without_end_is_refused(where: str) -> None:
    junk = b"JUNK\x00\x00\x00\x00" * 2_000
    data = wav(fmt(), SOUND, before=junk) if where == "before" else wav(fmt(), SOUND) + junk
    error = refusal(data, 1_000)
    assert error.code is ErrorCode.NOT_PCM16
    assert "at most 1000" in error.cause


def test_a_header_that_lies_about_what_follows_does_not_switch_the_checks_off() -> None:
    floats = (voice() / 2).astype("<f4").tobytes()
    error = refusal(wav(fmt(), floats), 3_200)
    assert error.code is ErrorCode.NOT_PCM16
    assert "float" in error.cause


def test_a_flush_in_the_middle_of_a_wav_header_waits_for_the_rest() -> None:
    data = wav(fmt(), SOUND)
    sniffer = Sniffer()
    out = sniffer.feed(data[:20]) + sniffer.flush() + sniffer.feed(data[20:]) + sniffer.end()
    assert out == SOUND


def test_metadata_is_not_kept_in_memory() -> None:
    sniffer = Sniffer()
    sniffer.feed(b"RIFF\x00\x00\x00\x00WAVELIST" + struct.pack("<I", 50_000_000))
    for _ in range(50):
        sniffer.feed(bytes(1_000_000))
        assert sniffer.held < 100


def voice() -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Two seconds with a voice's structure: pitch pulses through two resonances, some breath, a soft start."""
    rng = np.random.default_rng(5)
    source = rng.normal(0, 0.05, 32_000)
    source[::125] += 1.0
    out = np.zeros(32_000)
    for frequency, width in ((600, 80), (1_800, 150)):
        radius = np.exp(-np.pi * width / 16_000)
        a1, a2 = 2 * radius * np.cos(2 * np.pi * frequency / 16_000), -(radius**2)
        y1 = y2 = 0.0
        for i, x in enumerate(source):
            y1, y2 = x + a1 * y1 + a2 * y2, y1
            out[i] += y1
    out *= np.minimum(1, np.arange(32_000) / 8_000)
    return np.asarray(out / np.abs(out).max() * 0.5)


VOICE = voice()
PCM = (VOICE * 32_767).astype("<i2")


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (VOICE.astype("<f4").tobytes(), "32-bit float"),
        (VOICE.astype("<f8").tobytes(), "64-bit float"),
        (VOICE.astype(">f4").tobytes(), "big-endian 32-bit float"),
        (PCM.astype("<f4").tobytes(), "32-bit float"),
        (PCM.byteswap().tobytes(), "big-endian 16-bit"),
        (b"\x00" + PCM.tobytes(), "shifted by one byte"),
        (np.repeat(PCM, 2).tobytes(), "stereo"),
        (np.stack([PCM, PCM // 2 + 3], axis=1).tobytes(), "stereo"),
        (np.stack([PCM, -PCM], axis=1).tobytes(), "stereo"),
        (np.stack([PCM, PCM * 0], axis=1).tobytes(), "silent channel"),
        ((PCM.astype("<i4") << 16).tobytes(), "32-bit integer"),
    ],
)
def test_other_sample_formats_are_told_by_their_structure(data: bytes, named: str) -> None:
    silence = bytes(16_000)
    for lead in (b"", silence):  # the head of a file may be quiet
        for step in (None, 641):
            error = refusal(lead + data, step)
            assert error.code is ErrorCode.NOT_PCM16
            assert named in error.cause
    assert passed(silence + PCM.tobytes()) == silence + PCM.tobytes()


def test_the_format_is_judged_while_the_first_seconds_pass_and_not_later() -> None:
    sniffer = Sniffer()
    sniffer.feed(np.tile(PCM, 3).tobytes())
    floats = VOICE.astype("<f4").tobytes()
    assert sniffer.feed(floats) == floats, "six seconds of sound have settled it"
