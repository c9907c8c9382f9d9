"""The run of a demonstration: start the service in the background, stream in the foreground, stop."""

from __future__ import annotations

import queue
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from ops.errors import Failed, Missing, OpsError, WrongUse
from ops.readiness import State, ask
from ops.run_file import find_running
from ops.screen import ProgressLine
from queueing.clock import Clock

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
        redis = "" if self._environment.get("REDIS_URL") else "Redis, "
        self._progress.done(f"Starting {redis}a web process and workers to suit the machine (log: {self._stage.log})")
        try:
            with self._stage.log.open("ab") as log:
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
                self._progress.done(
                    f"Ready after {elapsed_s:.1f} s at {self._stage.url}. A speech sample, in real time:"
                )
                return
            self._check_alive(service)
            record = find_running(self._stage.run_file)
            if answer.state is State.WAITING:
                what = waits_for(answer.reason)
            elif record is not None and record.pid == service.pid:
                what = "Waiting for the web server"
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


def waits_for(reason: str) -> str:
    """What a web process that answers still waits for, in words for a first look; the log has the rest."""
    return "Waiting for a worker to load the model" if "worker" in reason else "Waiting for the web server"
