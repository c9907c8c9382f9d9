"""A whole service of the benchmark's own, as `hearline up` runs it, and the CPU time of its processes."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from ops.errors import Failed
from ops.procfile import python_module
from ops.tether import tether
from queueing.local_redis import free_port

READY_S = 180.0
STOP_S = 60.0
ROLES = ("web", "worker", "redis")


@dataclass(frozen=True, slots=True)
class Setup:
    """What to run: so many workers, a policy, and settings on top of this process's environment."""

    workers: int
    policy: str
    environment: Mapping[str, str]
    web: int = 1


def environment_of(setup: Setup, state: Path) -> dict[str, str]:
    """Nothing of a service that already runs here leaks in: own Redis, own state folder."""
    kept = {name: value for name, value in setup.environment.items() if name not in ("REDIS_URL", "HEARLINE_URL")}
    return {**kept, "HEARLINE_STATE_DIR": str(state), "HEARLINE_POLICY": setup.policy}


class Service:
    """A running service: `url` of its streams, `cpu_s` of its processes."""

    def __init__(self, process: subprocess.Popen[str], port: int, state: Path) -> None:
        self._process = process
        self._ready = threading.Event()
        self._tail: deque[str] = deque(maxlen=20)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.state = state
        self.http = f"http://127.0.0.1:{port}"
        self.url = f"ws://127.0.0.1:{port}/v1/stream"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._tail.append(line.rstrip())
            if '"event": "ready"' in line and json.loads(line).get("event") == "ready":
                self._ready.set()
        self._ready.set()  # nothing comes any more: it ended

    def await_ready(self) -> None:
        """Wait until streams are taken; raises `Failed` with its last lines."""
        if not self._ready.wait(READY_S) or self._process.poll() is not None:
            raise Failed("the service did not get ready; its last lines:\n  " + "\n  ".join(self._tail))

    def cpu_s(self) -> dict[int, tuple[str, float]]:
        """CPU seconds so far of every process of the service that runs now, as process id -> (role, seconds)."""
        found = {}
        for process in psutil.Process(self._process.pid).children(recursive=True):
            try:
                if (role := role_of(process.cmdline())) is not None:
                    times = process.cpu_times()
                    found[process.pid] = (role, float(times.user + times.system))
            except psutil.NoSuchProcess:
                continue
        return found

    def stop(self) -> None:
        """Drain and end it; kills what does not."""
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(STOP_S)
        if self._process.stdout is not None:
            self._process.stdout.close()


def role_of(command: list[str]) -> str | None:
    """Which part of the service a command line is; None for what is none of it."""
    words = [Path(word).name for word in command]
    if words and words[0] in ("redis-server", "valkey-server"):
        return "redis"
    for place in range(len(words) - 1):
        if words[place] == "-m" and words[place + 1] in ("api", "workers"):
            return "web" if words[place + 1] == "api" else "worker"
    return "redis" if any(word.startswith(("redis-server", "valkey-server")) for word in words) else None


def cpu_between(before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]]) -> dict[str, float]:
    """CPU seconds by role. Raises `Failed` when a process ended meanwhile: what it used is not known then."""
    if gone := before.keys() - after.keys():
        raise Failed(f"{before[gone.pop()][0]} ended while it was measured")
    used = dict.fromkeys(ROLES, 0.0)
    for pid, (role, seconds) in after.items():
        used[role] += seconds - before.get(pid, (role, 0.0))[1]
    return used


@contextmanager
def running(setup: Setup) -> Iterator[Service]:
    """The service for the length of a ``with``. Raises `Failed` when it does not get ready."""
    with tempfile.TemporaryDirectory(prefix="hearline-bench-") as folder:
        port = free_port(setup.web)
        counts = [f"worker={setup.workers}", *([] if setup.web == 1 else [f"web={setup.web}"])]
        command = [*tether(), *python_module("ops.cli"), "up", *counts, "--port", str(port), "--json"]
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment_of(setup, Path(folder)),
        )
        service = Service(process, port, Path(folder))
        try:
            service.await_ready()
            yield service
        finally:
            service.stop()
