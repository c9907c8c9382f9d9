"""What streams that are over may have left behind: jobs, slots, keys, sockets, mailboxes, threads, descriptors."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import psutil
import redis

from ops.service_bench_process import role_of
from queueing.clock import Clock

PERMANENT = re.compile(
    r"^hl:\{q:[^}]+\}:(lane:.+|heads|leases|open-partial|dead|costs|policy|workers|wake|streams|counts|parked)$"
)
"""As docs/redis-keys.md has them: bounded by design, so without expiry."""
POLL_S = 0.5
SPARE_FDS = 8
"""Descriptors that a process may have beside sockets and mailboxes: files of metrics, opened when first used."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Counts at one moment. ``by_kind``: keys of Redis by kind, ids left out; the rest over all web processes."""

    by_kind: dict[str, int]
    waiting_jobs: int
    leases: int
    partials: int
    slots: int
    parked: int
    session_keys: int
    immortal_keys: int
    sockets: int
    mailboxes: int
    threads: int
    other_fds: int

    def nothing(self) -> dict[str, int]:
        """What must be zero when no stream is open."""
        return {
            "waiting jobs": self.waiting_jobs, "leases": self.leases, "open partials": self.partials,
            "slots": self.slots, "parked sessions": self.parked, "keys of sessions": self.session_keys,
            "keys without expiry": self.immortal_keys, "sockets of clients": self.sockets,
            "mailboxes": self.mailboxes,
        }  # fmt: skip

    def problems(self, before: Leftovers) -> list[str]:
        """What is left that was not there before."""
        found = [f"{count} {name} left" for name, count in self.nothing().items() if count]
        if self.threads > before.threads:
            found.append(f"{self.threads} threads of the web, {before.threads} before")
        if self.other_fds > before.other_fds + SPARE_FDS:
            found.append(f"{self.other_fds} other descriptors of the web, {before.other_fds} before")
        return found


class Inspector:
    """Counts what is there. ``root_pid``: of `hearline up`; ``ports``: those that clients connect to."""

    def __init__(self, root_pid: int, client: redis.Redis, queue: str, ports: Sequence[int], clock: Clock) -> None:
        self.root_pid = root_pid
        self._root = psutil.Process(root_pid)
        self._client = client
        self._prefix = f"hl:{{q:{queue}}}:"
        self._ports = frozenset(ports)
        self._clock = clock

    def count(self) -> Leftovers:
        """One look at everything. Raises `redis.RedisError` when Redis does not answer."""
        names = [raw.decode() for raw in self._client.scan_iter(count=1000)]
        kinds = Counter(_kind(name, self._prefix) for name in names)
        lanes = [name for name in names if name.startswith(f"{self._prefix}lane:")]
        sockets = mailboxes = threads = other = 0
        for process in self.web_processes():
            try:
                connections = process.net_connections("tcp")
                sockets += sum(
                    one.laddr.port in self._ports and one.status != psutil.CONN_LISTEN for one in connections
                )
                boxes = _descriptors(process.pid).count("anon_inode:[eventfd]")
                mailboxes += boxes
                threads += process.num_threads()
                other += process.num_fds() - len(connections) - boxes
            except psutil.Error:
                continue
        key = self._prefix
        return Leftovers(
            by_kind=dict(sorted(kinds.items())),
            waiting_jobs=sum(int(self._client.zcard(lane)) for lane in lanes),
            leases=int(self._client.zcard(f"{key}leases")),
            partials=int(self._client.hlen(f"{key}open-partial")),
            slots=int(self._client.zcard(f"{key}streams")),
            parked=int(self._client.zcard(f"{key}parked")),
            session_keys=sum(name.startswith("hl:{s:") for name in names)
            + sum(kinds[kind] for kind in ("session", "session-jobs", "events", "job"))
            - int(self._client.zcard(f"{key}dead")),  # kept for the operator; see `dead`
            immortal_keys=sum(
                not PERMANENT.match(name) and self._client.ttl(name) == -1 for name in names if not _of_session(name)
            ),
            sockets=sockets,
            mailboxes=mailboxes,
            threads=threads,
            other_fds=other,
        )

    def outcomes(self) -> dict[str, int]:
        """What became of the queue's jobs, as ``KIND:OUTCOME``."""
        found = self._client.hgetall(f"{self._prefix}counts")
        return {(name.decode() if isinstance(name, bytes) else name): int(count) for name, count in found.items()}

    def dead(self) -> list[str]:
        """Why each job in the dead set was given up."""
        found = []
        for raw in self._client.zrange(f"{self._prefix}dead", 0, -1):
            name = raw.decode() if isinstance(raw, bytes) else str(raw)
            why = self._client.hmget(f"{self._prefix}job:{name}", "error_code", "error_message", "attempts")
            found.append(" ".join([name, *(str(part or b"?", "utf-8") for part in why if not isinstance(part, str))]))
        return found

    def web_processes(self) -> list[psutil.Process]:
        """gunicorn's parents and their processes."""
        found = []
        for process in self._root.children(recursive=True):
            try:
                if role_of(process.cmdline()) == "web":
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def settled(self, timeout_s: float, good: Callable[[Leftovers], bool] | None = None) -> Leftovers:
        """The counts once nothing is left (or ``good`` says so), or those at the end of ``timeout_s``."""
        give_up_s = self._clock.monotonic() + timeout_s
        pause = Event()
        while True:
            found = self.count()
            enough = good(found) if good is not None else not any(found.nothing().values())
            if enough or self._clock.monotonic() > give_up_s:
                return found
            pause.wait(POLL_S)


def _kind(name: str, prefix: str) -> str:
    if name.startswith("hl:{s:"):
        return f"session buffer:{name.rpartition(':')[2]}"
    return name.removeprefix(prefix).split(":", 1)[0]


def _of_session(name: str) -> bool:
    return name.startswith("hl:{s:")


def _descriptors(pid: int) -> list[str]:
    names = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            names.append(os.readlink(entry))
        except OSError:  # closed meanwhile
            continue
    return names
