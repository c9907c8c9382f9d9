"""Real worker processes: killed, stopped, told to end, hung, poisoned; nothing is lost and nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.connect import SOCKET_TIMEOUT_S
from queueing.job_queue import QueueLimits
from tests.support.eventually import eventually
from tests.support.workers import ROOT, Desk, desk_at, noise_pcm, worker_process
from workers.lifecycle import EXIT_DONE, EXIT_FAILED, EXIT_HUNG, EXIT_SETTINGS
from workers.scripted import scripted_text

LEASE_S = 1
LIMITS = QueueLimits(lease_ms=LEASE_S * 1000, max_attempts=2)
FAST = {"base_s": 0.0, "per_audio_s": 0.0}
SLOW_MARK, HANG_MARK, CRASH_MARK = 101, 102, 103
FAULTS = {
    SLOW_MARK: {"do": "slow", "seconds": 1.5},
    HANG_MARK: {"do": "hang"},
    CRASH_MARK: {"do": "crash"},
}
IDLE_SAMPLE_S = 8
SCRIPT = {**FAST, "faults": FAULTS}


@pytest.fixture
def desk(redis_url: str) -> Iterator[Desk]:
    with desk_at(redis_url, LIMITS) as desk:
        yield desk
        for session in {delivery.session for delivery in desk.listen()} | {"s1", "s2"}:
            desk.queue.cancel_session(session)


def test_kill_9_in_mid_decode_costs_one_lease_and_no_word(
    desk: Desk, redis_url: str, tmp_path: Path, rng: random.Random
) -> None:
    pcm = noise_pcm(rng, 2, first=HANG_MARK)
    with worker_process(redis_url, tmp_path, SCRIPT, lease_s=LEASE_S, attempts=2) as victim:
        victim.await_ready(desk.queue)
        job = desk.final("s1", pcm)
        victim.await_log("decoding")
        with worker_process(redis_url, tmp_path, FAST, lease_s=LEASE_S, attempts=2) as other:
            other.await_ready(desk.queue)
            assert desk.queue.job_state(job) == "leased", "beside a running decode the lease is kept alive"
            victim.send(signal.SIGKILL)
            assert victim.await_exit() == -signal.SIGKILL
            (delivery,) = desk.await_deliveries(1)
    assert delivery.attempt == 2
    assert delivery.result is not None
    assert delivery.result["text"] == scripted_text(pcm)
    assert len(desk.queue.events("s1")) == 1
    assert len(desk.listen()) == 1


def test_stopped_beyond_its_lease_its_late_result_is_refused(
    desk: Desk, redis_url: str, tmp_path: Path, rng: random.Random
) -> None:
    pcm = noise_pcm(rng, 1, first=SLOW_MARK)
    with worker_process(redis_url, tmp_path, SCRIPT, lease_s=LEASE_S, attempts=2) as sleeper:
        sleeper.await_ready(desk.queue)
        desk.final("s1", pcm)
        sleeper.await_log("decoding")
        sleeper.send(signal.SIGSTOP)
        eventually(lambda: desk.queue.sweep().requeued == 1, what="the expired lease")
        with worker_process(redis_url, tmp_path, FAST, lease_s=LEASE_S, attempts=2):
            (delivery,) = desk.await_deliveries(1)
        assert delivery.attempt == 2
        sleeper.send(signal.SIGCONT)
        sleeper.await_log("stale")
        again = desk.final("s2", noise_pcm(rng, 1))
        desk.await_state(again, "done")
        assert sleeper.running(), "a refused result is no crash"
    assert [d.job for d in desk.listen()] == ["s1:f:0", "s2:f:0"]


def test_sigterm_while_idle_ends_at_once_and_leaves_no_trace(desk: Desk, redis_url: str, tmp_path: Path) -> None:
    with worker_process(redis_url, tmp_path, FAST, drain_s=60) as worker:
        worker.await_ready(desk.queue)
        worker.send(signal.SIGTERM)
        assert worker.await_exit() == EXIT_DONE
        assert desk.queue.workers() == ()


def test_sigterm_while_decoding_finishes_that_decode_and_takes_no_other(
    desk: Desk, redis_url: str, tmp_path: Path, rng: random.Random
) -> None:
    with worker_process(redis_url, tmp_path, SCRIPT, lease_s=LEASE_S, drain_s=60) as worker:
        worker.await_ready(desk.queue)
        running = desk.final("s1", noise_pcm(rng, 1, first=SLOW_MARK))
        worker.await_log("decoding")
        worker.send(signal.SIGTERM)
        waiting = desk.final("s2", noise_pcm(rng, 1))
        assert worker.await_exit() == EXIT_DONE
    (delivery,) = desk.await_deliveries(1)
    assert (delivery.job, delivery.attempt, delivery.outcome) == (running, 1, "done")
    assert desk.queue.job_state(waiting) == "queued"


@pytest.mark.parametrize(("drain_s", "signals", "status"), [(0.2, 1, EXIT_DONE), (60, 2, EXIT_FAILED)])
def test_a_decode_that_outlasts_the_drain_goes_to_another_worker(
    desk: Desk, redis_url: str, tmp_path: Path, rng: random.Random, drain_s: float, signals: int, status: int
) -> None:
    with worker_process(redis_url, tmp_path, SCRIPT, lease_s=LEASE_S, drain_s=drain_s) as worker:
        worker.await_ready(desk.queue)
        job = desk.final("s1", noise_pcm(rng, 1, first=HANG_MARK))
        worker.await_log("decoding")
        worker.send(signal.SIGTERM)
        if signals == 2:
            worker.await_log("draining")
            worker.send(signal.SIGTERM)
        assert worker.await_exit() == status
    if signals == 1:
        assert desk.queue.job_state(job) == "queued", "given back, not left to its lease"
    with worker_process(redis_url, tmp_path, FAST, lease_s=LEASE_S):
        (delivery,) = desk.await_deliveries(1)
    assert (delivery.outcome, delivery.attempt) == ("done", signals)


def test_a_hung_decode_ends_the_worker_and_in_the_end_the_job(
    desk: Desk, redis_url: str, tmp_path: Path, rng: random.Random
) -> None:
    job = desk.final("s1", noise_pcm(rng, 1, first=HANG_MARK))
    for _ in range(LIMITS.max_attempts):
        with worker_process(redis_url, tmp_path, SCRIPT, lease_s=LEASE_S, attempts=2, max_decode_s=1) as worker:
            assert worker.await_exit() == EXIT_HUNG, worker.text()
            assert "decode_hung" in worker.text()
    with worker_process(redis_url, tmp_path, SCRIPT, lease_s=LEASE_S, attempts=2) as worker:
        (delivery,) = desk.await_deliveries(1)
        assert (delivery.job, delivery.outcome) == (job, "dead")
        assert worker.running()


def test_a_job_that_kills_its_workers_dies_itself_and_others_live(
    desk: Desk, redis_url: str, tmp_path: Path, rng: random.Random
) -> None:
    poison = desk.final("s1", noise_pcm(rng, 1, first=CRASH_MARK))
    for _ in range(LIMITS.max_attempts):
        with worker_process(redis_url, tmp_path, SCRIPT, lease_s=LEASE_S, attempts=2) as worker:
            assert worker.await_exit() == 70
    good = desk.final("s2", noise_pcm(rng, 1))
    with worker_process(redis_url, tmp_path, SCRIPT, lease_s=LEASE_S, attempts=2) as worker:
        deliveries = {d.job: d for d in desk.await_deliveries(2)}
        assert worker.running()
    assert deliveries[good].outcome == "done"
    assert deliveries[poison].outcome == "dead"
    error = deliveries[poison].error
    assert error is not None
    assert error["code"] == "decode_failed"
    (event,) = desk.queue.events("s1")
    assert event.outcome == "dead", "the client of the poison hears of it"


def test_a_worker_comes_back_after_a_redis_restart_that_lost_everything(tmp_path: Path, rng: random.Random) -> None:
    with RedisServer() as server, worker_process(server.url, tmp_path, FAST, policy="strict") as worker:
        with desk_at(server.url, LIMITS) as before:
            worker.await_ready(before.queue)
            server.kill()
        worker.await_log("redis_away")
        server.start()
        with desk_at(server.url, LIMITS) as after:
            worker.await_ready(after.queue)
            after.final("s1", noise_pcm(rng, 1))
            (delivery,) = after.await_deliveries(1)
            assert delivery.outcome == "done"
            assert after.queue.policy().name == "strict", "the worker's setting, installed again"


def test_a_redis_that_hangs_does_not_keep_a_worker_from_ending(tmp_path: Path, rng: random.Random) -> None:
    with RedisServer() as server, worker_process(server.url, tmp_path, SCRIPT, drain_s=1) as worker:
        with desk_at(server.url, LIMITS) as desk:
            worker.await_ready(desk.queue)
            desk.final("s1", noise_pcm(rng, 1, first=HANG_MARK))
            worker.await_log("decoding")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            worker.send(signal.SIGTERM)
            assert worker.await_exit(SOCKET_TIMEOUT_S) == EXIT_DONE, "before its connections are given up"
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_an_idle_worker_costs_less_than_two_commands_a_second(
    desk: Desk, redis_url: str, redis_client: redis.Redis, tmp_path: Path
) -> None:
    with worker_process(redis_url, tmp_path, FAST) as worker:
        worker.await_ready(desk.queue)
        sent = []
        with redis_client.monitor() as monitor:  # type: ignore[no-untyped-call]
            began_s = now_s = monitor.next_command()["time"]
            while now_s - began_s < IDLE_SAMPLE_S:
                command = monitor.next_command()
                now_s = command["time"]
                if command["client_type"] != "lua":  # what a script does inside Redis costs no round trip
                    sent.append(command["command"][:60])
        assert worker.running()
    assert sent, "nothing was seen, so nothing was tested"
    assert len(sent) < 2 * IDLE_SAMPLE_S, sent


def _run(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "workers", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_help_lists_the_settings() -> None:
    answer = _run(["--help"])
    assert answer.returncode == 0
    assert "HEARLINE_MAX_DECODE_S" in answer.stdout


def test_wrong_settings_end_it_with_status_2_and_the_fix() -> None:
    answer = _run([], HEARLINE_DEVICE="tpu", HEARLINE_POLICY="fifo")
    assert answer.returncode == 2
    assert "HEARLINE_DEVICE='tpu'" in answer.stderr
    answer = _run([], HEARLINE_POLICY="fifo")
    assert (answer.returncode, "choose one of" in answer.stderr) == (2, True)


def test_a_model_that_is_not_there_ends_it_with_the_way_out(redis_url: str) -> None:
    answer = _run([], REDIS_URL=redis_url, HEARLINE_MODEL="no-such-model")
    assert answer.returncode == EXIT_SETTINGS, "the same start would fail again"
    assert (answer.stderr + answer.stdout).count("use 'bundled', a directory") == 1, "said once"


def test_a_place_for_metrics_that_cannot_be_used_ends_it_with_the_way_out() -> None:
    answer = _run([], HEARLINE_WORKER_METRICS_PORT="9100", HEARLINE_WORKER_METRICS_HOST="no such host")
    assert answer.returncode == EXIT_SETTINGS
    assert "HEARLINE_WORKER_METRICS_HOST='no such host'" in answer.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = _run([], HEARLINE_WORKER_METRICS_PORT=str(port))
    assert answer.returncode == EXIT_FAILED, "the port may be free again the next time"
    assert answer.stderr.count(f"HEARLINE_WORKER_METRICS_PORT={port} on 127.0.0.1 cannot be used") == 1
    assert "Traceback" not in answer.stderr


def test_the_check_needs_no_redis_and_says_what_runs() -> None:
    answer = _run(["--check"], HEARLINE_TRANSCRIBER="scripted", REDIS_URL="redis://127.0.0.1:1/0")
    assert (answer.returncode, answer.stderr) == (EXIT_DONE, "")
    assert answer.stdout == "scripted decodes on none (none, threads: 0, language: en)\n"


@pytest.mark.model
def test_the_check_loads_the_model() -> None:
    answer = _run(["--check"], HEARLINE_DEVICE="cpu", HEARLINE_THREADS="1")
    assert (answer.returncode, answer.stderr) == (EXIT_DONE, "")
    assert answer.stdout == "tiny.en decodes on cpu (int8_float32, threads: 1, language: en)\n"


@pytest.mark.model
def test_the_check_of_the_setup_loads_nothing_and_is_silent() -> None:
    answer = _run(
        ["--check-setup"], HEARLINE_LANGUAGE="en", HEARLINE_MODEL="bundled", REDIS_URL="redis://127.0.0.1:1/0"
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (EXIT_DONE, "", "")


@pytest.mark.model
@pytest.mark.parametrize("option", ["--check", "--check-setup"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("HEARLINE_MODEL", "/nope"),
        ("HEARLINE_LANGUAGE", "de"),
        ("HEARLINE_COMPUTE_TYPE", "bfloat16"),
        ("HEARLINE_CALIBRATION", "/nope"),
    ],
)
def test_the_check_refuses_what_will_never_run(setting: str, value: str, option: str) -> None:
    environment = {"HEARLINE_DEVICE": "cpu", "HEARLINE_THREADS": "1", setting: value}
    answer = _run([option], **environment)
    assert (answer.returncode, answer.stdout) == (EXIT_SETTINGS, "")
    (line,) = answer.stderr.splitlines()
    assert line.startswith(f"{setting}={value!r}")
    assert len(line) < 300
