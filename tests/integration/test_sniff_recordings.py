"""Real recordings and real files: sound passes untouched, everything else is recognised for what it is."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

from sessions.errors import WrongAudio
from sessions.pcm_checks import BLOCK_BYTES, judge
from sessions.sniff import Sniffer

pytestmark = pytest.mark.speech

UNSUPPORTED = {
    "wav-zero-channels.wav": "0 channels", "pcm-u8.wav": "8-bit PCM", "pcm-s24.wav": "24-bit PCM",
    "pcm-f32-over-1.wav": "32-bit floating point", "pcm-f32-nan-inf.wav": "32-bit floating point",
    "mulaw-8k.wav": "mu-law, 8000 Hz", "ima-adpcm.wav": "IMA ADPCM", "ms-adpcm.wav": "Microsoft ADPCM",
    "gsm-8k.wav": "GSM 6.10", "rate-8k.wav": "8000 Hz", "rate-11025.wav": "11025 Hz",
    "stereo-44100.wav": "44100 Hz, 2 channels", "1272-128104-0004-8k.wav": "8000 Hz",
}  # fmt: skip
NOT_PCM16 = {
    "wav-no-data-chunk.wav": "before its data chunk", "wav-header-8-bytes.wav": "before its data chunk",
    "text-renamed.wav": "text", "wrong-extension.wav": "MP3", "base-s16be-16k.raw": "big-endian", "pcm.aiff": "AIFF",
}  # fmt: skip
BY_SUFFIX = {".flac": "FLAC", ".ogg": "Ogg", ".mp3": "MP3", ".m4a": "M4A", ".mp4": "MP4"}
SHORT = {"wav-truncated.wav": 0.6, "wav-1-sample.wav": None, "wav-10ms.wav": None, "wav-400ms.wav": None}


def sniffed(data: bytes, step: int = 3_200) -> bytes | WrongAudio:
    """What the sniffer makes of a file that is sent in messages of ``step`` bytes."""
    sniffer, out = Sniffer(), bytearray()
    try:
        for at in range(0, len(data), step):
            out += sniffer.feed(data[at : at + step])
        out += sniffer.end()
    except WrongAudio as error:
        return error
    return bytes(out)


@cache
def decoded(path: Path) -> npt.NDArray[np.int16]:
    """The file as 16 kHz mono PCM16."""
    blocks = []
    with av.open(str(path)) as container:
        resampler = av.AudioResampler("s16", "mono", 16_000)
        for frame in [*container.decode(container.streams.audio[0]), None]:
            blocks += [block.to_ndarray().ravel() for block in resampler.resample(frame)]
    return np.concatenate(blocks).astype("<i2")


def test_every_edge_file_poured_into_the_socket_has_its_outcome(speech_dir: Path) -> None:
    base = decoded(speech_dir / "edge" / "wav-plain.wav").tobytes()
    with (speech_dir / "edge.csv").open(newline="") as table:
        names = [row["file"].removeprefix("edge/") for row in csv.DictReader(table)]
    assert len(names) > 50
    for name in names:
        data = (speech_dir / "edge" / name).read_bytes()
        for step in (3_200, 641, 7):
            outcome = sniffed(data, step)
            if name in UNSUPPORTED:
                assert isinstance(outcome, WrongAudio), name
                assert (outcome.code, UNSUPPORTED[name] in outcome.cause) == ("unsupported_format", True), (
                    name,
                    outcome,
                )
            elif name in NOT_PCM16 or Path(name).suffix in BY_SUFFIX:
                assert isinstance(outcome, WrongAudio), name
                named = NOT_PCM16.get(name) or BY_SUFFIX[Path(name).suffix]
                assert (outcome.code, named in outcome.cause) == ("not_pcm16", True), (name, outcome)
            elif name == "empty.wav":
                assert outcome == b""
            elif name in SHORT:
                assert isinstance(outcome, bytes)
                assert outcome[:-1] in base, f"{name}: samples of the base"
            else:
                assert outcome == base, f"{name}: exactly the base samples"


def recordings(speech_dir: Path) -> list[Path]:
    edges = [path for pattern in ("*.flac", "*.ogg") for path in (speech_dir / "edge").glob(pattern)]
    return sorted((speech_dir / "utt").glob("*.flac"))[::2] + [
        path for path in sorted(edges) if "truncated" not in path.name
    ]


def test_no_recording_is_taken_for_anything_else(speech_dir: Path) -> None:
    """Speech, noise, music, tones, hum, silence: nowhere in them does any half second look like another format."""
    blocks = 0
    for path in recordings(speech_dir):
        data = decoded(path).tobytes()
        assert sniffed(data) == data, path.name
        for at in range(0, len(data) - BLOCK_BYTES + 1, BLOCK_BYTES):
            blocks += 1
            assert judge(data[at : at + BLOCK_BYTES]) is None, (path.name, at)
    assert blocks > 1_000


@pytest.mark.parametrize(
    ("form", "named"),
    [
        ("f4", "32-bit float"),
        ("f8", "64-bit float"),
        (">f4", "big-endian 32-bit float"),
        (">i2", "big-endian 16-bit"),
        ("stereo", "stereo"),
        ("right silent", "silent channel"),
        ("i4", "32-bit integer"),
    ],
)
def test_recordings_in_other_sample_formats_are_recognised(speech_dir: Path, form: str, named: str) -> None:
    paths = sorted((speech_dir / "utt").glob("*.flac"))[::6]
    assert len(paths) > 10
    for path in paths:
        pcm = decoded(path)
        if form == "stereo":
            data = np.stack([pcm, pcm], axis=1).tobytes()
        elif form == "right silent":
            data = np.stack([pcm, pcm * 0], axis=1).tobytes()
        elif form == "i4":
            data = (pcm.astype("<i4") << 16).tobytes()
        else:
            data = (pcm if form == ">i2" else pcm / 32_768).astype(form).tobytes()
        outcome = sniffed(data)
        assert isinstance(outcome, WrongAudio), path.name
        assert named in outcome.cause, (path.name, outcome.cause)
