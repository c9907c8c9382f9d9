"""``hearline demo``: the service, a speech sample, its captions; for a first look and as a smoke test.

It is a person at two terminals: ``hearline up`` runs in the background with its output in a file, then
``hearline stream`` runs in the foreground.
"""

from __future__ import annotations

import os
import queue
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from ops.errors import Failed, Missing, OpsError, WrongUse
from ops.procfile import TETHER
from ops.readiness import State, ask, local_url
from ops.redis_server import free_port
from ops.run_file import find_running, run_file
from ops.runtime import Runtime
from ops.screen import ProgressLine
from ops.settings import UpSettings
from queueing.clock import Clock

SAMPLE = Path(__file__).resolve().parent.parent / "tests" / "data" / "sample.flac"

STOPPED = 130
"""Exit status after Ctrl-C, as a shell gives it."""

LOOK_EVERY_S = 0.1
TAIL_LINES = 15


class Interrupted(Exception):
    """A signal asked the demonstration to end."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The commands and places of one demonstration."""

    up_command: Sequence[str]
    stream_command: Sequence[str]
    url: str
    log: Path
    run_file: Path
    timeout_s: float


class Demo:
    """Runs a `Stage`. `interrupt` may be called from a signal handler at any time."""

    def __init__(self, stage: Stage, environment: Mapping[str, str], clock: Clock, progress: ProgressLine) -> None:
        self._stage = stage
        # The log is read by a person.
        self._environment = {"HEARLINE_LOG_FORMAT": "console", **environment}
        self._clock = clock
        self._progress = progress
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._service: subprocess.Popen[bytes] | None = None

    def interrupt(self, number: int) -> None:
        """End the demonstration; again while it ends: force the service to end."""
        self._signals.put(number)

    def run(self, farewell: Sequence[str] | None) -> int:
        """Start, stream, stop; returns the exit status of the stream (130 when a signal came before its end).

        With ``farewell`` (lines to print) it stays until a signal instead of ending after the stream. Raises
        `OpsError` when the service does not become ready in time or ends by itself.
        """
        status = STOPPED
        try:
            with self._stage.log.open("wb") as log:
                self._service = subprocess.Popen(
                    self._stage.up_command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    start_new_session=True,
                )
            self._await_ready(self._service)
            status = self._stream(self._service)
            if farewell is not None:
                self._pause(0.0)
                for line in farewell:
                    click.echo(line)
                self._stay(self._service)
        except Interrupted:
            pass
        finally:
            self._stop_service()
        return status

    def _await_ready(self, service: subprocess.Popen[bytes]) -> None:
        started_s = self._clock.monotonic()
        while True:
            elapsed_s = self._clock.monotonic() - started_s
            answer = ask(self._stage.url)
            if answer.state is State.READY:
                self._progress.done(f"Ready after {elapsed_s:.1f} s at {self._stage.url} (log: {self._stage.log})")
                return
            self._check_alive(service)
            record = find_running(self._stage.run_file)
            if answer.state is State.WAITING:
                what = f"Waiting for a worker to load the model ({answer.reason})"
            elif record is not None and record.pid == service.pid:
                what = "Waiting for the web server to answer"
            else:
                what = "Waiting for Redis"
            self._progress.show(what, elapsed_s)
            if elapsed_s > self._stage.timeout_s:
                raise Failed(
                    f"not ready after {self._stage.timeout_s:g} s: {answer.reason}; "
                    f"the log is {self._stage.log} and ends with:\n{self._tail()}"
                )
            self._pause()

    def _stream(self, service: subprocess.Popen[bytes]) -> int:
        with subprocess.Popen(self._stage.stream_command, env=self._environment) as stream:
            while True:
                try:
                    return stream.wait(LOOK_EVERY_S)
                except subprocess.TimeoutExpired:
                    pass
                try:
                    self._pause(0.0)
                    self._check_alive(service)
                except (Interrupted, OpsError):
                    # A Ctrl-C in the terminal has reached the stream as well; it may not be reached otherwise.
                    stream.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        stream.wait(5)
                    stream.kill()
                    raise

    def _stay(self, service: subprocess.Popen[bytes]) -> None:
        while True:
            self._pause(1.0)
            self._check_alive(service)

    def _pause(self, seconds: float = LOOK_EVERY_S) -> None:
        try:
            self._signals.get(timeout=seconds)
        except queue.Empty:
            return
        raise Interrupted

    def _check_alive(self, service: subprocess.Popen[bytes]) -> None:
        if service.poll() is None:
            return
        self._progress.done("The service ended by itself. Its log ends with:")
        click.echo(self._tail())
        kinds = {kind.exit_code: kind for kind in (WrongUse, Missing)}
        raise kinds.get(service.returncode, Failed)(
            f"`hearline up` ended with exit status {service.returncode}; its log is {self._stage.log}"
        )

    def _tail(self) -> str:
        lines = self._stage.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join(f"  {line}" for line in lines)

    def _stop_service(self) -> None:
        service = self._service
        if service is None or service.poll() is not None:
            return
        service.send_signal(signal.SIGTERM)
        started_s = self._clock.monotonic()
        while service.poll() is None:
            self._progress.show("Stopping everything", self._clock.monotonic() - started_s)
            try:
                self._signals.get(timeout=LOOK_EVERY_S)
            except queue.Empty:
                continue
            service.send_signal(signal.SIGTERM)
        self._progress.done("Everything has stopped.")


def _choose_port(settings: UpSettings, port: int | None) -> int:
    """The port asked for, or the usual one, or a free one where the usual one is taken."""
    if port is not None:
        return port
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", settings.port))
        except OSError:
            free = free_port()
            click.echo(f"Port {settings.port} is taken (by another `hearline up`?); this one uses port {free}.")
            return free
    return settings.port


def _own_command() -> str:
    """How to type ``hearline`` from the current folder."""
    found, own = shutil.which("hearline"), Path(sys.executable).parent / "hearline"
    if found and Path(found).resolve() == own.resolve():
        return "hearline"
    if not own.is_file():
        return f"{shlex.quote(sys.executable)} -m ops.cli"
    with suppress(ValueError):
        return str(own.relative_to(Path.cwd()))
    return str(own)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--stay", is_flag=True, help="Keep the service running after the sample, until Ctrl-C.")
@click.option(
    "--sample",
    type=click.Path(dir_okay=False, path_type=Path),
    default=SAMPLE,
    show_default="the project's own",
    help="Audio file to stream.",
)
@click.option("--port", type=click.IntRange(1, 65_535), help="Port.  [default: HEARLINE_PORT, 8000, or a free one]")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=180.0, show_default=True, help="Seconds.")
@click.option("--json", "as_json", is_flag=True, help="The stream's messages as JSON lines instead of captions.")
@click.option("--procfile", type=click.Path(dir_okay=False, path_type=Path), hidden=True)
@click.pass_obj
def demo(
    runtime: Runtime,
    /,
    stay: bool,
    sample: Path,
    port: int | None,
    timeout_s: float,
    as_json: bool,
    procfile: Path | None,
) -> None:
    """Start everything and show live captions of a speech sample.

    \b
      hearline demo                    captions of the project's sample, then stop; for a smoke test
      hearline demo --stay             the same, then keep the service running
      hearline demo --sample talk.mp3  captions of another file

    Runs `hearline up` with its output in a log file, waits until it is ready (at most --timeout seconds),
    then runs `hearline stream` at real-time pace.

    Exit status: that of `hearline stream` (0 for a complete transcript); 1 the service failed; 3 something needed is
    missing; 130 stopped by Ctrl-C before the transcript was complete.
    """
    if not sample.is_file():
        raise Missing(f"there is no sample at {sample}; name any audio file with --sample FILE")
    settings = UpSettings.read(runtime.environment)
    port = _choose_port(settings, port)
    url = local_url(settings.host, port)
    state = run_file(runtime.environment)
    hearline = [sys.executable, "-m", "ops.cli"]
    tether = [sys.executable, "-I", "-S", str(TETHER), str(os.getpid())] if sys.platform == "linux" else []
    try:
        state.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = state.with_name("demo.log")
        log.touch(0o600)
    except OSError as error:
        raise Missing(f"cannot write into {state.parent} ({error.strerror}); set HEARLINE_STATE_DIR") from error
    stage = Stage(
        up_command=[
            *tether,
            *hearline,
            "up",
            "--port",
            str(port),
            *(["--procfile", str(procfile)] if procfile else []),
        ],
        stream_command=[*hearline, "stream", str(sample), "--url", url, *(["--json"] if as_json else [])],
        url=url,
        log=log,
        run_file=state,
        timeout_s=timeout_s,
    )
    show = Demo(stage, runtime.environment, runtime.clock, ProgressLine(sys.stderr))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: show.interrupt(number))
    command = _own_command()
    farewell = [
        "",
        f"The service stays up at {url} : open it in a browser to caption your microphone.",
        "In another terminal:",
        f"  {command} stream FILE        captions of any audio or video file",
        f"  {command} queue --watch      what waits, what runs, who works",
        f"Log: {log}. Ctrl-C stops everything.",
    ]
    if status := show.run(farewell if stay else None):
        raise SystemExit(status)
