"""Crowds of connections that ask for nothing, or never finish asking: everybody else is served as ever."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Self

import pytest
import redis

from api.heads import HEAD_BYTES
from ops.redis_server import RedisServer
from sessions.wire import Done, End, encode
from tests.support.eventually import eventually
from tests.support.frames import RawClient, upgrade_request
from tests.support.live_api import LiveApi, receive_all
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(redis_server.url) as server:
        yield server


@pytest.fixture
def api(server: LiveApi, redis_client: redis.Redis) -> LiveApi:
    eventually(lambda: server.metric("hearline_stream_slots") == 0, what="the view of an empty Redis")
    return server


class Crowd:
    """Connections that send ``first`` and then nothing; whatever the server closes comes again at once."""

    def __init__(self, port: int, first: bytes, size: int) -> None:
        self._port, self._first = port, first
        self._stop = threading.Event()
        self._selector = selectors.DefaultSelector()
        for _ in range(size):
            self._open()
        self.came_again = 0
        self._thread = threading.Thread(target=self._refill)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(20)
        for key in list(self._selector.get_map().values()):
            self._leave(key.fileobj)
        self._selector.close()

    def _open(self) -> None:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=20)
        with suppress(OSError):
            sock.sendall(self._first)
        self._selector.register(sock, selectors.EVENT_READ)

    def _leave(self, sock: object) -> None:
        assert isinstance(sock, socket.socket)
        self._selector.unregister(sock)
        sock.close()

    def _refill(self) -> None:
        while not self._stop.is_set():
            # A few at a time: the two programs share the machine's processors, and this is no test of them.
            for key, _ in self._selector.select(0.1)[:20]:
                self._leave(key.fileobj)
                with suppress(OSError):
                    self._open()
                self.came_again += 1
            self._stop.wait(0.02)


def test_crowds_without_a_request_keep_nobody_out(api: LiveApi, redis_client: redis.Redis) -> None:
    """More half handshakes than threads and more silent connections than may be open, for as long as it takes."""
    with (
        QueueWorker(redis_client),
        Crowd(api.port, b"GET /v1/stream HTTP/1.1\r\nX-", 300) as halves,
        Crowd(api.port, b"", 600) as silent,
    ):
        eventually(lambda: halves.came_again > 30 and silent.came_again > 30, what="a crowd that comes again")
        for _ in range(10):
            assert api.get("/health")[0] == 200
        eventually(lambda: api.ready, what="readiness")
        with api.connect() as client:
            for _ in range(5):
                client.send(speech(0.2))
            client.send(encode(End()))
            assert isinstance(receive_all(client)[-1], Done)
        assert api.get("/health")[0] == 200
    assert not [line for line in api.log if "Traceback" in line]


def test_bodies_that_never_come_hold_no_thread(api: LiveApi) -> None:
    with Crowd(api.port, b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", 300):
        for _ in range(5):
            status, headers, _ = api.request("/health", {"Content-Length": "9"})
            assert (status, headers["Connection"]) == (200, "close")


@pytest.fixture
def raw(api: LiveApi) -> Iterator[RawClient]:
    with socket.create_connection(("127.0.0.1", api.port)) as sock:
        yield RawClient(sock)


def test_a_request_that_comes_byte_by_byte_is_served(raw: RawClient) -> None:
    for byte in upgrade_request():
        raw.send(bytes([byte]))
    assert raw.read_head().startswith("HTTP/1.1 101")


def test_requests_that_come_together_are_all_answered(raw: RawClient) -> None:
    raw.send(b"\r\n" + b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 5 + b"GET /health HTTP/1.0\r\n\r\n")
    data = b""
    while chunk := raw.sock.recv(65_536):
        data += chunk
    assert data.count(b" 200 OK") == 6


def test_a_head_without_end_is_refused(raw: RawClient) -> None:
    raw.send(b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * (HEAD_BYTES // 6))
    assert raw.read_head().startswith("HTTP/1.1 431 ")
