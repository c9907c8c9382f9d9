"""The processes of a run: started, struck, and started again when they ended, as a supervisor would."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import psutil

from ops.tether import tether

POLL_S = 0.05
RESTART_S = 0.4
BLAME_S = 15.0


@dataclass(slots=True)
class Program:
    """A process of the service. ``blamed_until_s``: an end up to then is the harness's doing."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    blamed_until_s: float = 0.0
    restart_at_s: float = 0.0
    ends: list[str] = field(default_factory=list)

    def start(self, out: IO[bytes]) -> None:
        """Run it; its output goes to ``out``."""
        self.starts += 1
        self.process = subprocess.Popen(
            [*tether(), *self.command],
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def family(self) -> list[psutil.Process]:
        """The process and its children, the process first; empty when it has ended."""
        if self.process is None:
            return []
        try:
            leader = psutil.Process(self.process.pid)
            return [leader, *leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


class Programs:
    """All processes but Redis. ``on_end(text)`` hears of one that ended without having been struck."""

    def __init__(self, now: Callable[[], float], on_end: Callable[[str, str], None]) -> None:
        self._now = now
        self._on_end = on_end
        self._programs: dict[str, Program] = {}
        self._stopping = False

    def add(self, program: Program) -> None:
        """Start it."""
        self._programs[program.name] = program
        self._start(program)

    def __getitem__(self, name: str) -> Program:
        return self._programs[name]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._programs.values())

    async def watch(self) -> None:
        """Start again what ended. Runs until cancelled."""
        while True:
            for program in self._programs.values():
                self._look_at(program)
            await asyncio.sleep(POLL_S)

    def strike(
        self, name: str, number: signal.Signals, *, whom: str = "all", blame_s: float = BLAME_S
    ) -> list[psutil.Process]:
        """Signal a program: its first process (``leader``), its children (``children``) or ``all`` of them.

        Its end within ``blame_s`` is no surprise. Returns those that were signalled.
        """
        program = self._programs[name]
        program.blamed_until_s = self._now() + blame_s
        family = program.family()
        chosen = {"leader": family[:1], "children": family[1:]}.get(whom, family)
        for process in chosen or family:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return chosen or family

    def go_on(self, name: str, stopped: Sequence[psutil.Process]) -> None:
        """SIGCONT to those that `strike` has stopped: to a child also when its parent was killed meanwhile."""
        program = self._programs[name]
        program.blamed_until_s = self._now() + BLAME_S
        for process in stopped:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)

    def stop(self, limit_s: float) -> list[str]:
        """SIGTERM to all; what is left after ``limit_s`` is killed and named. Blocks."""
        self._stopping = True
        left = []
        for program in self._programs.values():
            if program.process is not None and program.process.poll() is None:
                program.process.terminate()
        for program in self._programs.values():
            if program.process is None:
                continue
            try:
                status = program.process.wait(limit_s)
                if status not in (0, -signal.SIGTERM):
                    left.append(f"{program.name} ended with status {status} on SIGTERM")
            except subprocess.TimeoutExpired:
                left.append(f"{program.name} did not end within {limit_s:g} s of SIGTERM")
            with suppress(ProcessLookupError):
                os.killpg(program.process.pid, signal.SIGKILL)
            program.process.wait()
        return left

    def _look_at(self, program: Program) -> None:
        if program.process is not None and program.process.poll() is not None:
            status = program.process.returncode
            program.ends.append(f"{self._now():.2f} s: status {status}")
            if self._now() > program.blamed_until_s:
                self._on_end(program.name, f"status {status}, at {self._now():.1f} s; see {program.log.name}")
            program.process = None
            program.restart_at_s = self._now() + RESTART_S
        if program.process is None and not self._stopping and self._now() >= program.restart_at_s:
            self._start(program)

    @staticmethod
    def _start(program: Program) -> None:
        with program.log.open("ab") as out:
            program.start(out)
