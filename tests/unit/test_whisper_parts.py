"""The door to the model, without a model: choices, the second attempt, languages."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import ctranslate2
import numpy as np
import numpy.typing as npt
import pytest
from faster_whisper import WhisperModel

from queueing.lane import Kind
from workers import whisper
from workers.model_files import ModelError
from workers.transcriber import DecodeError, DecodeRequest
from workers.whisper import SteadyWhisper, WhisperOptions, WhisperTranscriber


def test_auto_takes_a_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    assert [whisper.choose_device(wanted) for wanted in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 0)
    assert whisper.choose_device("auto") == "cpu"
    with pytest.raises(ModelError, match=r"HEARLINE_DEVICE='cuda'.*cpu or auto"):
        whisper.choose_device("cuda")


def test_the_default_arithmetic_is_int8_on_a_cpu_and_float16_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda device: {"int8", "float16", "float32"})
    assert whisper.choose_compute_type("default", "cpu") == "int8"
    assert whisper.choose_compute_type("default", "cuda") == "float16"
    assert whisper.choose_compute_type("float32", "cuda") == "float32"
    with pytest.raises(ModelError, match=r"'bfloat16' is not supported.*float16, float32, int8"):
        whisper.choose_compute_type("bfloat16", "cuda")
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda device: {"float32"})
    assert whisper.choose_compute_type("default", "cuda") == "default"


def test_threads_are_what_was_asked_for_or_the_cpus_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert whisper.choose_threads(7) == 7
    for cpus, threads in ((1, 1), (2, 1), (4, 3), (64, whisper.MOST_THREADS)):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cpus=cpus: set(range(cpus)), raising=False)
        assert whisper.choose_threads(0) == threads, "one CPU is left to the rest of the service"


@dataclass(frozen=True)
class Options:
    """The part of faster-whisper's options that the second attempt looks at."""

    temperatures: tuple[float, ...]
    no_repeat_ngram_size: int = 0


@dataclass
class Attempts:
    """Stands in for the library's decoding: answers in turn, remembers the options."""

    answers: list[tuple[Any, float, float, float]]
    seen: list[Options] = field(default_factory=list)

    def __call__(self, _self: object, _output: object, _prompt: object, _tokenizer: object, options: Options) -> Any:
        self.seen.append(options)
        return self.answers[len(self.seen) - 1]


LOOP = ("again again again", -0.2, 0.0, 9.0)


@pytest.mark.parametrize(
    ("answers", "temperatures", "expected", "attempts"),
    [
        ([("fine", -0.3, 0.0, 1.2)], (0.0, 0.2), "fine", 1),
        ([LOOP, ("better", -0.1, 0.0, 1.3)], (0.0, 0.2), "better", 2),
        ([LOOP, ("unlikely", -0.9, 0.0, 1.3)], (0.0, 0.2), "again again again", 2),
        ([LOOP], (0.0,), "again again again", 1),
    ],
    ids=["good at once", "second is likelier", "a real repetition stays", "partials try once"],
)
def test_a_repetitive_window_is_searched_once_more_without_chance(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[tuple[Any, float, float, float]],
    temperatures: tuple[float, ...],
    expected: str,
    attempts: int,
) -> None:
    library = Attempts(answers)
    monkeypatch.setattr(WhisperModel, "generate_with_fallback", lambda *args: library(*args))
    model = object.__new__(SteadyWhisper)
    result = model.generate_with_fallback(None, [], None, Options(temperatures))
    assert result[0] == expected
    assert [tuple(options.temperatures) for options in library.seen] == [(0.0,)] * attempts, "never any sampling"
    assert [options.no_repeat_ngram_size for options in library.seen] == [0, 5][:attempts]


class StubModel:
    """What the transcriber asks of a loaded model; a decode is an error of the test."""

    def __init__(self, languages: list[str], *, fault: Exception | None = None) -> None:
        self.supported_languages = languages
        self.model = SimpleNamespace(is_multilingual=len(languages) > 1, compute_type="int8")
        self.fault = fault

    def transcribe(self, *args: object, **options: object) -> tuple[list[Any], Any]:
        if self.fault is not None:
            raise self.fault
        return [], SimpleNamespace(language=options["language"] or "found")


def transcriber(model: StubModel, options: WhisperOptions | None = None) -> WhisperTranscriber:
    return WhisperTranscriber(model, "stub", options or WhisperOptions(), device="cpu", threads=1)


def speech_like() -> npt.NDArray[np.float32]:
    """Three seconds that the voice detector takes for speech: 200 Hz in bursts, four a second."""
    time = np.arange(48_000) / 16_000
    tone = 0.25 * np.sin(2 * np.pi * 200 * time) * (1 + np.sin(2 * np.pi * 4 * time)) / 2
    return np.asarray(tone, dtype=np.float32)


@pytest.mark.parametrize("language", ["de", "xx"])
def test_an_english_only_model_refuses_other_languages_for_good(language: str) -> None:
    (answer,) = transcriber(StubModel(["en"])).decode([DecodeRequest(speech_like(), Kind.FINAL, language)])
    assert isinstance(answer, DecodeError)
    assert "English only" in str(answer)
    assert not answer.retry
    assert answer.code == "unsupported_language"


def test_a_language_nobody_knows_is_refused_with_those_that_are() -> None:
    (answer,) = transcriber(StubModel(["en", "de"])).decode([DecodeRequest(speech_like(), Kind.FINAL, "xx")])
    assert isinstance(answer, DecodeError)
    assert "de, en" in str(answer)


@pytest.mark.parametrize(
    ("asked", "default", "languages", "expected"),
    [
        (None, None, ["en"], "en"),
        (None, None, ["en", "de"], "found"),
        (None, "de", ["en", "de"], "de"),
        ("en", "de", ["en", "de"], "en"),
    ],
)
def test_the_request_then_the_setting_then_detection_gives_the_language(
    asked: str | None, default: str | None, languages: list[str], expected: str
) -> None:
    model = transcriber(StubModel(languages), WhisperOptions(language=default))
    (answer,) = model.decode([DecodeRequest(speech_like(), Kind.FINAL, asked)])
    assert not isinstance(answer, DecodeError)
    assert answer.language == expected


def test_a_fault_of_the_library_is_that_requests_alone_and_may_be_tried_again() -> None:
    model = transcriber(StubModel(["en"], fault=RuntimeError("out of memory")))
    silent = DecodeRequest(np.zeros(16_000, np.float32), Kind.FINAL)
    answers = model.decode([silent, DecodeRequest(speech_like(), Kind.FINAL), silent])
    assert isinstance(answers[1], DecodeError)
    assert answers[1].retry
    assert "out of memory" in str(answers[1])
    assert not isinstance(answers[0], DecodeError)
    assert not isinstance(answers[2], DecodeError)
