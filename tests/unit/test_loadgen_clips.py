"""Files of every kind as 16 kHz mono PCM16, or a clear refusal."""

from __future__ import annotations

import csv
import itertools
import wave
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest

from loadgen.clips import BYTES_PER_SECOND, ClipError, is_text, load_clip, read_clip

SAMPLES = Path(__file__).resolve().parents[1] / "data"

EXACT = (
    "wav-plain.wav", "wav-extensible.wav", "wav-list-before-data.wav", "wav-list-after-data.wav",
    "wav-odd-chunk-first.wav", "wav-data-size-0.wav", "wav-data-size-ffffffff.wav", "wav-riff-size-wrong.wav",
    "wav-odd-bytes.wav", "wav-rf64.wav", "pcm-s24.wav", "pcm.aiff", "alac.m4a", "flac-base.flac",
    "stereo-inverted.flac",
)  # fmt: skip
"""Edge files whose samples are the base's, bit for bit."""

REFUSED = {
    "wav-no-data-chunk.wav": "cut before its index",
    "wav-zero-channels.wav": "no sound in it",
    "wav-header-8-bytes.wav": "not audio",
    "empty.wav": "0 bytes",
    "text-renamed.wav": "text file",
    "base-s16be-16k.raw": "hearline stream - < FILE",
    "aac-truncated.m4a": "cut before its index",
    "video-no-audio.mp4": "no audio in it, only video",
}

WARNED = {
    "flac-truncated.flac": "4.4 s by its header, 2.6 s could be decoded",
    "wav-truncated.wav": "56063 bytes that its header promises are missing",
    "mp3-two-concatenated.mp3": "1 damaged packet left out",
    "pcm-f32-nan-inf.wav": "not numbers",
    "stereo-inverted.flac": "cancel each other",
}


def samples(path: Path, warnings: list[str]) -> npt.NDArray[np.int16]:
    return np.frombuffer(load_clip(path, warnings.append), "<i2")


def edge_rows(speech_dir: Path) -> list[dict[str, str]]:
    with (speech_dir / "edge.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.speech
def test_every_edge_file_gives_its_sound_or_a_clear_error(speech_dir: Path) -> None:
    for row in edge_rows(speech_dir):
        name = Path(row["file"]).name
        warnings: list[str] = []
        if name in REFUSED:
            with pytest.raises(ClipError, match=REFUSED[name]) as caught:
                samples(speech_dir / row["file"], warnings)
            assert caught.value.source == str(speech_dir / row["file"])
            continue
        sound = samples(speech_dir / row["file"], warnings)
        # Codecs pad by a frame; what the table calls a length is exact to that.
        assert len(sound) / 16_000 == pytest.approx(float(row["seconds"]), abs=0.08), name
        assert bool(warnings) == (name in WARNED), f"{name}: {warnings}"
        assert all(WARNED[name] in text for text in warnings), f"{name}: {warnings}"


@pytest.mark.speech
@pytest.mark.parametrize("name", EXACT)
def test_lossless_files_give_exactly_the_base_samples(speech_dir: Path, name: str) -> None:
    base = samples(speech_dir / "edge" / "wav-plain.wav", [])
    assert np.array_equal(samples(speech_dir / "edge" / name, []), base)


@pytest.mark.speech
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("stereo-44100.wav", 0.99), ("stereo-right-silent.flac", 0.999), ("six-channel-48k.flac", 0.99),
        ("mono-96000.flac", 0.99), ("rate-11025.wav", 0.95), ("mulaw-8k.wav", 0.85), ("pcm-u8.wav", 0.99),
        ("pcm-f32-over-1.wav", 0.98), ("pcm-f32-nan-inf.wav", 0.999), ("opus-24k.ogg", 0.95), ("aac.m4a", 0.95),
    ],
)  # fmt: skip
def test_other_rates_layouts_and_codecs_keep_the_waveform(speech_dir: Path, name: str, least: float) -> None:
    base = samples(speech_dir / "edge" / "wav-plain.wav", []).astype(float)
    sound = samples(speech_dir / "edge" / name, []).astype(float)
    both = min(len(base), len(sound))
    assert np.corrcoef(base[:both], sound[:both])[0, 1] > least


def test_the_bundled_samples_are_as_documented() -> None:
    for name, seconds in (("sample", 10.275), ("pauses", 39.828)):
        sound = samples(SAMPLES / f"{name}.flac", [])
        assert len(sound) / 16_000 == pytest.approx(seconds, abs=0.001)
        assert 5_000 < np.abs(sound.astype(int)).max() <= 32_767


def test_a_long_file_is_read_in_small_blocks(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(48_000)
        for _ in range(60):
            file.writeframes(bytes(48_000 * 4))
    blocks = read_clip(path, pytest.fail)
    sizes = [len(block) for block in blocks]
    assert sum(sizes) == pytest.approx(60 * BYTES_PER_SECOND, abs=BYTES_PER_SECOND // 100)
    assert max(sizes) < 2 * BYTES_PER_SECOND


def test_a_stop_in_the_middle_closes_the_file(tmp_path: Path) -> None:
    blocks = read_clip(SAMPLES / "sample.flac", pytest.fail)
    assert len(list(itertools.islice(blocks, 2))) == 2
    blocks.close()  # type: ignore[attr-defined]  # a leaked file would be a warning, and that an error


def test_missing_files_directories_and_oversized_clips_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ClipError, match="no such file"):
        load_clip(tmp_path / "nothing.wav", pytest.fail)
    with pytest.raises(ClipError, match="directory"):
        load_clip(tmp_path, pytest.fail)
    with pytest.raises(ClipError, match="longer than 2 s"):
        load_clip(SAMPLES / "sample.flac", pytest.fail, limit_s=2.0)


@pytest.mark.parametrize(
    ("name", "hint"), [("talk.raw", True), ("talk.PCM", True), ("talk", True), ("talk.x1", True), ("talk.m4a", False),
                       ("talk.wav", False), ("talk.mp4", False)],
)  # fmt: skip
def test_the_way_for_headerless_sound_is_shown_where_the_name_may_mean_it(
    tmp_path: Path, name: str, hint: bool
) -> None:
    path = tmp_path / name
    path.write_bytes(bytes(range(256)) * 8)
    with pytest.raises(ClipError) as caught:
        load_clip(path, pytest.fail)
    assert ("hearline stream - < FILE" in caught.value.problem) == hint


@pytest.mark.parametrize(("name", "problem"), [("a.raw", "without a header; .*stream -"), ("a.mp4", "only video$")])
def test_raw_sound_that_passes_for_a_picture_is_not_called_video(tmp_path: Path, name: str, problem: str) -> None:
    path = tmp_path / name
    with av.open(str(path), "w", format="mp4") as film:
        stream = film.add_stream("mpeg4", rate=5)
        stream.width, stream.height = 32, 32
        for _ in range(2):
            film.mux(stream.encode(av.VideoFrame(32, 32, "yuv420p")))
        film.mux(stream.encode(None))
    with pytest.raises(ClipError, match=problem):
        load_clip(path, pytest.fail)


def test_a_file_is_never_taken_for_a_url_or_a_playlist(tmp_path: Path) -> None:
    playlist = tmp_path / "list.m3u8"
    playlist.write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{SAMPLES / 'sample.flac'}\n#EXT-X-ENDLIST\n")
    with pytest.raises(ClipError, match="text file"):
        load_clip(playlist, pytest.fail)
    with pytest.raises(ClipError, match="no such file"):
        load_clip(Path("http://127.0.0.1:9/a.wav"), pytest.fail)


def test_a_change_of_format_in_the_middle_is_followed(tmp_path: Path) -> None:
    from loadgen.downmix import Downmixer

    downmixer = Downmixer(pytest.fail)
    sizes = []
    for rate, layout, channels in ((48_000, "stereo", 2), (16_000, "mono", 1), (8_000, "mono", 1)):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, rate * channels), np.int16), format="s16", layout=layout)
        frame.sample_rate = rate
        sizes += [len(block) for block in downmixer.push(frame)]
    sizes += [len(block) for block in downmixer.finish()]
    assert sum(sizes) == pytest.approx(3 * BYTES_PER_SECOND, abs=BYTES_PER_SECOND // 50)


def test_ordinary_stereo_is_averaged_and_only_cancelling_stereo_is_not() -> None:
    from loadgen.downmix import Downmixer

    left = (np.sin(np.arange(16_000) / 5) * 8_000).astype(np.int16)
    right = (np.sin(np.arange(16_000) / 7) * 8_000).astype(np.int16)
    for second, expected in ((right, (left.astype(int) + right) / 2), (-left, left)):
        pairs = np.stack([left, second.astype(np.int16)], axis=1).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(pairs, format="s16", layout="stereo")
        frame.sample_rate = 16_000
        downmixer = Downmixer(lambda _text: None)
        mono = np.frombuffer(b"".join([*downmixer.push(frame), *downmixer.finish()]), "<i2")
        assert np.abs(mono - expected).max() <= 1


def test_text_is_told_from_sound() -> None:
    assert is_text(b"Dear reader, this is a letter.\r\n")
    assert is_text("Größe und Maß, mit Umlauten …".encode())
    assert is_text(("x" * 200 + "…").encode()[:-1])  # cut inside a character
    assert not is_text(b"short")
    assert not is_text(bytes(512))
    assert not is_text(np.arange(-200, 200, dtype="<i2").tobytes())
    assert not is_text(b"RIFF\x24\x00\x00\x00WAVEfmt plain   ")
