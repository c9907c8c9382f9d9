"""Web, worker and Redis start in any order, and Redis may go for a while: each waits without haste, says so once, and
comes back by itself. Real processes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ops.redis_server import RedisServer
from queueing.clock import SystemClock
from queueing.connect import connect
from queueing.local_redis import free_port
from sessions.wire import Done, End, Final, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all
from tests.support.sound import speech
from tests.support.workers import worker_process
from workers.scripted import scripted_text

SOUND = speech(1.0)
FAST = {"base_s": 0.0, "per_audio_s": 0.0}


def speak(api: LiveApi) -> None:
    """A stream from start to end; it must end whole."""
    with api.connect() as stream:
        stream.send(SOUND)
        stream.send(encode(End()))
        messages = receive_all(stream)
    assert isinstance(messages[-1], Done), messages[-1]
    said = " ".join(message.text for message in messages if isinstance(message, Final))
    assert said.strip() == scripted_text(SOUND)


class Door:
    """Listens where Redis should be, counts who knocks, and shuts the door at once."""

    def __init__(self, port: int) -> None:
        self.knocks: list[float] = []
        self._socket = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.knocks.append(SystemClock().monotonic())
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)


@contextmanager
def door(port: int) -> Iterator[Door]:
    opened = Door(port)
    try:
        yield opened
    finally:
        opened.close()


@pytest.mark.slow
def test_redis_comes_last_and_goes_for_a_while(tmp_path: Path) -> None:
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    with worker_process(url, tmp_path, FAST) as worker, LiveApi(url) as api:
        with door(port) as shut:
            eventually(lambda: api.json("/ready").get("reason", "").startswith("Redis does not answer"), what="/ready")
            worker.await_log("redis_away")
            shut.knocks.clear()
            eventually(lambda: len(shut.knocks) >= 25, timeout_s=60, what="25 attempts")
            seconds = shut.knocks[24] - shut.knocks[0]
            # A pulse a second, a subscriber that backs off to two seconds, a worker with three threads: about 4.
            assert 24 / seconds < 10, f"{24 / seconds:.1f} connections a second from two processes"
        assert api.metric("hearline_redis_up") == 0
        with RedisServer(port=port) as server:
            eventually(lambda: api.ready, timeout_s=30, what="readiness once Redis is there")
            speak(api)
            server.kill()
            eventually(lambda: not api.says_ready, what="the loss in /ready")
            worker.await_log('"event": "redis_away"')
            with door(port) as shut:
                eventually(lambda: len(shut.knocks) >= 20, timeout_s=60, what="an outage that lasts")
            assert api.get("/health")[0] == 200
            server.start()
            eventually(lambda: api.ready, timeout_s=30, what="readiness once Redis is back")
            speak(api)
            with connect(url) as client:
                eventually(lambda: not leftovers(client), what="clean Redis")
            assert len(api.events("redis_lost")) == 2, "one line for each time that it was away, however many attempts"
            assert len(api.events("redis_back")) == 2
            assert len(api.events("front_listener_lost")) == 2, [line for line in api.log if "front_listener" in line]
            assert worker.running()
            away = [line for line in worker.text().splitlines() if '"redis_away"' in line and '"warning"' in line]
            assert len(away) <= 3, away


def test_a_redis_that_evicts_is_noticed_also_when_it_comes_after_the_web_process() -> None:
    port = free_port()
    with LiveApi(f"redis://127.0.0.1:{port}/0") as api:
        eventually(lambda: "Redis does not answer" in api.json("/ready").get("reason", ""), what="the reason")
        with RedisServer(port=port) as server, connect(server.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
            eventually(lambda: "noeviction" in api.json("/ready").get("reason", ""), what="the refusal")
            client.config_set("maxmemory-policy", "noeviction")
            eventually(lambda: "no worker" in api.json("/ready").get("reason", ""), what="that it is fit now")
