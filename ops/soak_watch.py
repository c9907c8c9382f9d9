"""What the soak watches once a second: the service's processes, its Redis, and how fast /health and /metrics answer."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import psutil
import redis

from ops.service_bench_process import role_of
from queueing.clock import Clock

PROBE_PATHS = ("/health", "/metrics")
PROBE_TIMEOUT_S = 5.0
PSS_EVERY = 10
"""Looks between two readings of the proportional set size: the kernel walks all pages for it."""


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


@dataclass(frozen=True, slots=True)
class Probe:
    """One request: how long it took, and what was wrong, if anything."""

    at: float
    path: str
    seconds: float
    problem: str = ""


@dataclass(slots=True)
class Watched:
    """All looks so far. ``processes``: name (role and process id) -> looks."""

    processes: dict[str, list[ProcessLook]] = field(default_factory=dict)
    redis: list[RedisLook] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Watch:
    """Two threads: one looks, one probes. Use as a context manager."""

    def __init__(self, root_pid: int, client: redis.Redis, addresses: Sequence[tuple[str, int]], clock: Clock) -> None:
        self._root = psutil.Process(root_pid)
        self._client = client
        self._addresses = addresses
        self._clock = clock
        self._stop = threading.Event()
        self._family: dict[int, tuple[str, psutil.Process]] = {}
        self._threads = [
            threading.Thread(target=self._every, args=(1.0, step), daemon=True) for step in (self.look, self.probe)
        ]
        self._looks = 0
        self.seen = Watched()

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _every(self, seconds: float, step: Callable[[], None]) -> None:
        while not self._stop.wait(seconds):
            step()

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

    def probe(self) -> None:
        """Ask every web process for its health and its metrics, one after the other."""
        for address in self._addresses:
            for path in PROBE_PATHS:
                self.seen.probes.append(probe(address, path, self._clock))

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


def probe(address: tuple[str, int], path: str, clock: Clock) -> Probe:
    """One GET on a connection of its own."""
    begin = clock.monotonic()
    connection = http.client.HTTPConnection(*address, timeout=PROBE_TIMEOUT_S)
    problem = ""
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            problem = f"HTTP {response.status}"
    except (OSError, http.client.HTTPException) as error:
        problem = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return Probe(begin, path, clock.monotonic() - begin, problem)
