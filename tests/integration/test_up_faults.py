"""``hearline up`` when its processes misbehave: crashes, set-ups that cannot run, deaf processes, families."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from ops.last_out import LastOut
from tests.integration.test_up import up
from tests.support.eventually import eventually
from tests.support.up_process import STAND_IN, HearlineProcess, procfile


@pytest.fixture
def never_ready(tmp_path: Path) -> str:
    """The stand-in web process answers 503 while this file exists."""
    path = tmp_path / "hold"
    path.touch()
    return str(path)


def pids(service: HearlineProcess, name: str, times: int) -> list[int]:
    return [int(match[1]) for match in service.wait_for(rf"{name} is up, pid (\d+)", times=times)]


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, r"worker.1 ended by itself \(killed by SIGKILL\)"), (signal.SIGTERM, "worker.1 has ended")],
)
def test_a_worker_that_ended_comes_back(tmp_path: Path, number: signal.Signals, said: str) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path) as service:
        service.wait_for("Hearline is ready")
        (first,) = pids(service, "worker.1", 1)
        os.kill(first, number)
        assert pids(service, "worker.1", 2)[1] != first
        service.wait_for(f"{said}; starting it again in 0.5 s")
        assert len(pids(service, "web.1", 1)) == 1
        service.signal(signal.SIGTERM)
        assert service.end() == 0


def test_a_redis_of_its_own_comes_back_on_the_same_port(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path) as service:
        service.wait_for("Hearline is ready")
        (line,) = [line for line in service.left_behind() if "redis-server" in line]
        os.kill(int(line.split()[0]), signal.SIGKILL)
        service.wait_for("Redis ended by itself .killed by SIGKILL.; starting it again")

        def again() -> bool:
            now = [other for other in service.left_behind() if "redis-server" in other]
            return len(now) == 1 and now[0].split()[0] != line.split()[0] and now[0].split()[-1] == line.split()[-1]

        eventually(again, 10, "a new Redis on the old port")
        service.signal(signal.SIGTERM)
        assert service.end() == 0
        assert service.left_behind() == []


def test_a_process_that_never_runs_ends_the_command_with_its_last_lines(tmp_path: Path, never_ready: str) -> None:
    procfile(tmp_path, web="web", worker="crash")
    with up(tmp_path, STAND_IN_HOLD=never_ready) as service:
        assert service.end() == 1
    assert service.text.count("worker.1 started") == 3
    assert "worker.1 ended 3 times in a row (exit status 7); its last lines were:\n  boom" in service.text
    assert "web.1 has drained" in service.text
    assert "Traceback" not in service.text
    assert service.left_behind() == []


def test_wrong_settings_of_a_process_end_the_command_at_once(tmp_path: Path, never_ready: str) -> None:
    procfile(tmp_path, web="web", worker="settings")
    with up(tmp_path, STAND_IN_HOLD=never_ready) as service:
        assert service.end() == 2
    assert service.text.count("worker.1 started") == 1
    said = service.text.rpartition("its last lines were")[2]
    assert said.splitlines()[1:] == ["  HEARLINE_FLAVOUR='mint': no such flavour"], (
        "the log lines around it are left out"
    )
    assert service.left_behind() == []


def test_a_program_that_is_not_there_is_named(tmp_path: Path, never_ready: str) -> None:
    procfile(tmp_path, web="web", worker="no-such-program --at all")
    with up(tmp_path, STAND_IN_HOLD=never_ready) as service:
        assert service.end() == 1
    assert "exit status 127" in service.text
    assert service.left_behind() == []


def test_a_deaf_process_is_killed_at_its_deadline(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="stubborn")
    with up(tmp_path) as service:
        service.wait_for("Hearline is ready")
        service.wait_for("worker.1 is up")
        service.signal(signal.SIGTERM)
        assert service.end() == 1
    assert "worker.1 did not stop in time (SIGKILL)" in service.text
    assert service.left_behind() == []


def test_a_second_signal_ends_everything_at_once(tmp_path: Path) -> None:
    procfile(tmp_path, web="stubborn", worker="worker")
    with up(tmp_path, HEARLINE_DRAIN_S="600") as service:
        service.wait_for("is up", times=2)
        service.signal(signal.SIGINT)
        service.wait_for("stopping: SIGINT")
        service.signal(signal.SIGINT)
        assert service.end() == 1
    assert "SIGINT again: ending everything now" in service.text
    assert service.left_behind() == []


@pytest.fixture
def drain(tmp_path: Path) -> Path:
    """The stand-in web process drains until something was written here."""
    path = tmp_path / "drain"
    os.mkfifo(path)
    return path


def kill_the_worker(service: HearlineProcess) -> None:
    os.kill(pids(service, "worker.1", 1)[0], signal.SIGKILL)
    service.wait_for(r"worker.1 ended by itself \(killed by SIGKILL\); starting it again in 0.5 s")


@pytest.mark.parametrize("down_before", [True, False], ids=["down when the stop comes", "ends during the drain"])
def test_a_worker_comes_back_for_the_streams_that_drain(tmp_path: Path, drain: Path, down_before: bool) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path, HEARLINE_DRAIN_S="600", STAND_IN_DRAIN=str(drain)) as service:
        service.wait_for("Hearline is ready")
        if down_before:
            kill_the_worker(service)
        service.signal(signal.SIGTERM)
        service.wait_for("web.1 got SIGTERM")
        if not down_before:
            kill_the_worker(service)
        pids(service, "worker.1", 2)
        drain.write_text("")
        assert service.end() == 0, service.text
        assert service.left_behind() == []
    assert "worker.1 got SIGTERM" in service.text.partition("web.1 has drained")[2]
    assert service.text.count("worker.1 started") == 2
    assert service.text.count("web.1 started") == 1


def test_a_second_signal_brings_nothing_back(tmp_path: Path, drain: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path, HEARLINE_DRAIN_S="600", STAND_IN_DRAIN=str(drain)) as service:
        service.wait_for("Hearline is ready")
        service.signal(signal.SIGTERM)
        service.wait_for("web.1 got SIGTERM")
        kill_the_worker(service)
        service.signal(signal.SIGTERM)
        assert service.end() == 1, service.text
        assert service.left_behind() == []
    assert "started" not in service.text.partition("SIGTERM again")[2]


@pytest.mark.parametrize("line", ["python {0} family", "cd {1} && {2} {0} family; echo done"])
def test_what_a_process_started_is_ended_with_it(tmp_path: Path, line: str) -> None:
    """The program's own child ignores SIGTERM; with a shell in between the group is asked, then ended."""
    procfile(tmp_path, web="web", worker=line.format(STAND_IN, tmp_path, sys.executable))
    with up(tmp_path) as service:
        service.wait_for("Hearline is ready")
        service.wait_for("worker.1 is up", times=2)
        service.signal(signal.SIGTERM)
        service.end()
        assert "worker.1 has drained" in service.text
        assert service.left_behind() == []


def test_a_reader_that_goes_away_stops_it(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path) as service:
        service.wait_for("Hearline is ready")
        (worker,) = pids(service, "worker.1", 1)
        service.stop_reading.set()
        os.kill(worker, signal.SIGKILL)  # Makes it say two lines more: one closes the pipe, the next finds it closed.
        service.end()
        assert service.left_behind() == []


SLOW_TO_DRAIN = """
import os, pathlib, signal, socket, sys, threading, urllib.parse
stop, folder = threading.Event(), pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: stop.set())
(folder / "up").touch()
stop.wait()
os.mkfifo(folder / "go")
(folder / "draining").touch()
(folder / "go").read_text()  # waits for a writer
address = urllib.parse.urlsplit(os.environ["REDIS_URL"])
with socket.create_connection((address.hostname, address.port), 5) as connection:
    connection.sendall(b"PING\\r\\n")
    (folder / "answer").write_bytes(connection.recv(100))
"""


def redis_of(service: HearlineProcess) -> list[str]:
    return [line for line in service.left_behind() if "redis-server" in line]


@pytest.mark.skipif(not LastOut.possible(), reason="needs process descriptors (Linux 5.3)")
def test_when_it_is_killed_redis_ends_after_those_who_use_it(tmp_path: Path) -> None:
    script = tmp_path / "slow.py"
    script.write_text(SLOW_TO_DRAIN)
    procfile(tmp_path, web="web", worker=f"python {script} {tmp_path}")
    with up(tmp_path, HEARLINE_DRAIN_S="60") as service:
        service.wait_for("Hearline is ready")
        eventually((tmp_path / "up").exists, 20, "the worker runs")
        service.signal(signal.SIGKILL)
        service.end()
        eventually((tmp_path / "draining").exists, 20, "the worker drains")
        assert redis_of(service), "the worker still needs it"
        (tmp_path / "go").write_text("")
        eventually(lambda: not service.left_behind(), 20, "everything has ended")
    assert (tmp_path / "answer").read_bytes() == b"+PONG\r\n"


@pytest.mark.skipif(not LastOut.possible(), reason="needs process descriptors (Linux 5.3)")
def test_when_it_is_killed_the_deaf_are_killed_at_their_deadline(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="stubborn")
    with up(tmp_path) as service:
        service.wait_for("Hearline is ready")
        service.wait_for("worker.1 is up")
        service.signal(signal.SIGKILL)
        service.end()
        assert [line for line in service.left_behind() if "stubborn" in line]
        eventually(lambda: not service.left_behind(), 30, "everything has ended")
