"""What every transcriber promises, held against each of them: the stand-in stays honest."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from queueing.lane import Kind
from tests.support.sounds import RATE, Samples, recording, silence
from workers.model_files import resolve_model
from workers.scripted import Fault, Script, ScriptedTranscriber
from workers.transcriber import DecodeError, DecodeRequest, Transcriber, Transcript
from workers.whisper import WhisperOptions, fetch_from_hub, known_sizes, load_whisper

SPEECH = recording("pauses")[: 3 * RATE]
FAULTY = DecodeRequest(np.concatenate([np.array([77 / 32768], np.float32), SPEECH]), Kind.FINAL, language="de")
"""Audio and options that each of them refuses: the stand-in by its table, the English-only model by the language."""


@pytest.fixture(scope="module", params=["scripted", pytest.param("whisper", marks=pytest.mark.model)])
def transcriber(request: pytest.FixtureRequest) -> Transcriber:
    if request.param == "scripted":
        script = Script(base_s=0, per_audio_s=0, faults={77: Fault(do="error")})
        return ScriptedTranscriber(script, pause=threading.Event().wait, crash=exit)
    files = resolve_model("bundled", model_dir=None, sizes=known_sizes(), fetch=fetch_from_hub)
    return load_whisper(files, WhisperOptions(threads=1))


def test_it_has_a_name(transcriber: Transcriber) -> None:
    assert transcriber.name


def test_no_requests_no_answers(transcriber: Transcriber) -> None:
    assert list(transcriber.decode([])) == []


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("samples", [silence(0), silence(0.001), silence(3)], ids=["none", "1 ms", "3 s"])
def test_nothing_said_is_an_empty_text(transcriber: Transcriber, kind: Kind, samples: Samples) -> None:
    (answer,) = transcriber.decode([DecodeRequest(samples, kind)])
    assert isinstance(answer, Transcript)
    assert answer.text == ""
    assert not answer.decoded, "the model was not asked"


def test_each_request_has_its_answer_in_order_and_a_fault_is_one_requests_alone(transcriber: Transcriber) -> None:
    spoken, timed = DecodeRequest(SPEECH, Kind.FINAL), DecodeRequest(SPEECH, Kind.FINAL, words=True)
    first, second, third, fourth = transcriber.decode([spoken, FAULTY, DecodeRequest(silence(1), Kind.FINAL), timed])
    assert isinstance(second, DecodeError)
    assert not second.retry
    assert isinstance(first, Transcript)
    assert isinstance(third, Transcript)
    assert isinstance(fourth, Transcript)
    assert first.text
    assert (first.decoded, third.decoded, fourth.decoded) == (True, False, True)
    assert third.text == ""
    assert first.words == ()
    edges = [edge for word in fourth.words for edge in (word.start_s, word.end_s)]
    assert edges == sorted(edges)
    assert 0 <= edges[0] <= edges[-1] <= spoken.audio_s
    assert " ".join(word.text for word in fourth.words) == fourth.text


def test_the_same_audio_gives_the_same_text(transcriber: Transcriber) -> None:
    request = DecodeRequest(SPEECH[:RATE], Kind.PARTIAL)
    assert transcriber.decode([request]) == transcriber.decode([request])
