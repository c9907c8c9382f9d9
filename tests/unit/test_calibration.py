"""Which sizing is chosen, what its file holds, and what is said of a wrong one."""

from __future__ import annotations

import json
import wave
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ops.cli import main
from queueing.lane import Kind
from tests.support.sounds import RATE, Samples, recording, silence, words_of
from tests.support.stub_whisper import StubModel, stub_transcriber, talk
from workers.bench_corpus import BenchError, Recording
from workers.calibrate import Candidate, choose, describe, measure, sizings
from workers.calibration import FULL, SHIPPED, Calibration, find_calibration, read_calibration, write_calibration
from workers.encoder import Sizing
from workers.model_files import ModelError, ModelFiles

SHORT, LONG = Sizing(1.0, 0.0), Sizing(3.0, 4.0)


def candidate(sizing: Sizing | None, word_error_rate: float, cpu: float) -> Candidate:
    return Candidate(sizing, word_error_rate, cpu, {})


@pytest.mark.parametrize(
    ("rates", "chosen"),
    [
        ([(0.100, 0.10), (0.100, 0.03), (0.100, 0.04)], SHORT),
        ([(0.100, 0.10), (0.130, 0.03), (0.101, 0.04)], LONG),
        ([(0.100, 0.10), (0.102, 0.03), (0.090, 0.04)], LONG),
        ([(0.100, 0.10), (0.130, 0.03), (0.150, 0.04)], None),
        ([(0.100, 0.10), (0.100, 0.09), (0.100, 0.11)], None),
    ],
    ids=["cheapest of equals", "accuracy first", "best within a tenth", "too many errors", "saves too little"],
)
def test_the_cheapest_sizing_that_keeps_the_word_error_rate_is_chosen(
    rates: list[tuple[float, float]], chosen: Sizing | None
) -> None:
    candidates = [candidate(sizing, *rate) for sizing, rate in zip((None, SHORT, LONG), rates, strict=True)]
    assert choose(candidates) == chosen


def test_every_sizing_is_measured_on_every_recording_and_the_engine_is_left_as_it_was() -> None:
    model = StubModel()
    engine = stub_transcriber(model)
    recordings = [Recording("a", talk(), "hello world"), Recording("long", np.zeros(29 * 16_000, np.float32), "hello")]
    lines: list[str] = []
    ticks = iter(range(1000))
    found = measure(engine, recordings, Kind.PARTIAL, 1, cpu_s=lambda: float(next(ticks)), progress=lines.append)
    assert [one.sizing for one in found.candidates] == sizings()
    assert [describe(one.sizing) in line for one, line in zip(found.candidates, lines, strict=True)] == [True] * 11
    assert {one.word_error_rate for one in found.candidates} == {0.0}
    assert {round(one.cpu_per_audio_s, 6) for one in found.candidates} == {0.333333}
    assert found.chosen is None, "all take as long"
    assert found.to_dict()["pays"] is False
    assert engine.calibration == FULL
    with pytest.raises(BenchError, match="within 28 s"):
        measure(engine, recordings[1:], Kind.PARTIAL, 1, cpu_s=lambda: 0.0, progress=lines.append)


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    (tmp_path / "model.bin").write_bytes(b"weights")
    return ModelFiles("mine", tmp_path)


def test_what_was_written_is_found_beside_the_model(files: ModelFiles) -> None:
    assert find_calibration(files, None) == FULL
    calibration = Calibration(SHORT, None)
    write_calibration(files.path / "hearline-calibration.json", files, calibration)
    assert find_calibration(files, None) == calibration
    assert find_calibration(files, None, "full") == FULL
    assert find_calibration(ModelFiles("tiny.en", files.path), None) == calibration, "before what ships"


def test_a_file_that_is_named_comes_first_and_must_be_there(files: ModelFiles, tmp_path: Path) -> None:
    write_calibration(tmp_path / "elsewhere.json", files, Calibration(None, LONG))
    assert find_calibration(files, tmp_path / "elsewhere.json").final == LONG
    with pytest.raises(ModelError, match=r"HEARLINE_CALIBRATION=.*none\.json.*hearline calibrate"):
        find_calibration(files, tmp_path / "none.json")


def test_common_models_ship_theirs(tmp_path: Path) -> None:
    assert find_calibration(ModelFiles("tiny.en", tmp_path), None) is SHIPPED["tiny.en"]
    assert find_calibration(ModelFiles("large-v3", tmp_path), None) == FULL


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"partial": {"padding_s": -1, "silence_s": 0}}, {"final": "x"}, {"weights_bytes": None}],
    ids=str,
)
def test_a_wrong_file_is_a_model_error_that_names_it(files: ModelFiles, change: dict[str, object]) -> None:
    path = files.path / "calibration.json"
    write_calibration(path, files, Calibration(SHORT, LONG))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=r"calibration\.json is no calibration.*hearline calibrate"):
        read_calibration(path, files)


def test_a_calibration_of_other_weights_is_refused(files: ModelFiles) -> None:
    path = files.path / "calibration.json"
    write_calibration(path, files, Calibration(SHORT, LONG))
    (files.path / "model.bin").write_bytes(b"other weights")
    with pytest.raises(ModelError, match="measured with other weights"):
        read_calibration(path, files)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "--speech"),
        (["--speech", "no such folder"], 2, "does not exist"),
        (["--speech", "EMPTY"], 3, "manifest.csv"),
        (["--speech", "SPEECH", "--model", "no/model"], 3, "no directory"),
    ],
)
def test_the_command_says_what_is_wrong(arguments: list[str], status: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    _write_wav(tmp_path / "a.wav", silence(1))
    (tmp_path / "empty").mkdir()
    places = {"SPEECH": str(tmp_path), "EMPTY": str(tmp_path / "empty")}
    shown = CliRunner().invoke(main, ["calibrate", *(places.get(one, one) for one in arguments)])
    assert (shown.exit_code, message in shown.output) == (status, True), shown.output


@pytest.mark.model
def test_the_command_measures_and_writes_what_workers_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.calibrate.sizings", lambda: [None, LONG])
    speech = tmp_path / "speech"
    speech.mkdir()
    _write_wav(speech / "a.wav", recording("sample")[: 3 * RATE])
    (speech / "a.txt").write_text(words_of("sample")[:40])
    written = tmp_path / "calibration.json"
    shown = CliRunner().invoke(main, ["calibrate", "--speech", str(speech), "--output", str(written), "--json"])
    assert shown.exit_code == 0, shown.output
    result = json.loads(shown.stdout)
    assert result["written"] == str(written)
    assert len(result["partial"]["candidates"]) == len(result["final"]["candidates"]) == 2
    kept = json.loads(written.read_text())
    assert kept["partial"] == result["partial"]["chosen"]
    assert kept["measured"]["model"] == "tiny.en"


def _write_wav(path: Path, samples: Samples) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
