"""A real ``python -m api`` in a process of its own, and what a test wants to know of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import redis
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from queueing.clock import SystemClock
from queueing.connect import connect as connect_redis
from queueing.errors import QueueUnavailable
from queueing.job_queue import JobQueue
from queueing.local_redis import free_port
from sessions.wire import Ack, ServerMessage, decode_server
from tests.support.eventually import eventually
from tests.support.up_process import clean_environment


class LiveApi:
    """The web processes; use as a context manager. ``log`` holds their standard error by line.

    ``endpoint_ms``: 0, as most tests need it: synthetic sound is no speech, and everything shall be decoded.
    """

    def __init__(
        self, redis_url: str, *, endpoint_ms: object = 0, metrics_dir: object = None, **settings: object
    ) -> None:
        self.port = free_port()
        self._queue = JobQueue(connect_redis(redis_url))
        self.log: list[str] = []
        settings["endpoint_ms"] = endpoint_ms
        environment = {f"HEARLINE_{name.upper()}": str(value) for name, value in settings.items()}
        environment |= {"REDIS_URL": redis_url, "HEARLINE_PORT": str(self.port), "PYTHONUNBUFFERED": "1"}
        if metrics_dir is not None:
            environment["PROMETHEUS_MULTIPROC_DIR"] = str(metrics_dir)
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error::ResourceWarning", "-m", "api"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=clean_environment(**environment),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def stream_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    def __enter__(self) -> Self:
        eventually(self.answers, timeout_s=30, what=f"the web process at {self.url}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def answers(self) -> bool:
        """Whether /health answers."""
        assert self.process.poll() is None, "the web process ended:\n" + "\n".join(self.log)
        try:
            return self.get("/health")[0] == 200
        except OSError:
            return False

    def stop(self, number: int = signal.SIGTERM, timeout_s: float = 30) -> int:
        """Send the signal and wait for the end; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.end(timeout_s)

    def end(self, timeout_s: float = 30) -> int:
        """Wait for the end of a process that was sent a signal; the exit status. (A second SIGTERM that comes while the
        interpreter winds up would be its death.) A process that does not end fails the test."""
        try:
            status = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("the web process did not end:\n" + "\n".join(self.log)) from None
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

    def kill(self) -> None:
        """SIGKILL to the parent and its web processes."""
        for process in [*self.web_processes(), psutil.Process(self.process.pid)]:
            process.kill()
        self.process.wait()

    def web_processes(self) -> list[psutil.Process]:
        """gunicorn's worker processes."""
        return psutil.Process(self.process.pid).children()

    def client_sockets(self) -> list[str]:
        """States of the connections that clients have to the web processes."""
        return [
            connection.status
            for process in self.web_processes()
            for connection in process.net_connections("tcp")
            if connection.laddr.port == self.port and connection.status != psutil.CONN_LISTEN
        ]

    def mailboxes(self) -> int:
        """Open event descriptors of the web processes."""
        names = [
            os.readlink(entry)
            for process in self.web_processes()
            for entry in Path(f"/proc/{process.pid}/fd").iterdir()
            if entry.is_symlink()
        ]
        return names.count("anon_inode:[eventfd]")

    def get(self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> tuple[int, bytes]:
        """Status and body of one request on a connection of its own. Raises OSError."""
        status, _, body = self.request(path, headers, method)
        return status, body

    def request(
        self, path: str, headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body of one request. Raises OSError."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()

    def json(self, path: str) -> Any:
        return json.loads(self.get(path)[1])

    @property
    def says_ready(self) -> bool:
        return self.get("/ready")[0] == 200

    @property
    def ready(self) -> bool:
        """Whether it says so of the workers that are registered now: its latest look at Redis may be a second old and
        of the test before, and a stream would be told of the moment in which that test's worker had gone. (Who gives
        keys to clients keeps the workers to himself; there it is enough that it says so.)"""
        if not self.says_ready:
            return False
        try:
            registered = {worker.id for worker in self._queue.workers()}
        except QueueUnavailable:
            return False
        status, body = self.get("/v1/status")
        return status == 401 or {worker["id"] for worker in json.loads(body)["workers"]} == registered

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        total = 0.0
        for line in self.get("/metrics")[1].decode().splitlines():
            found = re.match(rf"{name}(?:\{{(.*)\}})? (\S+)$", line)
            if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
                total += float(found[2])
        return total

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log lines of one event."""
        lines = [line for line in self.log if line.startswith("{")]
        return [fields for line in lines if (fields := json.loads(line)).get("event") == name]

    def connect(self, **options: Any) -> ClientConnection:
        """A client connection; closing it does not wait for long. It sends no pings of its own: those of a connection
        that a test has left behind would draw random numbers while another test counts on having them to itself.

        A web process that stood still for some seconds, as on a busy machine, takes Redis for silent and refuses until
        its next look: that is waited for, once.
        """
        settings: dict[str, Any] = {"max_size": None, "close_timeout": 5, "compression": None, "proxy": None}
        settings |= {"ping_interval": None, **options}
        url = self.stream_url + settings.pop("query", "")
        try:
            connection: ClientConnection = connect(url, **settings)
        except InvalidStatus as refused:
            if b"Redis has not answered for" not in (refused.response.body or b""):
                raise
            with suppress(AssertionError):
                eventually(lambda: b"has not answered" not in self.get("/ready")[1], timeout_s=5)
            connection = connect(url, **settings)
        return connection

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.decode("utf-8", "replace").rstrip("\n"))


def receive_all(connection: ClientConnection, timeout_s: float = 20) -> list[ServerMessage]:
    """Every message until the server closes."""
    messages = []
    try:
        while True:
            messages.append(decode_server(connection.recv(timeout_s)))
    except Exception as ended:
        if connection.protocol.close_code is None:
            raise AssertionError(f"no end of the stream: {ended!r}; received {messages}") from ended
    return messages


def receive_until(
    connection: ClientConnection, kind: type[ServerMessage], timeout_s: float = 20
) -> list[ServerMessage]:
    """Messages up to the first of ``kind``, with it."""
    messages: list[ServerMessage] = []
    while not messages or not isinstance(messages[-1], kind):
        messages.append(decode_server(connection.recv(timeout_s)))
    return messages


def heard_within(connection: ClientConnection, seconds: float) -> list[ServerMessage]:
    """What comes in the next ``seconds``, but acknowledgements: those are no news to who speaks."""
    messages: list[ServerMessage] = []
    clock = SystemClock()
    until_s = clock.monotonic() + seconds
    with suppress(TimeoutError):
        while (left_s := until_s - clock.monotonic()) > 0:
            messages.append(decode_server(connection.recv(left_s)))
    return [message for message in messages if not isinstance(message, Ack)]


def leftovers(client: redis.Redis) -> dict[str, object]:
    """What streams have left behind in Redis; empty when all is clean. (A cancelled job's expiring tombstone is
    no leftover.)"""
    found: dict[str, object] = {}
    for raw in client.scan_iter(count=1000):
        name = raw.decode()
        if name.startswith("hl:{s:") or ":events:" in name or ":session-jobs:" in name or ":lane:" in name:
            found[name] = client.type(raw)
    for key in ("leases", "open-partial", "streams"):
        name = f"hl:{{q:main}}:{key}"
        count = client.hlen(name) if key == "open-partial" else client.zcard(name)
        if count:
            found[name] = count
    return found
