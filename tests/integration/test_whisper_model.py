"""The bundled model itself: what is said comes out, what is not said does not."""

from __future__ import annotations

import csv
import random
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import jiwer
import numpy as np
import pytest
from faster_whisper.audio import decode_audio
from whisper_normalizer.english import EnglishTextNormalizer

from queueing.lane import Kind
from tests.support.sounds import (
    NOT_SPEECH,
    RATE,
    Samples,
    ending_with_speech,
    recording,
    silence,
    white_noise,
    words_of,
)
from workers.encoder import Encoder
from workers.load import load_transcriber
from workers.model_files import ModelError, ModelFiles, resolve_model
from workers.settings import WorkerSettings
from workers.speech import find_speech
from workers.transcriber import DecodeError, DecodeRequest, Transcript
from workers.whisper import WhisperOptions, WhisperTranscriber, fetch_from_hub, known_sizes, load_whisper

pytestmark = pytest.mark.model

normal = EnglishTextNormalizer()


def bundled() -> ModelFiles:
    return resolve_model("bundled", model_dir=None, sizes=known_sizes(), fetch=fetch_from_hub)


@pytest.fixture(scope="module")
def whisper() -> WhisperTranscriber:
    return load_whisper(bundled(), WhisperOptions(threads=1))


def decode(
    whisper: WhisperTranscriber, samples: Samples, kind: Kind = Kind.FINAL, *, words: bool = False
) -> Transcript:
    (answer,) = whisper.decode([DecodeRequest(samples, kind, words=words)])
    assert isinstance(answer, Transcript), answer
    return answer


def word_error_rate(expected: str, got: str) -> float:
    return float(jiwer.wer(normal(expected), normal(got)))


def last_word(text: str) -> str:
    return str(normal(text).split()[-1])


@pytest.mark.parametrize(("name", "kind"), [("sample", Kind.PARTIAL), ("sample", Kind.FINAL), ("pauses", Kind.FINAL)])
def test_the_projects_samples_come_out_word_for_word(whisper: WhisperTranscriber, name: str, kind: Kind) -> None:
    """The longer one in the two halves around its longest pause."""
    halves = [recording("sample")] if name == "sample" else [pauses(0, PAUSE_AT_S), pauses(PAUSE_AT_S, 60)]
    parts = [decode(whisper, half, kind) for half in halves]
    transcript = replace(parts[-1], text=" ".join(part.text for part in parts))
    assert word_error_rate(words_of(name), transcript.text) <= 0.05, transcript.text
    assert last_word(transcript.text) == last_word(words_of(name))
    assert transcript.language == "en"


PAUSE_AT_S = 22.5
"""In the middle of a pause of `pauses`."""

SAID_AT_S = {"good": (0.3, 3.0), "in": (4.5, 7.5), "keep": (12.5, 15.4), "river": (18.0, 20.5)}
"""Words that come once, and from when to when somebody speaks there."""


def pauses(start_s: float, end_s: float) -> Samples:
    return recording("pauses")[int(start_s * RATE) : int(end_s * RATE)]


@pytest.mark.parametrize(
    ("seconds", "source", "expected"),
    [
        (0.5, "market", "market"),
        (0.9, "break", "break"),
        (1.1, "break", "break"),
        (24.0, "break", "break"),
        (28.0, "break", "break"),
    ],
)
def test_the_last_word_is_there_when_it_ends_just_before_the_audio(
    whisper: WhisperTranscriber, seconds: float, source: str, expected: str
) -> None:
    samples = {"market": pauses(0, 29), "break": recording("pauses")}[source]
    assert last_word(decode(whisper, ending_with_speech(samples, seconds)).text) == expected


def test_three_tenths_of_a_second_give_little_or_nothing(whisper: WhisperTranscriber) -> None:
    """Too short for most words; but never a sentence."""
    for start in (0.6, 2.7, 6.2, 8.3):
        text = decode(whisper, recording("sample")[int(start * RATE) :][: int(0.3 * RATE)]).text
        assert len(text) <= 20, text


@pytest.mark.parametrize("kind", [Kind.PARTIAL, Kind.FINAL])
@pytest.mark.parametrize("sound", NOT_SPEECH)
def test_sound_without_speech_is_no_text(whisper: WhisperTranscriber, kind: Kind, sound: str) -> None:
    assert decode(whisper, NOT_SPEECH[sound](), kind).text == ""


@pytest.mark.parametrize("samples", [silence(0), silence(0.01), silence(28)], ids=["nothing", "10 ms", "long"])
def test_digital_silence_reaches_neither_model(
    whisper: WhisperTranscriber, monkeypatch: pytest.MonkeyPatch, samples: Samples
) -> None:
    def must_not_run(*args: object, **options: object) -> None:
        raise AssertionError("a model saw digital silence")

    monkeypatch.setattr("workers.speech.get_speech_timestamps", must_not_run)
    monkeypatch.setattr(Encoder, "features", must_not_run)
    assert decode(whisper, samples).text == ""


def test_silence_around_speech_adds_no_text_and_shifts_its_times(whisper: WhisperTranscriber) -> None:
    alone = recording("sample")
    transcript = decode(whisper, np.concatenate([silence(10), alone, silence(5)]), words=True)
    assert word_error_rate(words_of("sample"), transcript.text) <= 0.05, transcript.text
    assert 9.5 <= transcript.words[0].start_s <= 11.0
    assert transcript.words[-1].end_s <= 10 + len(alone) / RATE + 1.0


def test_noise_around_speech_adds_no_text(whisper: WhisperTranscriber) -> None:
    samples = np.concatenate([white_noise(8, -45), recording("sample"), white_noise(8, -45, seed=2)])
    assert word_error_rate(words_of("sample"), decode(whisper, samples).text) <= 0.1


def test_short_audio_gives_the_same_text_with_and_without_word_times(whisper: WhisperTranscriber) -> None:
    samples = ending_with_speech(recording("pauses"), 1.5)
    plain, timed = decode(whisper, samples), decode(whisper, samples, words=True)
    assert plain.text == timed.text == " ".join(word.text for word in timed.words)
    assert plain.words == ()


def test_word_times_are_in_order_within_the_audio_and_spell_the_text(whisper: WhisperTranscriber) -> None:
    samples = recording("pauses")[: 11 * RATE]
    transcript = decode(whisper, samples, words=True)
    edges = [edge for word in transcript.words for edge in (word.start_s, word.end_s)]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= len(samples) / RATE
    assert " ".join(word.text for word in transcript.words) == transcript.text
    assert all(0 <= word.probability <= 1 for word in transcript.words)


def test_words_behind_pauses_that_were_left_out_have_the_times_of_the_audio(whisper: WhisperTranscriber) -> None:
    """Silence of five seconds is inside, three are in front."""
    transcript = decode(whisper, np.concatenate([silence(3), pauses(0, PAUSE_AT_S)]), words=True)
    first: dict[str, float] = {}
    for word in transcript.words:
        first.setdefault(normal(word.text), word.start_s - 3)
    for said, (start_s, end_s) in SAID_AT_S.items():
        assert start_s - 0.5 <= first[said] <= end_s, (said, first[said])
    gaps = [after.start_s - before.end_s for before, after in zip(transcript.words, transcript.words[1:], strict=False)]
    assert max(gaps) > 4, "the long pause belongs to no word"


def test_silence_costs_next_to_nothing(whisper: WhisperTranscriber, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    states = Encoder.states

    def watched(self: Encoder, batch: list[Samples], window_s: int, silence_s: float = 0.0) -> object:
        seen.append(window_s)
        return states(self, batch, window_s, silence_s)

    monkeypatch.setattr(Encoder, "states", watched)
    for kind in (Kind.PARTIAL, Kind.FINAL):
        decode(whisper, np.concatenate([silence(10), pauses(0, 3.5), silence(12)]), kind)
    assert seen == [5, 5], "25.5 s of audio with three of speech"


def test_a_prompt_of_any_length_leaves_the_text_whole(whisper: WhisperTranscriber) -> None:
    speech = pauses(0, 3.5)
    requests = [
        DecodeRequest(speech, Kind.FINAL, prompt="The weekly weather report.", words=True),
        DecodeRequest(speech, Kind.FINAL, prompt="It rained again. " * 300, hotwords="weather " * 300),
    ]
    for answer in whisper.decode(requests):
        assert isinstance(answer, Transcript), answer
        assert word_error_rate("Good morning, and welcome to the weekly weather report.", answer.text) <= 0.25


@pytest.mark.parametrize("kind", [Kind.PARTIAL, Kind.FINAL])
def test_members_of_a_batch_say_what_they_say_alone(whisper: WhisperTranscriber, kind: Kind) -> None:
    requests = [DecodeRequest(pauses(start_s, start_s + 3.5), kind) for start_s in (0, 4, 12, 17)]
    together = whisper.decode(requests)
    alone = [whisper.decode([request])[0] for request in requests]
    assert together == alone


def test_the_same_audio_gives_the_same_text_under_load(whisper: WhisperTranscriber, rng: random.Random) -> None:
    """Alone, after other audio, and beside a second decode of the same model."""
    pieces = [recording("pauses")[start * RATE :][: 4 * RATE] for start in (0, 12)]
    alone = [decode(whisper, piece).text for piece in pieces]
    beside: list[str] = []
    other = threading.Thread(target=lambda: beside.extend(decode(whisper, piece).text for piece in pieces))
    other.start()
    order = rng.sample(range(2), 2)
    assert [decode(whisper, pieces[place]).text for place in order] == [alone[place] for place in order]
    other.join()
    assert beside == alone


def test_one_faulty_member_of_a_batch_fails_alone(whisper: WhisperTranscriber) -> None:
    speech = recording("pauses")[: 3 * RATE]
    good = DecodeRequest(speech, Kind.FINAL)
    first, second, third = whisper.decode([good, DecodeRequest(speech, Kind.FINAL, language="de"), good])
    assert isinstance(second, DecodeError)
    assert isinstance(first, Transcript)
    assert first == third


def test_loading_by_settings_describes_what_runs() -> None:
    loaded = load_transcriber(WorkerSettings.from_env({"HEARLINE_THREADS": "1", "HEARLINE_DEVICE": "cpu"}), crash=exit)
    assert loaded.description == {
        "model": "tiny.en",
        "device": "cpu",
        "compute_type": "int8_float32",
        "threads": 1,
        "multilingual": False,
        "calibration": "shipped",
    }


def test_weights_that_cannot_be_read_are_a_model_error(tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(bundled().path, folder, ignore=shutil.ignore_patterns("model.bin"))
    (folder / "model.bin").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="cannot be loaded on cpu") as caught:
        load_whisper(ModelFiles("broken", folder), WhisperOptions(device="cpu"))
    assert not caught.value.retry


def test_a_broken_tokenizer_is_a_model_error_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer\.json is no tokenizer.*put back"):
        load_whisper(ModelFiles("broken", tmp_path), WhisperOptions(device="cpu"))


@pytest.mark.speech
def test_the_voice_gate_lets_every_recording_through(speech_dir: Path) -> None:
    with (speech_dir / "manifest.csv").open() as file:
        names = [row["file"] for row in csv.DictReader(file)][::3]
    assert [name for name in names if not find_speech(decode_audio(str(speech_dir / name)))] == []


@pytest.mark.speech
def test_sized_windows_hear_real_recordings_as_well_as_the_full_one(
    whisper: WhisperTranscriber, speech_dir: Path
) -> None:
    full = load_whisper(bundled(), WhisperOptions(threads=1, window="full"))
    with (speech_dir / "manifest.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if 2 < float(row["seconds"]) < 5][::4][:8]
    expected, sized, padded = [], [], []
    for row in rows:
        samples = decode_audio(str(speech_dir / row["file"]))
        expected.append(normal(row["reference"]))
        sized.append(normal(decode(whisper, samples).text))
        padded.append(normal(decode(full, samples).text))
    assert jiwer.wer(expected, sized) <= jiwer.wer(expected, padded) + 0.05


@pytest.mark.speech
@pytest.mark.parametrize("name", ["silence-60s.flac", "noise-white-minus50db-15s.flac", "dtmf-3s.flac"])
def test_recorded_sound_without_speech_is_no_text(whisper: WhisperTranscriber, speech_dir: Path, name: str) -> None:
    assert decode(whisper, decode_audio(str(speech_dir / "edge" / name))[: 28 * RATE]).text == ""
