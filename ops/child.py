"""One supervised process: a shell line in a session of its own, its output read, its end reported once.

The child leads a new session, so a Ctrl-C in the terminal reaches the supervisor alone, which then decides
the order of stopping. Whatever is left of the child's group after its leader ended is ended too: an orphan
would hold the port, and its output would never close.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from honcho.process import Popen

from ops.output import Output
from ops.procfile import ProcessSpec

LONGEST_LINE = 65_536
"""Bytes after which a line is passed on in pieces."""

TAIL_LINES = 20

LEFTOVERS_S = 2.0
"""What a program leaves behind in its group gets SIGTERM and this long."""

OUTPUT_S = 2.0
"""Wait for the last output after the group is gone; a process that left the group may hold the pipe for ever."""


class Child:
    """A started process. ``on_end(self)`` is called once, from a thread, when nothing of it is left."""

    def __init__(
        self,
        spec: ProcessSpec,
        environment: Mapping[str, str],
        output: Output,
        *,
        linger_s: float,
        on_end: Callable[[Child], None],
    ) -> None:
        """Start it. ``linger_s``: how long the group may go on after its leader ended, when that was a shell.

        Raises OSError when the system refuses (too many processes, the folder is gone).
        """
        self.name = spec.name
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.status: int | None = None
        self._direct = spec.direct
        self._output = output
        self._linger_s = linger_s
        self._on_end = on_end
        self._lock = threading.Lock()
        self._gone = False
        self._terminated = False
        self._process = Popen(
            spec.command,
            env={**environment, **spec.environment},
            cwd=None if spec.folder is None else str(spec.folder),
            pass_fds=spec.pass_fds,
        )
        self._reader = threading.Thread(target=self._read, name=f"read-{self.name}", daemon=True)
        self._reader.start()
        threading.Thread(target=self._await_end, name=f"wait-{self.name}", daemon=True).start()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def terminate(self) -> None:
        """Ask it to stop (SIGTERM): the program itself, or the whole group when a shell is in between."""
        with self._lock:
            self._terminated = True
            if self._direct and self._process.poll() is None:
                self._process.terminate()
            else:
                self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """End it and everything it started in its group, now (SIGKILL)."""
        with self._lock:
            self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        if not self._gone:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _read(self) -> None:
        pipe = self._process.stdout
        while line := pipe.readline(LONGEST_LINE):
            self.tail.append(line.decode("utf-8", "replace").rstrip())
            self._output.line(self.name, line)
        pipe.close()

    def _await_end(self) -> None:
        status = self._process.wait()
        with self._lock:
            if self._direct or not self._terminated:
                self._signal_group(signal.SIGTERM)
        # A shell may have died of SIGTERM while its program still drains; a program's own children have no such right.
        self._reader.join(LEFTOVERS_S if self._direct else self._linger_s)
        with self._lock:
            self._signal_group(signal.SIGKILL)
            self._gone = True
        self._reader.join(OUTPUT_S)
        self.status = status
        self._on_end(self)
