"""The first look, whole and real: Redis, web process, worker with the bundled model, a client, one command."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import jiwer
import pytest
from whisper_normalizer.english import EnglishTextNormalizer

from queueing.local_redis import free_port
from tests.support.eventually import eventually
from tests.support.up_process import HearlineProcess, clean_environment

DATA = Path(__file__).resolve().parents[1] / "data"


def hearline(*arguments: str, state: Path) -> str:
    """The output of another command, typed in a second terminal."""
    run = subprocess.run(
        [sys.executable, "-m", "ops.cli", *arguments],
        env=clean_environment(HEARLINE_STATE_DIR=str(state)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def word_error_rate(text: str) -> float:
    normalize = EnglishTextNormalizer()
    return float(jiwer.wer(normalize((DATA / "sample.txt").read_text()), normalize(text)))


@pytest.mark.model
@pytest.mark.slow
def test_captions_of_the_sample_then_a_service_that_others_find(tmp_path: Path) -> None:
    environment = {"HEARLINE_PORT": str(free_port())}
    with HearlineProcess(["demo", "--stay"], state=tmp_path, environment=environment) as demo:
        demo.wait_for("The service stays up at http", timeout_s=110)
        (final,) = re.findall(r"^\[0:00\.0 - .*?\] (.*)$", demo.text, re.MULTILINE)
        assert word_error_rate(final) <= 0.1, final
        assert re.search(r"^~ ", demo.text, re.MULTILINE), "partials are shown"
        told = demo.text
        for step in ("Waiting for Redis", "a worker to load the model", "Ready after", "stream FILE", "queue --watch"):
            assert step in told

        seen = json.loads(hearline("queue", "--json", state=tmp_path))
        assert seen["counts"]["final:done"] == 1
        assert seen["waiting"] == 0
        assert seen["workers"]
        assert {worker["state"] for worker in seen["workers"]} <= {"starting", "loading", "ready", "busy"}, (
            "of the last heartbeat"
        )
        again = hearline("stream", str(DATA / "sample.flac"), "--speed", "0", "--json", state=tmp_path)
        finals = [entry for entry in map(json.loads, again.splitlines()) if entry.get("type") == "final"]
        assert word_error_rate(" ".join(entry["text"] for entry in finals)) <= 0.1

        demo.signal(signal.SIGINT)
        assert demo.end(60) == 0, demo.text
        assert "Everything has stopped." in demo.text
        assert demo.left_behind() == []
        assert not (tmp_path / "up.json").exists()


def test_a_hung_decode_ends_its_worker_and_another_comes(tmp_path: Path) -> None:
    """The worker gives itself up with status 70; `hearline up` starts it again, and the final arrives."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"base_s": 0.01, "faults": {"0": {"do": "hang"}}}))
    environment = {
        "HEARLINE_PORT": str(free_port()),
        "HEARLINE_TRANSCRIBER": "scripted",
        "HEARLINE_SCRIPT": str(script),
        "HEARLINE_ENDPOINT_MS": "0",  # else silence is not decoded
        "HEARLINE_MAX_DECODE_S": "1",
        "HEARLINE_ATTEMPTS": "1",
        "HEARLINE_LEASE_S": "1",
    }
    with HearlineProcess(["up", "worker=1"], state=tmp_path, environment=environment) as service:
        service.wait_for("Hearline is ready", timeout_s=60)
        silence = tmp_path / "silence.raw"
        silence.write_bytes(bytes(32_000))
        with silence.open("rb") as sound:
            stream = subprocess.run(
                [sys.executable, "-m", "ops.cli", "stream", "-", "--speed", "0", "--no-partials", "--json"],
                stdin=sound,
                env=clean_environment(HEARLINE_STATE_DIR=str(tmp_path)),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        service.wait_for(r"worker\.1 ended by itself \(exit status 70\); starting it again", timeout_s=60)
        service.wait_for(r"worker\.1 started", times=2)
        assert stream.returncode == 4, stream.stdout + stream.stderr
        (dead,) = json.loads(hearline("queue", "dead", "list", "--json", state=tmp_path))
        assert dead["attempts"] == 1

        def ready_again() -> bool:
            workers = json.loads(hearline("queue", "--json", state=tmp_path))["workers"]
            return len(workers) == 1 and workers[0]["state"] in ("ready", "busy")

        eventually(ready_again, 40, "the new worker is ready and the old one forgotten")
        service.signal(signal.SIGTERM)
        assert service.end(60) == 0, service.text
        assert service.left_behind() == []
