"""Workers are restarted one after the other while streams go on, as docs/operations/upgrades.md says to."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from pathlib import Path

import pytest

from loadgen.sources import synthetic
from ops.run_file import find_running
from queueing.connect import connect
from queueing.job_queue import JobQueue
from queueing.local_redis import free_port
from tests.support.eventually import eventually
from tests.support.up_process import HearlineProcess, clean_environment

STREAMS = 8


def hearline(state: Path, *arguments: str) -> str:
    """What a command says; it must succeed."""
    command = [sys.executable, "-m", "ops.cli", *arguments]
    environment = clean_environment(HEARLINE_STATE_DIR=str(state))
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@pytest.mark.slow
def test_workers_restarted_one_by_one_under_load_lose_no_final(tmp_path: Path) -> None:
    sounds = tmp_path / "sounds"
    sounds.mkdir()
    for number in range(STREAMS):
        with wave.open(str(sounds / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 16_000, 0, "NONE", ""))
            file.writeframes(b"".join(synthetic(8 + number % 5, seed=number)))
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"base_s": 0.05, "per_audio_s": 0.01}))
    environment = {
        "HEARLINE_PORT": str(free_port()),
        "HEARLINE_ENDPOINT_MS": "400",
        "HEARLINE_TRANSCRIBER": "scripted",
        "HEARLINE_SCRIPT": str(script),
    }
    with HearlineProcess(["up", "worker=2"], state=tmp_path, environment=environment) as service:
        service.wait_for("Hearline is ready at", timeout_s=60)
        running = find_running(tmp_path / "up.json")
        assert running is not None
        with connect(running.redis_url) as client:
            queue = JobQueue(client)
            load = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ops.cli", "load", "--json", "--alone", "--speech", str(sounds)),
                    *("--streams", str(STREAMS), "--arrivals", "staggered", "--seed", "4"),
                ],
                env=clean_environment(HEARLINE_STATE_DIR=str(tmp_path)),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            try:
                eventually(lambda: queue.stats().counts.get("final:done", 0) >= 2, 30, "finals under way")
                told = hearline(tmp_path, "restart", "worker")
                assert [line for line in told.splitlines() if "ready" in line] == [
                    "worker.1 is back and ready",
                    "worker.2 is back and ready",
                ]
                out, err = load.communicate(timeout=90)
            finally:
                load.kill()
                load.wait()
            ends, ready = map(json.loads, hearline(tmp_path, "restart", "web", "--json").splitlines())
            assert (ends["process"], ends["event"]) == (ready["process"], "ends") == ("web.1", "ends")
            assert ready["event"] == "ready"
            assert ends["pid"] != ready["pid"]
        service.wait_for(r"has ended; starting it again", times=3)
    assert load.returncode == 0, (out[-3_000:] + err).decode()
    report = json.loads(out)
    assert report["streams"]["by_outcome"] == {"done": STREAMS}
    assert report["finals"]["exactly_once_in_order"]
    assert report["alone"]["different"] == []
