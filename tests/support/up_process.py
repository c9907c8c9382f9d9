"""A real ``hearline`` command in a process of its own; its output is read by line, all that it starts accounted for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.support.eventually import eventually

STAND_IN = Path(__file__).with_name("stand_in.py")


def procfile(folder: Path, **roles: str) -> Path:
    """A Procfile of stand-ins, such as ``procfile(tmp, web="web", worker="crash")``; with a blank: a whole command."""
    path = folder / "Procfile"
    lines = [f"{kind}: {role if ' ' in role else f'python {STAND_IN} {role}'}" for kind, role in roles.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def clean_environment(**added: str) -> dict[str, str]:
    """This process's environment without any setting of the project, plus what is given."""
    inherited = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251
        if name != "REDIS_URL" and not name.startswith("HEARLINE_")
    }
    return {**inherited, **added}


class HearlineProcess:
    """``hearline ARGUMENTS``; use as a context manager. Every process it starts carries a mark in its environment."""

    def __init__(self, arguments: Sequence[str], *, state: Path, environment: Mapping[str, str] | None = None) -> None:
        self.mark = uuid.uuid4().hex
        self.lines: list[str] = []
        self.stop_reading = threading.Event()
        """Set: the reader closes its end of the pipe after the next line, as ``head`` does."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ops.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=clean_environment(HEARLINE_STATE_DIR=str(state), STAND_IN_MARK=self.mark, **(environment or {})),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))
            if self.stop_reading.is_set():
                self.process.stdout.close()
                return

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def wait_for(self, pattern: str, *, times: int = 1, timeout_s: float = 20.0) -> list[re.Match[str]]:
        """Wait until ``pattern`` was printed ``times`` times; fails with the output when the command ends before."""
        found: list[re.Match[str]] = []

        def seen() -> bool:
            found[:] = re.finditer(pattern, self.text)
            if len(found) >= times:
                return True
            if self.process.poll() is not None:
                self._reader.join(5)
                found[:] = re.finditer(pattern, self.text)
                assert len(found) >= times, f"ended with {self.process.returncode} without {pattern!r}:\n{self.text}"
            return len(found) >= times

        try:
            eventually(seen, timeout_s, f"{pattern!r} x {times}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None
        return found

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, timeout_s: float = 20.0) -> int:
        """Wait for the end; returns the exit status."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout_s} s:\n{self.text}") from None
        self._reader.join(5)
        return status

    def left_behind(self) -> list[str]:
        """Processes with this run's mark, and its Redis (which writes over its environment), as ``PID COMMAND``."""
        redis_at = {f"127.0.0.1:{match[1]}" for match in re.finditer(r"Redis at redis://127\.0\.0\.1:(\d+)", self.text)}
        found = []
        for process in psutil.process_iter(["pid"]):
            try:
                command = " ".join(process.cmdline()).strip()
                marked = process.environ().get("STAND_IN_MARK") == self.mark
                if process.pid != self.process.pid and (
                    marked or ("redis" in command and redis_at & {*command.split()})
                ):
                    found.append(f"{process.pid} {command}")
            except (psutil.Error, OSError):
                continue
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        left = self.left_behind()
        for line in left:
            try:
                os.kill(int(line.split()[0]), signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()
