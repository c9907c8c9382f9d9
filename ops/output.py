"""Where the lines of supervised processes go: to the terminal with their names, or each to its own file."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO

from honcho.colour import get_colours
from honcho.printer import Message, Printer

from ops.standard_output import silence

SYSTEM = "hearline"
"""The name under which the supervisor itself speaks."""


class Output(Protocol):
    """Takes lines from several threads. ``on_broken`` is called once, with the reason, when they get nowhere."""

    on_broken: Callable[[OSError], None] | None

    def line(self, name: str, data: bytes) -> None:
        """One line of a process, with its line end."""

    def say(self, text: str, **facts: object) -> None:
        """One line of the supervisor itself; ``facts`` are for machines (``event="ready"``, ``url=...``)."""

    def close(self) -> None:
        """Nothing comes any more."""


class Console:
    """Lines on a terminal, coloured by process; with ``log_dir``, processes write to ``NAME.log`` there instead.

    Writing blocks while the terminal does (Ctrl-S), and with it the process that writes: nothing piles up in
    memory. Once the terminal went away, or the disk of a file is full, lines are dropped.
    """

    def __init__(
        self,
        stream: TextIO,
        names: list[str],
        *,
        now: Callable[[], datetime],
        log_dir: Path | None = None,
    ) -> None:
        """Raises OSError when a log file cannot be opened."""
        self._printer = Printer(stream, width=max(len(name) for name in [SYSTEM, *names]))
        self._now = now
        self.on_broken: Callable[[OSError], None] | None = None
        self._broken = False
        self._lock = threading.Lock()
        self._colours = dict(zip(names, get_colours(), strict=False))
        self._files: dict[str, BinaryIO] = {}
        if log_dir is not None:
            log_dir.mkdir(parents=True, exist_ok=True)
            for name in names:
                self._files[name] = (log_dir / f"{name}.log").open("ab", buffering=0)

    def line(self, name: str, data: bytes) -> None:
        with self._lock:
            file = self._files.get(name)
            if file is None:
                self._print(name, data)
                return
            try:
                file.write(data)
            except OSError as error:
                self._print(SYSTEM, f"cannot write {file.name} ({error.strerror}); {name} goes on here\n".encode())
                self._files.pop(name).close()

    def say(self, text: str, **facts: object) -> None:  # noqa: ARG002
        with self._lock:
            self._print(SYSTEM, text.encode())

    def close(self) -> None:
        """Close the log files."""
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _print(self, name: str, data: bytes) -> None:
        if self._broken:
            return
        try:
            self._printer.write(
                Message(type="line", data=data, time=self._now(), name=name, colour=self._colours.get(name))
            )
        except OSError as error:
            self._broken = True
            silence(self._printer.output)
            if self.on_broken is not None:
                self.on_broken(error)


class JsonLines:
    """Every line as a JSON object on ``stream``: ``{"time": ..., "name": "web.1", "line": "..."}`` plus the facts."""

    def __init__(self, stream: TextIO, *, now: Callable[[], datetime]) -> None:
        self._stream = stream
        self._now = now
        self.on_broken: Callable[[OSError], None] | None = None
        self._broken = False
        self._lock = threading.Lock()

    def line(self, name: str, data: bytes) -> None:
        self._write(name, data.decode("utf-8", "replace").rstrip("\r\n"), {})

    def say(self, text: str, **facts: object) -> None:
        self._write(SYSTEM, text, facts)

    def close(self) -> None:
        """Nothing to close: the stream is the caller's."""

    def _write(self, name: str, line: str, facts: dict[str, object]) -> None:
        entry = {"time": self._now().isoformat(timespec="milliseconds"), "name": name, "line": line, **facts}
        with self._lock:
            if self._broken:
                return
            try:
                self._stream.write(json.dumps(entry) + "\n")
                self._stream.flush()
            except OSError as error:
                self._broken = True
                silence(self._stream)
                if self.on_broken is not None:
                    self.on_broken(error)
