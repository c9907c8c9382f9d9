"""Standard input, the synthetic signal, the microphone, and cutting into frames."""

from __future__ import annotations

import io
import random
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loadgen.clips import BYTES_PER_SECOND, ClipError, load_clip
from loadgen.sources import is_container, microphone, primed, read_stream, samples_only, synthetic

SAMPLES = Path(__file__).resolve().parents[1] / "data"


class Trickle:
    """A pipe whose reads return what has come so far: ``sizes`` bytes at a time."""

    def __init__(self, data: bytes, sizes: Callable[[], int]) -> None:
        self._data = io.BytesIO(data)
        self._sizes = sizes

    def read(self, size: int, /) -> bytes:
        return self._data.read(min(size, self._sizes()))


def test_raw_pcm_passes_through_unchanged_in_whatever_pieces_it_comes(rng: random.Random) -> None:
    data = (
        np.random.default_rng(rng.randrange(2**32)).integers(-3_000, 3_000, 20_000, dtype=np.int16).tobytes() + b"\x07"
    )
    stream = Trickle(data, lambda: rng.choice((1, 2, 3, 641, 5_000)))
    assert b"".join(read_stream(stream, pytest.fail)) == data


def test_containers_on_standard_input_are_decoded(rng: random.Random) -> None:
    path = SAMPLES / "sample.flac"
    stream = Trickle(path.read_bytes(), lambda: rng.randrange(1, 40_000))
    assert b"".join(read_stream(stream, pytest.fail)) == load_clip(path, pytest.fail)


@pytest.mark.speech
def test_every_container_is_told_from_raw_pcm(speech_dir: Path) -> None:
    for path in sorted((speech_dir / "edge").iterdir()):
        head = path.read_bytes()[:2048]
        assert is_container(head) == (path.name not in {"base-s16be-16k.raw", "text-renamed.wav", "empty.wav"}), path


def test_raw_pcm_is_not_taken_for_mpeg_audio(rng: random.Random) -> None:
    generator = np.random.default_rng(rng.randrange(2**32))
    for level in (1, 3, 300, 30_000):
        for _ in range(500):
            sound = generator.integers(-level, level, 1024, dtype=np.int16)
            assert not is_container(sound.tobytes())
    assert not is_container(np.full(1024, -1, np.int16).tobytes())
    assert not is_container(b"\xff\xfb\x90\x00" + bytes(2044)), "one MP3 header by chance, no second"


def test_text_and_nothing_on_standard_input_are_refused() -> None:
    with pytest.raises(ClipError, match="before the first byte"):
        next(read_stream(io.BytesIO(b""), pytest.fail))
    with pytest.raises(ClipError, match="text"):
        next(read_stream(io.BytesIO(b"hello, is this on? 1 2 3\n"), pytest.fail))


@pytest.mark.speech
def test_a_format_that_needs_seeking_says_so(speech_dir: Path) -> None:
    data = (speech_dir / "edge" / "aac.m4a").read_bytes()
    with pytest.raises(ClipError, match="a file instead of a pipe"):
        list(read_stream(Trickle(data, lambda: 4096), lambda _text: None))


def test_the_synthetic_signal_is_deterministic_bounded_and_exactly_long_enough() -> None:
    first = b"".join(synthetic(12.34))
    assert first == b"".join(synthetic(12.34))
    assert first.startswith(b"".join(synthetic(5.0))), "a shorter one is a prefix"
    assert first != b"".join(synthetic(12.34, seed=2))
    assert len(first) == round(12.34 * 16_000) * 2
    sound = np.frombuffer(first, "<i2").astype(float)
    loud, quiet = sound[: 7 * 16_000], sound[int(8.5 * 16_000) : int(9.5 * 16_000)]
    assert 1_000 < loud.std() < 10_000
    assert quiet.std() < 100, "there is a pause in every ten seconds"
    assert list(synthetic(0.0)) == []
    for wrong in (-1.0, float("nan"), float("inf"), 1e9):
        with pytest.raises(ClipError, match="0 to 86400"):
            next(synthetic(wrong))


def test_a_microphone_without_its_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(ClipError, match="-m pip install sounddevice"):
        next(microphone())


def test_the_microphone_delivers_blocks_and_names_device_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    class PortAudioError(Exception):
        pass

    class Stream:
        broken = False

        def __init__(self, **settings: object) -> None:
            assert settings == {"samplerate": 16_000, "channels": 1, "dtype": "int16", "blocksize": 1_600}
            if self.broken:
                raise PortAudioError("no default input device")

        def __enter__(self) -> Stream:
            return self

        def __exit__(self, *_exc: object) -> None:
            self.closed = True

        def read(self, frames: int) -> tuple[bytearray, bool]:
            return bytearray(frames * 2), False

    fake = types.ModuleType("sounddevice")
    fake.RawInputStream = Stream  # type: ignore[attr-defined]
    fake.PortAudioError = PortAudioError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    assert len(next(microphone())) == BYTES_PER_SECOND // 10
    Stream.broken = True
    with pytest.raises(ClipError, match="no default input device"):
        next(microphone())


def test_bad_input_is_found_before_the_first_use() -> None:
    with pytest.raises(ClipError):
        primed(read_stream(io.BytesIO(b""), pytest.fail))
    assert list(primed(iter([b"a", b"b"]))) == [b"a", b"b"]
    assert list(primed(iter([]))) == []


def test_a_wav_file_in_place_of_its_samples_is_refused_however_it_is_cut() -> None:
    blocks = [b"RI", b"", b"FFRIFF", b"RF64"]
    with pytest.raises(ClipError, match="read_clip"):
        list(samples_only(blocks))
    assert list(samples_only([b"x", *blocks])) == [b"x", *blocks]
    assert list(samples_only([])) == []
