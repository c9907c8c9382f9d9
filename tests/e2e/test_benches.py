"""The benchmarks with real processes: the service's with made-up texts, the decoding one with the model."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ops import service_bench_identical, tune
from ops.cli import main as hearline
from ops.runtime import Runtime
from ops.service_bench import main as service_bench
from ops.service_bench_client import read_pcm
from queueing.clock import SystemClock
from tests.support.up_process import clean_environment

DATA = Path(__file__).resolve().parents[1] / "data"


def scripted(folder: Path, **times: float) -> dict[str, str]:
    """Settings of workers that make texts up, in simulated times."""
    script = folder / "script.json"
    script.write_text(json.dumps(times))
    return {"HEARLINE_TRANSCRIBER": "scripted", "HEARLINE_SCRIPT": str(script)}


def speech_folder(folder: Path) -> Path:
    """Three recordings between 5 and 15 s, made of the project's own sample."""
    with wave.open(str(folder / "speech.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(read_pcm(DATA / "sample.flac")[32_000 : 9 * 32_000])  # somebody speaks at once
    rows = [(name, "speech.wav", 8.0, (DATA / "sample.txt").read_text()) for name in ("a", "b", "c")]
    with (folder / "manifest.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "file", "seconds", "reference"), *rows])
    return folder


def prepare(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """The benchmark's processes get this environment and no setting of the one around."""
    for name in set(clean_environment()) ^ set(os.environ):  # noqa: TID251
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


@pytest.mark.slow
def test_the_service_bench_measures_a_whole_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(monkeypatch, scripted(tmp_path, base_s=0.02, per_audio_s=0.0))
    arguments = ["--speech", str(speech_folder(tmp_path)), "--streams", "2", "--duration", "6", "--json"]
    result = CliRunner().invoke(service_bench, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    report: dict[str, Any] = json.loads(result.stdout)
    figures = report["streams"]["2"]
    assert figures["streams_done"] == figures["streams_planned"] >= 2
    assert figures["exactly_once_in_order"]
    assert figures["equal_to_alone"] == figures["streams_done"]
    assert figures["wer"] == figures["wer_alone"] > 0.5, "made-up words are wrong ones"
    assert 0 < figures["final_latency_s"]["p50"] <= figures["final_latency_s"]["p95"]
    assert figures["first_text_s"]["p50"] > 0
    assert all(figures["cpu_s"][role] > 0 for role in ("web", "worker", "redis"))
    assert figures["cpu_per_audio_s"] > 0
    assert {"goals", "machine", "plan"} <= set(report)


@pytest.mark.slow
def test_texts_are_the_same_in_frames_of_any_size_among_busy_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The made-up texts are spelled from the bytes decoded: one sample more or less would be another text."""
    prepare(monkeypatch, scripted(tmp_path, base_s=0.002, per_audio_s=0.0))
    monkeypatch.setattr(service_bench_identical, "ONE_BYTE_S", 0.2)
    arguments = ["--speech", str(speech_folder(tmp_path)), "--streams", "", "--identical", "--policies", "hrrn"]
    result = CliRunner().invoke(service_bench, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    identical = json.loads(result.stdout)["identical"]
    assert identical["different"] == []
    assert identical["share"] == 1.0
    assert set(identical["by_frame_bytes"]) == {"1", "641", "3200", "65536"}
    assert all(identical["texts"].values())


@pytest.mark.slow
def test_tune_finds_that_two_workers_do_twice_as_much_and_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("TOTAL_S", 4.0), ("LEAST_EACH_S", 1.5)):
        monkeypatch.setattr(tune, name, seconds)
    monkeypatch.setattr("ops.doctor.usable_cpus", lambda: 2)
    environment = clean_environment(**scripted(tmp_path, base_s=0.1, per_audio_s=0.0))
    runtime = Runtime(environment=environment, clock=SystemClock())
    result = CliRunner().invoke(hearline, ["doctor", "--tune", "--json"], obj=runtime, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {(one["threads"], one["workers"]) for one in found["trials"]} == {(1, 1), (1, 2), (2, 1)}
    assert found["best"] == {"HEARLINE_THREADS": 1, "worker": 2}
    assert found["command"] == "HEARLINE_THREADS=1 hearline up worker=2"
    rates = {(one["threads"], one["workers"]): one["rate"] for one in found["trials"]}
    assert rates[1, 2] > 1.5 * rates[1, 1]


def test_tune_says_what_is_wrong_with_a_worker_or_its_use(tmp_path: Path) -> None:
    broken = {"HEARLINE_TRANSCRIBER": "scripted", "HEARLINE_SCRIPT": str(tmp_path / "nowhere.json")}
    runtime = Runtime(environment=clean_environment(**broken), clock=SystemClock())
    result = CliRunner().invoke(hearline, ["doctor", "--tune"], obj=runtime)
    assert result.exit_code == 1
    assert "HEARLINE_SCRIPT" in result.output
    result = CliRunner().invoke(hearline, ["doctor", "--speech", str(tmp_path)], obj=runtime)
    assert result.exit_code == 2
    assert "--tune" in result.output


@pytest.mark.model
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_decoding_bench_reads_the_sample_with_the_model(tmp_path: Path) -> None:
    for name in ("sample.flac", "sample.txt"):
        (tmp_path / name).write_bytes((DATA / name).read_bytes())
    run = subprocess.run(
        [sys.executable, "-m", "workers.bench", "--speech", str(tmp_path), "--only", "whole", "--json"],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert max(report["wer"].values()) <= 0.05, "every decoder reads the sample"
    assert all(cost > 0 for cost in report["cpu_per_audio_s"].values())
    assert report["loops"] == []
    assert len(report["model"]["weights_sha256"]) == 64
