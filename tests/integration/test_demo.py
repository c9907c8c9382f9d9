"""``hearline demo`` with stand-ins: waiting, streaming, staying, stopping, and a service that does not come up."""

from __future__ import annotations

import io
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from ops.demo_log import own_log
from ops.demo_show import Demo, Stage, waits_for
from ops.errors import Failed, Missing, WrongUse
from ops.run_file import run_file
from ops.screen import ProgressLine
from queueing.clock import SystemClock
from queueing.local_redis import free_port
from tests.support.eventually import eventually
from tests.support.up_process import HearlineProcess, clean_environment, procfile

CAPTIONS = "import sys; print('good morning'); sys.exit(4)"
LISTENING = "import pathlib, signal, sys; pathlib.Path(sys.argv[1]).touch(); signal.pause()"


def once(condition: Callable[[], object], action: Callable[[], object]) -> threading.Thread:
    """A running thread that does ``action`` as soon as ``condition()`` is true."""

    def watch() -> None:
        eventually(condition, 20)
        action()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


class Theatre:
    """A demo whose service is made of stand-ins."""

    def __init__(
        self, tmp_path: Path, *, worker: str = "worker", stream: tuple[str, ...] = (CAPTIONS,), **extra: str
    ) -> None:
        procfile(tmp_path, web="web", worker=worker)
        port = free_port()
        environment = clean_environment(HEARLINE_STATE_DIR=str(tmp_path / "state"), HEARLINE_DRAIN_S="0", **extra)
        up = ["-m", "ops.cli", "up", "--port", str(port), "--procfile", str(tmp_path / "Procfile")]
        self.run_file = run_file(environment)
        self.run_file.parent.mkdir()
        self.log = tmp_path / "state" / "demo.log"
        self.progress = io.StringIO()
        stage = Stage(
            up_command=[sys.executable, *up],
            stream_command=[sys.executable, "-c", *stream],
            url=f"http://127.0.0.1:{port}",
            log=self.log,
            run_file=self.run_file,
            timeout_s=float(extra.get("TIMEOUT_S", "60")),
        )
        self.demo = Demo(stage, environment, SystemClock(), ProgressLine(self.progress))

    def everything_is_gone(self) -> bool:
        return not self.run_file.exists() and "everything has stopped" in self.log.read_text()


def test_it_waits_streams_and_gives_the_streams_status(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    theatre = Theatre(tmp_path)
    assert theatre.demo.run(None) == 4
    assert "good morning" in capfd.readouterr().out
    told = theatre.progress.getvalue()
    assert "Waiting for Redis" in told
    assert f"log: {theatre.log}" in told
    assert told.rstrip().endswith("Everything has stopped.")
    assert theatre.everything_is_gone()


def test_it_says_that_the_model_is_loaded_while_it_is(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    theatre = Theatre(tmp_path, STAND_IN_HOLD=str(hold))
    watcher = once(lambda: "a worker to load the model" in theatre.progress.getvalue(), hold.unlink)
    assert theatre.demo.run(None) == 4
    watcher.join()


def test_it_stays_until_it_is_interrupted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    theatre = Theatre(tmp_path)
    said: list[str] = []

    def stays() -> bool:
        said.append(capfd.readouterr().out)
        return "try this next" in "".join(said)

    watcher = once(stays, lambda: theatre.demo.interrupt(signal.SIGINT))
    assert theatre.demo.run(["try this next"]) == 4, "the status is the stream's"
    watcher.join()
    assert theatre.everything_is_gone()


def test_an_interrupt_during_the_stream_stops_all_of_it(tmp_path: Path) -> None:
    marker = tmp_path / "listening"
    theatre = Theatre(tmp_path, stream=(LISTENING, str(marker)))
    watcher = once(marker.exists, lambda: theatre.demo.interrupt(signal.SIGINT))
    assert theatre.demo.run(["never said"]) == 130
    watcher.join()
    assert theatre.everything_is_gone()


def test_a_service_that_does_not_come_up_is_shown_by_its_last_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    theatre = Theatre(tmp_path, worker="settings", STAND_IN_HOLD=str(hold))
    with pytest.raises(WrongUse, match="exit status 2"):
        theatre.demo.run(None)
    assert "no such flavour" in capfd.readouterr().out


def test_a_service_without_redis_is_something_missing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    theatre = Theatre(tmp_path, REDIS_URL=f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(Missing, match="exit status 3"):
        theatre.demo.run(None)
    assert "Redis does not answer" in capfd.readouterr().out


def test_a_service_that_is_never_ready_is_given_up_and_stopped(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    theatre = Theatre(tmp_path, STAND_IN_HOLD=str(hold), TIMEOUT_S="3")
    with pytest.raises(Failed, match=r"(?s)not ready after 3 s: no worker has loaded its model.*worker\.1 is up"):
        theatre.demo.run(None)
    assert theatre.everything_is_gone()


def test_each_log_is_one_demonstrations_alone(tmp_path: Path) -> None:
    with own_log(tmp_path) as first, own_log(tmp_path) as second:
        assert [first.name, second.name] == ["demo.log", "demo-2.log"]
        first.write_text("of the first")
        second.write_text("of the second")
        with own_log(tmp_path) as third:
            assert third.name == "demo-3.log"
        assert first.stat().st_mode & 0o777 == 0o600
    assert (first.read_text(), second.read_text()) == ("of the first", "of the second"), "left to be read"
    with own_log(tmp_path) as again:
        assert (again, again.read_text()) == (first, "")


def test_demonstrations_side_by_side_do_not_mix_their_logs(tmp_path: Path) -> None:
    table = procfile(tmp_path, web="web", worker="worker")
    ports = [free_port(), free_port()]
    logs: list[Path] = []
    with ExitStack() as stack:
        demos = []
        for port in ports:
            arguments = ["demo", "--stay", "--port", str(port), "--procfile", str(table)]
            demo = HearlineProcess(arguments, state=tmp_path / "state", environment={"HEARLINE_DRAIN_S": "0"})
            demos.append(stack.enter_context(demo))
            logs.append(Path(demo.wait_for(r"Log: (\S+)\. Ctrl-C", timeout_s=40)[0][1]))
        for demo in demos:
            demo.signal(signal.SIGINT)
            demo.end()
    for port, log in zip(ports, logs, strict=True):
        lines = log.read_text().splitlines()
        ready = [line for line in lines if "is ready at" in line]
        assert len(ready) == 1, lines
        assert f":{port} " in ready[0]
        assert sum("everything has stopped" in line for line in lines) == 1


def test_a_missing_sample_is_named(tmp_path: Path) -> None:
    with HearlineProcess(["demo", "--sample", str(tmp_path / "absent.flac")], state=tmp_path) as demo:
        assert demo.end() == 3
    assert "absent.flac" in demo.text
    assert "--sample" in demo.text


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Redis has not been asked yet; the subscription for results does not stand", "Waiting for the web server"),
        ("no worker has loaded its model", "Waiting for a worker to load the model"),
    ],
)
def test_what_is_waited_for_is_said_plainly(reason: str, said: str) -> None:
    assert waits_for(reason) == said


@pytest.mark.parametrize("columns", [1, 2, 5, 12, 20, 30, 40, 80])
def test_a_line_of_progress_is_cut_between_words(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    whole = "  1.0 s  Waiting for Redis with patience"
    ProgressLine(stream).show("Waiting for Redis with patience", 1.0)
    shown = stream.getvalue().removeprefix("\r\x1b[2K")
    assert len(shown) < columns
    assert shown == whole or not shown.strip(" …") or f"{shown.removesuffix('…').rstrip()} " == whole[: len(shown) - 1]


def test_progress_is_redrawn_on_a_terminal_and_printed_on_change_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    for is_terminal, expected in (
        (True, "\r\x1b[2K  1.0 s  Waiting for Redis …\r\x1b[2K  2.0 s  Waiting for Redis …\r\x1b[2KReady\n"),
        (False, "  1.0 s  Waiting for Redis with patience\nReady\n"),
    ):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda is_terminal=is_terminal: is_terminal)
        line = ProgressLine(stream)
        line.show("Waiting for Redis with patience", 1.0)
        line.show("Waiting for Redis with patience", 2.0)
        line.done("Ready")
        assert stream.getvalue() == expected
