"""The real detector: what Silero hears is never cut off, at any loudness; steady noise makes no segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from faster_whisper.vad import VadOptions, get_speech_timestamps

from sessions.endpointing import BYTES_PER_S, Endpointer
from sessions.segments import Segment
from tests.support.recordings import recording
from tests.support.stable_partials import recordings

Pcm = npt.NDArray[np.int16]

SPEECH = VadOptions(min_silence_duration_ms=100, min_speech_duration_ms=100, speech_pad_ms=0)
LOUDNESS = [(0, 0), (-20, 0), (-30, 0), (0, 1_500)]
"""(gain in dB, constant offset in units of a sample)."""


def samples(data: bytes) -> Pcm:
    return np.frombuffer(data, "<i2")


def altered(audio: Pcm, gain_db: float, offset: float) -> bytes:
    louder = audio * 10 ** (gain_db / 20) + offset
    return louder.round().clip(-32_768, 32_767).astype("<i2").tobytes()


def cut(data: bytes, frame: int | None = None, endpoint_s: float = 0.8) -> list[Segment]:
    cutter = Endpointer(endpoint_s)
    size = frame or len(data)
    segments = [segment for at in range(0, len(data), size) for segment in cutter.feed(data[at : at + size])]
    last = cutter.finish()
    return [*segments, *([last] if last is not None else [])]


def spoken(audio: Pcm) -> list[tuple[int, int]]:
    """(first, last) sample of what Silero takes for speech."""
    found = get_speech_timestamps(audio.astype(np.float32) / 32_768, SPEECH)
    return [(span["start"], span["end"]) for span in found]


def missed(audio: Pcm, spans: list[tuple[int, int]], segments: list[Segment]) -> int:
    """Samples of the spans that no segment decodes."""
    inside = np.zeros(len(audio), bool)
    for segment in segments:
        inside[segment.start_byte // 2 : segment.end_byte // 2] = True
    return sum(int((~inside[start:end]).sum()) for start, end in spans)


def test_seven_sentences_are_seven_segments_whatever_the_frames() -> None:
    data = recording("pauses")
    segments = cut(data)
    assert len(segments) == 7
    assert [segment.reason for segment in segments[:-1]] == ["pause"] * 6
    for frame in (641, 3_200, 65_536):
        assert cut(data, frame) == segments
    assert missed(samples(data), spoken(samples(data)), segments) == 0


@pytest.mark.parametrize(("gain_db", "offset"), LOUDNESS)
def test_segments_do_not_depend_on_loudness(gain_db: float, offset: float) -> None:
    audio = samples(recording("pauses"))
    segments = cut(altered(audio, gain_db, offset))
    assert len(segments) == 7
    assert missed(audio, spoken(audio), segments) == 0


@pytest.mark.speech
@pytest.mark.parametrize(("gain_db", "offset"), LOUDNESS)
def test_no_speech_of_the_recordings_is_left_out(speech_dir: Path, gain_db: float, offset: float) -> None:
    speech = left_out = 0
    for _name, data in recordings(speech_dir, 20):
        audio = samples(data)
        spans = spoken(audio)
        speech += sum(end - start for start, end in spans)
        left_out += missed(audio, spans, cut(altered(audio, gain_db, offset)))
    print(f"{left_out / 16:.0f} ms of {speech / 16_000:.1f} s of speech left out")  # noqa: T201
    assert left_out <= speech / 1_000


def test_silence_and_steady_noise_are_hardly_decoded() -> None:
    chance = np.random.default_rng(3)
    seconds = 20
    for level in (0, 3, 100, 1_000):
        noise = (chance.standard_normal(seconds * 16_000) * level).round().astype("<i2").tobytes()
        decoded = sum(segment.end_byte - segment.start_byte for segment in cut(noise))
        assert decoded <= BYTES_PER_S, f"white noise of level {level}"
