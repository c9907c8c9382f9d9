"""What the soak watches once a second: the service's processes, its Redis, and how fast /health and /metrics answer."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil
import redis

from ops.procfile import python_module
from ops.service_bench_process import role_of
from ops.soak_probe import Probe
from ops.tether import tether
from queueing.clock import Clock

PSS_EVERY = 60
"""Looks between two readings of the proportional set size: the kernel walks all pages for it, and who needs a page
meanwhile waits."""


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """One process at one moment; memory in bytes. ``pss`` is None where it was not read."""

    at: float
    cpu_s: float
    rss: int
    pss: int | None
    threads: int
    fds: int


@dataclass(frozen=True, slots=True)
class RedisLook:
    """Redis at one moment."""

    at: float
    used_memory: int
    keys: int
    clients: int


@dataclass(slots=True)
class Watched:
    """All looks so far. ``processes``: name (role and process id) -> looks."""

    processes: dict[str, list[ProcessLook]] = field(default_factory=dict)
    redis: list[RedisLook] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Watch:
    """A thread that looks, and a process that probes. Use as a context manager."""

    def __init__(self, root_pid: int, client: redis.Redis, ports: Sequence[int], clock: Clock) -> None:
        self._root = psutil.Process(root_pid)
        self._client = client
        self._ports = ports
        self._clock = clock
        self._stop = threading.Event()
        self._family: dict[int, tuple[str, psutil.Process]] = {}
        self._threads = [threading.Thread(target=step, daemon=True) for step in (self._look, self._read)]
        self._prober: subprocess.Popen[str] | None = None
        self._looks = 0
        self.seen = Watched()

    def __enter__(self) -> Watch:
        self._prober = subprocess.Popen(
            [*tether(), *python_module("ops.soak_probe"), *map(str, self._ports)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._prober is not None and self._prober.stdin is not None:
            self._prober.stdin.close()
        for thread in self._threads:
            thread.join()
        if self._prober is not None and (status := self._prober.wait()) != 0:
            self.seen.problems.append(f"the probes ended with {status}")

    def _look(self) -> None:
        while not self._stop.wait(1.0):
            self.look()

    def _read(self) -> None:
        assert self._prober is not None
        assert self._prober.stdout is not None
        with self._prober.stdout as lines:
            for line in lines:
                self.seen.probes.append(Probe(**json.loads(line)))

    def look(self, *, pss: bool | None = None) -> None:
        """One look at everything; ``pss``: read it or not, None: every `PSS_EVERY` looks."""
        with_pss = self._looks % PSS_EVERY == 0 if pss is None else pss
        self._looks += 1
        self._find_processes()
        for pid, (name, process) in list(self._family.items()):
            try:
                self.seen.processes.setdefault(name, []).append(self._look_at(process, with_pss))
            except psutil.Error:
                self.seen.problems.append(f"{name} ended")
                del self._family[pid]
        try:
            memory = self._client.info("memory")["used_memory"]
            clients = self._client.info("clients")["connected_clients"]
            self.seen.redis.append(RedisLook(self._now(), int(memory), int(self._client.dbsize()), int(clients)))
        except redis.RedisError as error:
            self.seen.problems.append(f"Redis did not answer: {error}")

    def _find_processes(self) -> None:
        if self._looks % PSS_EVERY != 1:
            return
        for process in self._root.children(recursive=True):
            try:
                role = role_of(process.cmdline())
            except psutil.Error:
                continue
            if role is not None and process.pid not in self._family:
                self._family[process.pid] = (f"{role} {process.pid}", process)

    def _look_at(self, process: psutil.Process, with_pss: bool) -> ProcessLook:
        with process.oneshot():
            times = process.cpu_times()
            return ProcessLook(
                at=self._now(),
                cpu_s=float(times.user + times.system),
                rss=int(process.memory_info().rss),
                pss=int(process.memory_full_info().pss) if with_pss else None,
                threads=int(process.num_threads()),
                fds=int(process.num_fds()),
            )

    def _now(self) -> float:
        return self._clock.monotonic()
