"""Concurrent streams against the whole service: every final once and in order, its text that of decoding alone."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import pytest

from loadgen.sources import synthetic
from queueing.local_redis import free_port
from tests.support.up_process import HearlineProcess, clean_environment


def load(state: Path, *arguments: str) -> dict[str, Any]:
    """The report of `hearline load` against the service that ``state`` leads to; it must have gone without a fault."""
    run = subprocess.run(
        [sys.executable, "-m", "ops.cli", "load", "--json", "--alone", *arguments],
        env=clean_environment(HEARLINE_STATE_DIR=str(state)),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4_000:] + run.stderr
    report: dict[str, Any] = json.loads(run.stdout)
    return report


def check(report: dict[str, Any], streams: int) -> None:
    assert report["streams"]["by_outcome"] == {"done": streams}
    assert report["finals"]["received"] >= streams, "a recording with a pause in it has several"
    assert report["finals"]["exactly_once_in_order"]
    assert report["alone"]["compared"] == streams
    assert report["alone"]["different"] == []
    assert len({stream["session"] for stream in report["each"]}) == streams


@pytest.mark.model
@pytest.mark.speech
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_eight_real_time_streams_of_recordings_read_as_if_each_were_alone(tmp_path: Path, speech_dir: Path) -> None:
    environment = {"HEARLINE_PORT": str(free_port())}
    with HearlineProcess(["up"], state=tmp_path, environment=environment) as service:
        service.wait_for("Hearline is ready at", timeout_s=110)
        arguments = ("--streams", "8", "--arrivals", "synchronized", "--max-clip-s", "10", "--seed", "4")
        report = load(tmp_path, "--speech", str(speech_dir), *arguments)
    check(report, 8)
    assert report["audio_s"] > 20
    # On the whole collection about 9 %; eight short texts may have some more.
    print(f"word error rate: {report['word_error_rate']}")  # noqa: T201
    assert report["word_error_rate"]["rate"] < 0.25


@pytest.mark.slow
def test_fifty_streams_at_once_do_not_mix(tmp_path: Path) -> None:
    """The scripted transcriber's text is a function of the samples, so a mix-up of streams would be seen."""
    for number in range(50):
        with wave.open(str(tmp_path / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(b"".join(synthetic(2 + number % 7, seed=number)))
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"base_s": 0.002, "per_audio_s": 0}))
    environment = {
        "HEARLINE_PORT": str(free_port()),
        "HEARLINE_ENDPOINT_MS": "0",
        "HEARLINE_TRANSCRIBER": "scripted",
        "HEARLINE_SCRIPT": str(script),
    }
    with HearlineProcess(["up", "worker=2"], state=tmp_path, environment=environment) as service:
        service.wait_for("Hearline is ready at", timeout_s=60)
        arguments = ("--streams", "50", "--arrivals", "poisson", "--speed", "4", "--seed", "4")
        report = load(tmp_path, "--speech", str(tmp_path), *arguments)
    check(report, 50)
    assert len({stream["text"] for stream in report["each"]}) == 50
    assert report["partials_per_stream"]["mean"] > 1
