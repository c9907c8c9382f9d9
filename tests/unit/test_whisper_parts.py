"""The engine without a model: devices, languages, batches, second looks."""

from __future__ import annotations

import ctranslate2
import numpy as np
import pytest

from queueing.lane import Kind
from tests.support.stub_whisper import IDS, Call, StubModel, said, stub_transcriber, talk
from workers import devices
from workers.calibration import Calibration
from workers.encoder import Sizing
from workers.model_files import ModelError
from workers.transcriber import DecodeError, DecodeRequest, Transcript
from workers.whisper import WhisperOptions

SIZED = WhisperOptions(calibration=Calibration(Sizing(2.0, 4.0), Sizing(2.0, 0.0)))
GOOD = said(0.0, "hello", "world", 2.0)


def test_auto_takes_a_gpu_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 1)
    assert [devices.choose_device(wanted) for wanted in ("auto", "cpu", "cuda")] == ["cuda", "cpu", "cuda"]
    monkeypatch.setattr(ctranslate2, "get_cuda_device_count", lambda: 0)
    assert devices.choose_device("auto") == "cpu"
    with pytest.raises(ModelError, match=r"HEARLINE_DEVICE='cuda'.*cpu or auto"):
        devices.choose_device("cuda")


def test_the_default_arithmetic_is_int8_on_a_cpu_and_float16_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda device: {"int8", "float16", "float32"})
    assert devices.choose_compute_type("default", "cpu") == "int8"
    assert devices.choose_compute_type("default", "cuda") == "float16"
    assert devices.choose_compute_type("float32", "cuda") == "float32"
    with pytest.raises(ModelError, match=r"'bfloat16' is not supported.*float16, float32, int8"):
        devices.choose_compute_type("bfloat16", "cuda")
    monkeypatch.setattr(ctranslate2, "get_supported_compute_types", lambda device: {"float32"})
    assert devices.choose_compute_type("default", "cuda") == "default"


def test_threads_are_what_was_asked_for_or_the_cpus_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.choose_threads(7) == 7
    for cpus, threads in ((1, 1), (2, 1), (4, 3), (64, devices.MOST_THREADS)):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cpus=cpus: set(range(cpus)), raising=False)
        assert devices.choose_threads(0) == threads, "one CPU is left to the rest of the service"


@pytest.mark.parametrize("language", ["de", "xx"])
def test_an_english_only_model_refuses_other_languages_for_good(language: str) -> None:
    (answer,) = stub_transcriber(StubModel()).decode([DecodeRequest(talk(), Kind.FINAL, language)])
    assert isinstance(answer, DecodeError)
    assert "English only" in str(answer)
    assert not answer.retry
    assert answer.code == "unsupported_language"


def test_a_language_nobody_knows_is_refused_with_those_that_are() -> None:
    (answer,) = stub_transcriber(StubModel(is_multilingual=True)).decode([DecodeRequest(talk(), Kind.FINAL, "xx")])
    assert isinstance(answer, DecodeError)
    assert "de, en" in str(answer)


@pytest.mark.parametrize(
    ("asked", "default", "multilingual", "expected", "probability"),
    [
        (None, None, False, "en", 1.0),
        (None, None, True, "de", 0.9),
        (None, "de", True, "de", 1.0),
        ("en", "de", True, "en", 1.0),
    ],
)
def test_the_request_then_the_setting_then_detection_gives_the_language(
    asked: str | None, default: str | None, multilingual: bool, expected: str, probability: float
) -> None:
    model = StubModel(is_multilingual=multilingual)
    (answer,) = stub_transcriber(model, WhisperOptions(language=default)).decode(
        [DecodeRequest(talk(), Kind.FINAL, asked)]
    )
    assert isinstance(answer, Transcript)
    assert (answer.language, answer.language_probability) == (expected, probability)
    assert len(model.windows) == 1, "detection reads the states that are decoded"
    if multilingual:
        assert model.calls[0].prompts[0][:3] == said("<|startoftranscript|>", f"<|{expected}|>", "<|transcribe|>")


def test_translation_is_the_models_task_and_english_only_models_refuse_what_they_cannot_do() -> None:
    model = StubModel(is_multilingual=True)
    stub_transcriber(model).decode([DecodeRequest(talk(), Kind.FINAL, "de", translate=True)])
    assert IDS["<|translate|>"] in model.calls[0].prompts[0]
    english = stub_transcriber(StubModel())
    unknown, known = english.decode(
        [DecodeRequest(talk(), Kind.FINAL, language, translate=True) for language in (None, "en")]
    )
    assert isinstance(unknown, DecodeError)
    assert (unknown.code, unknown.retry) == ("unsupported_language", False)
    assert "cannot translate" in str(unknown)
    assert isinstance(known, Transcript), "English in English is a transcript"


def test_more_audio_than_a_job_may_hold_is_refused_with_the_limit() -> None:
    (answer,) = stub_transcriber(StubModel()).decode([DecodeRequest(talk(28.1), Kind.FINAL)])
    assert isinstance(answer, DecodeError)
    assert "28.10 s" in str(answer)
    assert "the 28 s" in str(answer)
    assert not answer.retry


def test_a_model_without_calibration_decodes_in_the_full_window() -> None:
    model = StubModel()
    stub_transcriber(model).decode([DecodeRequest(talk(), Kind.PARTIAL)])
    assert model.windows == [(1, 30)]
    assert model.calls[0].states[1] == 1500


def test_a_sized_window_has_states_of_silence_behind_it() -> None:
    model = StubModel()
    stub_transcriber(model, SIZED).decode([DecodeRequest(talk(), Kind.PARTIAL)])
    assert model.windows == [(1, 5), (1, 30)], "the window, and once the silence"
    assert model.calls[0].states[1] == (5 + 4) * 50


def test_partials_share_the_search_and_finals_of_a_window_where_that_changes_no_text() -> None:
    for compute_type, finals in (("int8", [(2, 5), (1, 7)]), ("float32", [(1, 5), (1, 5), (1, 7)])):
        model = StubModel(compute_type=compute_type)
        engine = stub_transcriber(model, SIZED)
        assert engine.batches_finals is (compute_type == "int8")
        requests = [DecodeRequest(talk(s), kind) for kind in (Kind.PARTIAL, Kind.FINAL) for s in (3.0, 2.5, 4.5)]
        assert all(isinstance(answer, Transcript) for answer in engine.decode(requests))
        encoded = sorted(size for size in model.windows if size[1] != 30)
        assert encoded == sorted([*finals, (2, 5), (1, 7)]), "the encoder sees no more than each one's window"
        assert sorted(call.states[:2] for call in model.calls) == sorted([*((n, s * 50) for n, s in finals), (3, 550)])


def test_a_member_that_runs_into_its_own_limit_is_searched_as_if_alone() -> None:
    """The limit of a call is that of its longest member."""
    loop = said(0.0, *["again"] * 300)

    def answer(call: Call, place: int) -> tuple[list[int], float]:
        limit = call.options["max_length"] // 2
        return (GOOD if len(call.prompts) > 1 and place == 1 else loop[:limit]), -0.2

    model = StubModel(answer)
    stub_transcriber(model, SIZED).decode([DecodeRequest(talk(s), Kind.FINAL) for s in (2.2, 2.9)])
    assert [len(call.prompts) for call in model.calls[:2]] == [2, 1]
    limits = [call.options["max_length"] // 2 for call in model.calls[:2]]
    assert limits == [16 + int(8 * 2.9), 16 + int(8 * 2.2)]


def test_without_states_of_silence_only_partials_of_a_window_share_the_search() -> None:
    model = StubModel()
    options = WhisperOptions(calibration=Calibration(Sizing(2.0, 0.0), None))
    stub_transcriber(model, options).decode([DecodeRequest(talk(s), Kind.PARTIAL) for s in (3.0, 2.5, 7.0)])
    assert sorted(call.states[:2] for call in model.calls) == [(1, 450), (2, 250)]


def test_members_with_prompts_of_other_forms_are_searched_apart_and_languages_together() -> None:
    model = StubModel(is_multilingual=True)
    requests = [
        DecodeRequest(talk(), Kind.PARTIAL, "en"),
        DecodeRequest(talk(), Kind.PARTIAL, "de"),
        DecodeRequest(talk(), Kind.PARTIAL, None),
        DecodeRequest(talk(), Kind.PARTIAL, "en", prompt="hello world"),
        DecodeRequest(talk(), Kind.PARTIAL, "en", hotwords="name name"),
    ]
    answers = stub_transcriber(model, SIZED).decode(requests)
    assert all(isinstance(answer, Transcript) for answer in answers)
    assert sorted(len(call.prompts) for call in model.calls) == [2, 3]
    assert model.detections == 1


def test_a_fault_of_the_library_is_that_requests_alone_and_may_be_tried_again() -> None:
    def answer(call: Call, place: int) -> tuple[list[int], float]:
        if any(IDS["name"] in prompt for prompt in call.prompts):
            raise RuntimeError("out of memory")
        return GOOD, -0.2

    silent = DecodeRequest(np.zeros(16_000, np.float32), Kind.PARTIAL)
    good = DecodeRequest(talk(), Kind.PARTIAL, prompt="hello")
    faulty = DecodeRequest(talk(), Kind.PARTIAL, prompt="name")
    first, second, third, fourth = stub_transcriber(StubModel(answer), SIZED).decode([silent, good, faulty, good])
    assert isinstance(third, DecodeError)
    assert third.retry
    assert "out of memory" in str(third)
    assert isinstance(first, Transcript)
    assert isinstance(second, Transcript)
    assert second == fourth
    assert second.text == "hello world"


LOOP = said(0.0, *["again", "hello", "world"] * 8, 2.0)


@pytest.mark.parametrize(
    ("kind", "answers", "expected", "counted"),
    [
        (Kind.FINAL, [(GOOD, -0.3)], "hello world", {}),
        (Kind.PARTIAL, [(LOOP, -0.2), (GOOD, -0.3)], "hello world", {"full_window": 1}),
        (Kind.FINAL, [(LOOP, -0.2), (GOOD, -0.3)], "hello world", {"full_window": 1}),
        (
            Kind.FINAL,
            [(LOOP, -0.2), (LOOP, -0.2), (GOOD, -0.1)],
            "hello world",
            {"full_window": 1, "bounded_search": 1},
        ),
        (Kind.PARTIAL, [(LOOP, -0.2), (LOOP, -0.2)], "", {"full_window": 1}),
        (Kind.FINAL, [(GOOD, -1.5), (GOOD, -1.4)], "hello world", {"full_window": 1}),
        (Kind.PARTIAL, [(GOOD, -1.5)], "hello world", {}),
    ],
    ids=[
        "good at once",
        "partial mended",
        "final mended",
        "searched again",
        "partials try twice",
        "improbable",
        "improbable partial",
    ],
)
def test_a_suspicious_text_is_decoded_once_more_and_a_final_then_searched_without_repeats(
    kind: Kind, answers: list[tuple[list[int], float]], expected: str, counted: dict[str, int]
) -> None:
    model = StubModel(lambda call, place: answers[len(model.calls) - 1])
    engine = stub_transcriber(model, SIZED)
    (found,) = engine.decode([DecodeRequest(talk(), kind)])
    assert isinstance(found, Transcript)
    assert found.text == expected
    kinds = {name: count for name, count in engine.counters.items() if not name.startswith(("suspicious", "se", "te"))}
    assert kinds == counted
    assert len(model.calls) == len(answers)
    assert [call.options["no_repeat_ngram_size"] for call in model.calls] == [0, 0, 5][: len(answers)]
    assert all("sampling_temperature" not in call.options for call in model.calls), "nothing is drawn by chance"


def test_a_real_repetition_survives_both_looks() -> None:
    phrase = ["again", "hello", "world"] * 2
    real = said(0.0, *phrase, 5.0)
    model = StubModel(lambda call, place: (real, -0.2) if len(model.calls) < 3 else (GOOD, -0.9))
    (found,) = stub_transcriber(model, SIZED).decode([DecodeRequest(talk(6.0), Kind.FINAL)])
    assert isinstance(found, Transcript)
    assert found.text == " ".join(phrase)


def test_what_the_model_left_open_is_decoded_on_from_there() -> None:
    answers = [said(0.0, "hello", 4.0, 4.0), said(0.0, "world", 3.0)]
    model = StubModel(lambda call, place: (answers[len(model.calls) - 1], -0.2))
    engine = stub_transcriber(model, SIZED)
    (found,) = engine.decode([DecodeRequest(talk(8.0), Kind.FINAL)])
    assert isinstance(found, Transcript)
    assert found.text == "helloworld", "Whisper's own words bring their spaces with them"
    assert engine.counters["continued"] == 1
    assert [window for _, window in model.windows] == [10, 6], "the rest has a window of its own"


def test_a_model_that_never_comes_to_an_end_is_gone_on_with_only_so_often() -> None:
    model = StubModel(lambda call, place: (said(0.0, "hello", 1.0, 1.0), -0.2))
    engine = stub_transcriber(model, SIZED)
    (found,) = engine.decode([DecodeRequest(talk(20.0), Kind.FINAL)])
    assert isinstance(found, Transcript)
    assert engine.counters["continued"] == 3


PHRASE = ["hello", "world", "again"]


@pytest.mark.parametrize(
    ("parts", "whole", "text"),
    [
        ((PHRASE, PHRASE), said(0.0, *PHRASE, 8.0), "hello world again"),
        ((PHRASE, PHRASE), said(0.0, *PHRASE, 4.0, 4.0), "hello world againhello world again"),
        ((["hello", "world"], ["world", "again"]), said(0.0, *PHRASE, 8.0), "hello world again"),
    ],
    ids=["a phrase", "a phrase said twice", "a word"],
)
def test_what_is_heard_twice_where_it_was_gone_on_is_looked_at_as_a_whole(
    parts: tuple[list[str], list[str]], whole: list[int], text: str
) -> None:
    """Once if the full window hears it once; a speaker who repeats himself is heard twice."""
    answers = [said(0.0, *parts[0], 4.0, 4.0), said(0.0, *parts[1], 3.0), whole]
    model = StubModel(lambda call, place: (answers[len(model.calls) - 1], -0.2))
    engine = stub_transcriber(model, SIZED)
    (found,) = engine.decode([DecodeRequest(talk(8.0), Kind.FINAL)])
    assert isinstance(found, Transcript)
    assert found.text == text
    assert [window for _, window in model.windows if window != 30] == [10, 6]
    assert engine.counters["full_window"] == 1


@pytest.mark.parametrize(
    ("kind", "stopped_at_s", "looks"),
    [(Kind.FINAL, 7.2, 1), (Kind.PARTIAL, 7.2, 0), (Kind.FINAL, 7.9, 0)],
    ids=["a word may be left", "the next partial comes anyway", "nothing is left"],
)
def test_a_last_word_that_the_model_stopped_before_is_listened_for_once_more(
    kind: Kind, stopped_at_s: float, looks: int
) -> None:
    short, whole = said(0.0, "hello", stopped_at_s, stopped_at_s), said(0.0, "hello", "world", 8.0)
    model = StubModel(lambda call, place: (short if len(model.calls) == 1 else whole, -0.2))
    engine = stub_transcriber(model, SIZED)
    (found,) = engine.decode([DecodeRequest(talk(8.0), kind)])
    assert isinstance(found, Transcript)
    assert found.text == ("hello world" if looks else "hello")
    assert engine.counters["full_window"] == engine.counters["suspicious_unheard_end"] == looks
