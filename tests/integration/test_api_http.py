"""What the web process answers over plain HTTP: refusals before the upgrade, health, metrics, the page."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from html.parser import HTMLParser

import psutil
import pytest
import redis
from websockets.exceptions import InvalidStatus

from ops.redis_server import RedisServer
from queueing.job_queue import JobQueue
from sessions.wire import Done, End, encode
from tests.support.eventually import eventually
from tests.support.frames import KEY, RawClient, upgrade_request
from tests.support.live_api import LiveApi, receive_all
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(redis_server.url, max_streams=3, http_threads=4) as server:
        yield server


@pytest.fixture
def api(server: LiveApi, redis_client: redis.Redis) -> LiveApi:
    eventually(lambda: server.metric("hearline_stream_slots") == 0, what="the view of an empty Redis")
    return server


def test_streams_beyond_the_cap_are_refused_before_the_upgrade(api: LiveApi, redis_client: redis.Redis) -> None:
    rejected = api.metric("hearline_streams_rejected_total", reason="cap")
    with ExitStack() as stack:
        clients = [stack.enter_context(api.connect()) for _ in range(3)]
        with pytest.raises(InvalidStatus) as refused, api.connect():
            pass
        response = refused.value.response
        assert response.status_code == 503
        assert int(response.headers["Retry-After"]) > 0
        body = json.loads(response.body or b"")
        assert (body["type"], body["code"], body["fatal"]) == ("error", "overloaded", True)
        assert "HEARLINE_MAX_STREAMS" in body["message"]
        assert redis_client.zcard("hl:{q:main}:streams") == 3
        assert api.metric("hearline_streams_rejected_total", reason="cap") == rejected + 1
        clients[0].send(encode(End()))
        assert isinstance(receive_all(clients[0])[-1], Done)
        with api.connect() as again:  # a place is free as soon as a stream is seen to be closed
            again.send(encode(End()))
            assert isinstance(receive_all(again)[-1], Done)


def test_health_and_metrics_answer_while_every_stream_is_in_use(api: LiveApi, redis_client: redis.Redis) -> None:
    chunk = speech(0.1)
    stop = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(QueueWorker(redis_client))
        clients = [stack.enter_context(api.connect()) for _ in range(3)]

        def talk() -> None:
            while not stop.wait(0.02):
                for client in clients:
                    client.send(chunk)

        talking = threading.Thread(target=talk)
        talking.start()
        try:
            eventually(lambda: api.ready, what="readiness")
            for _ in range(20):
                for path in ("/health", "/ready", "/metrics", "/v1/status", "/"):
                    assert api.get(path)[0] == 200
                assert api.get("/v1/stream", UPGRADE)[0] == 503
        finally:
            stop.set()
            talking.join(10)


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "DELETE"])
def test_plain_http_on_the_stream_address_is_told_to_upgrade(api: LiveApi, method: str) -> None:
    status, headers, body = api.request("/v1/stream", method=method)
    assert (status, headers["Upgrade"]) == (426, "websocket")
    if method != "HEAD":
        assert "WebSocket" in json.loads(body)["message"]


@pytest.mark.parametrize(
    ("first", "extra", "status"),
    [
        ("GET /v1/stream HTTP/1.0", "", 400),
        ("GET /v1/stream HTTP/1.1", "Content-Length: 3\r\n", 400),
        ("GET /v1/stream HTTP/1.1", "Transfer-Encoding: chunked\r\n", 400),
        ("POST /v1/stream HTTP/1.1", "", 405),
        ("HEAD /v1/stream HTTP/1.1", "", 405),
    ],
)
def test_a_broken_upgrade_is_answered_in_json(api: LiveApi, first: str, extra: str, status: int) -> None:
    request = upgrade_request(extra=extra).replace(b"GET /v1/stream HTTP/1.1", first.encode())
    with socket.create_connection(("127.0.0.1", api.port)) as sock:
        client = RawClient(sock)
        client.send(request)
        head = client.read_head()
        assert head.split()[1] == str(status)
        assert "application/json" in head
        if "HEAD" not in first:
            assert json.loads(client.read_line())["code"] == "bad_handshake"


@pytest.mark.parametrize(
    ("changed", "status"),
    [({"Sec-WebSocket-Version": "7"}, 426), ({"Sec-WebSocket-Key": "x"}, 400), ({"Host": "\xff"}, 400)],
)
def test_a_broken_upgrade_is_a_client_error_and_takes_no_slot(
    api: LiveApi, redis_client: redis.Redis, changed: dict[str, str], status: int
) -> None:
    answer, body = api.get("/v1/stream", {**UPGRADE, **changed})
    assert (answer, json.loads(body)["code"]) == (status, "bad_handshake")
    assert redis_client.zcard("hl:{q:main}:streams") == 0


def test_readiness_follows_the_workers(api: LiveApi, redis_client: redis.Redis) -> None:
    eventually(lambda: not api.says_ready, what="no readiness without a worker")
    body = api.json("/ready")
    assert body["ready"] is False
    assert "worker" in body["reason"]
    with QueueWorker(redis_client):
        eventually(lambda: api.ready, what="readiness")
        assert api.metric("hearline_workers_ready") == 1
    redis_client.flushall()
    eventually(lambda: not api.says_ready, what="the loss of readiness")
    assert api.get("/health")[0] == 200


def test_a_worker_counts_only_once_its_model_is_loaded(api: LiveApi, redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)

    def seen(state: str) -> bool:
        queue.heartbeat("w1", {"state": state, "model": "m"})
        return [worker["state"] for worker in api.json("/v1/status")["workers"]] == [state]

    for state in ("starting", "loading", "draining"):
        eventually(partial(seen, state), what=f"the {state} worker on the page")
        assert not api.says_ready
    eventually(lambda: seen("ready") and api.ready, what="readiness")
    queue.forget_worker("w1")


def test_clients_that_do_not_hang_up_hold_up_nobody(api: LiveApi) -> None:
    """Each has its answer; the server must not wait for any of them before it serves the next."""
    with ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", api.port)))
            sock.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        for _ in range(5):
            assert api.get("/health")[0] == 200
        eventually(lambda: not api.client_sockets(), what="the server's end of patience")


def test_unknown_paths_and_methods_are_json_errors(api: LiveApi) -> None:
    status, body = api.get("/nothing")
    assert (status, json.loads(body)["code"]) == (404, "not_found")
    assert api.get("/health", method="POST")[0] == 405


class Links(HTMLParser):
    """Everything a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attributes if name in ("src", "href") and value]


def test_the_page_is_whole_and_loads_nothing_from_elsewhere(api: LiveApi) -> None:
    status, headers, body = api.request("/")
    assert status == 200
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    links = Links()
    links.feed(body.decode())
    scripts = ["/static/sources.js", "/static/stream.js", "/static/kept.js", "/static/capture-worklet.js"]
    for path in [*links.found, *scripts]:
        assert path.startswith("/static/"), f"{path} is not of this server"
        status, _, content = api.request(path)
        assert status == 200
        assert not re.search(rb"""(?:src|href|from|import|url\(|fetch\()[=\s("'`]*(?:https?:)?//""", content), path


def test_metrics_of_two_processes_are_one_sum(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    with (
        LiveApi(redis_server.url, web_processes=2, max_streams=50) as api,
        QueueWorker(redis_client),
    ):
        eventually(lambda: api.ready, what="readiness")
        # The first answers while gunicorn still starts the second.
        eventually(lambda: len(api.web_processes()) == 2, what="two web processes")
        with ExitStack() as stack:
            clients = [stack.enter_context(api.connect()) for _ in range(10)]
            owners = {connection_owner(api, client.local_address[1]) for client in clients}
            while len(owners) < 2 and len(clients) < 50:  # the kernel chooses who accepts
                clients.append(stack.enter_context(api.connect()))
                owners.add(connection_owner(api, clients[-1].local_address[1]))
            assert len(owners) == 2, "one process got every stream"
            for _ in range(3):  # whichever process is asked
                assert api.metric("hearline_streams_active") == len(clients)
            for client in clients:
                client.send(speech(0.5))
                client.send(encode(End()))
            for client in clients:
                assert isinstance(receive_all(client)[-1], Done)
        eventually(lambda: api.metric("hearline_streams_active") == 0, what="no active stream")
        assert api.metric("hearline_streams_total", outcome="done") == len(clients)
        assert api.metric("hearline_audio_received_seconds_total") == len(clients) / 2
        with api.connect(), api.connect(), api.connect(), api.connect():
            victims = api.web_processes()
            for victim in victims:
                victim.kill()  # their gauges must not live on, their counters must
            eventually(lambda: not any(victim.is_running() for victim in victims), what="two dead processes")
        eventually(api.answers, what="new processes")
        eventually(lambda: api.metric("hearline_streams_active") == 0, what="no active stream of the dead")
        assert api.metric("hearline_streams_total", outcome="done") == len(clients)
        # Their slots expire by themselves; nothing else of theirs is kept.
        assert redis_client.zcard("hl:{q:main}:streams") <= 4


def connection_owner(api: LiveApi, client_port: int) -> int:
    for process in api.web_processes():
        for connection in process.net_connections("tcp"):
            if connection.raddr and connection.raddr.port == client_port:
                return int(process.pid)
    raise AssertionError(f"no web process has the connection of port {client_port}")


def test_process_metrics_are_those_of_the_web(api: LiveApi) -> None:
    assert api.metric("hearline_web_processes") == 2  # gunicorn's parent and one web process
    family = [psutil.Process(api.process.pid), *api.web_processes()]
    threads = sum(process.num_threads() for process in family)
    assert abs(api.metric("hearline_web_threads") - threads) <= 4
    assert api.metric("hearline_web_resident_memory_bytes") > 10_000_000
