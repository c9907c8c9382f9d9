"""How the web process ends: streams finish or are told, the port becomes free, nothing hangs."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import psutil
import pytest
import redis
from websockets.exceptions import InvalidStatus

from ops.redis_server import RedisServer
from queueing.lane import Kind
from sessions.wire import End, Error, Final, Flush, Ready, ServerMessage, encode
from tests.support.eventually import eventually
from tests.support.frames import RawClient, upgrade_request
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of

SOUND = speech(1.0)


@pytest.fixture
def api(redis_server: RedisServer, redis_client: redis.Redis) -> Iterator[LiveApi]:
    with LiveApi(redis_server.url, drain_s=6, resume_grace_s=0) as api:
        yield api
    assert api.process.returncode is not None
    assert not leftovers(redis_client)
    assert not any("Traceback" in line for line in api.log), "\n".join(api.log)


def last_error(messages: list[ServerMessage]) -> str:
    assert isinstance(messages[-1], Error)
    return messages[-1].code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_process_ends_at_once(api: LiveApi, number: signal.Signals) -> None:
    assert api.stop(number, timeout_s=5) == 0
    with pytest.raises(OSError):
        api.get("/health")


def test_a_drain_is_announced_and_running_streams_get_their_finals(api: LiveApi, redis_client: redis.Redis) -> None:
    with QueueWorker(redis_client, hold=frozenset({Kind.FINAL})) as worker, api.connect() as client:
        eventually(lambda: api.ready, what="readiness")
        client.send(SOUND)
        receive_until(client, Ready)
        api.process.terminate()
        eventually(lambda: not api.says_ready, what="readiness off")
        assert "ends" in api.json("/ready")["reason"]
        assert api.get("/health")[0] == 200
        with pytest.raises(InvalidStatus) as refused, api.connect():
            pass
        assert refused.value.response.status_code == 503
        assert b"shutting_down" in (refused.value.response.body or b"")
        worker.let_go()
        messages = receive_all(client)
        assert client.protocol.close_code == 1012
        (final,) = [message for message in messages if isinstance(message, Final)]
        assert (final.text, final.last) == (text_of(SOUND), True)
        assert last_error(messages) == "shutting_down"
        assert api.end(timeout_s=10) == 0


def test_what_cannot_finish_in_the_drain_time_is_told_so(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    with (
        LiveApi(redis_server.url, drain_s=0.5, resume_grace_s=0) as api,
        QueueWorker(redis_client, hold=frozenset(Kind)),
        api.connect() as client,
    ):
        client.send(SOUND)
        client.send(encode(End()))
        receive_until(client, Ready)
        api.process.terminate()
        messages = receive_all(client)
        assert client.protocol.close_code == 1012
        assert last_error(messages) == "shutting_down"
        assert api.end(timeout_s=10) == 0
    assert not leftovers(redis_client)


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGINT]])
def test_an_interrupt_ends_streams_at_once_with_a_reason(api: LiveApi, signals: list[signal.Signals]) -> None:
    with api.connect() as client:
        client.send(SOUND)
        client.send(encode(Flush()))
        receive_until(client, Ready)
        for number in signals:
            api.process.send_signal(number)
        assert last_error(receive_all(client, timeout_s=5)) == "shutting_down"
        assert client.protocol.close_code == 1012
        assert api.end(timeout_s=5) == 0


def test_a_client_that_does_not_react_cannot_hold_up_the_end(api: LiveApi) -> None:
    with socket.create_connection(("127.0.0.1", api.port)) as sock:
        client = RawClient(sock)
        client.send(upgrade_request())
        client.read_head()
        assert api.stop(timeout_s=10) == 0


def test_a_step_that_is_held_up_cannot_hold_up_the_end() -> None:
    with RedisServer() as server, LiveApi(server.url, drain_s=1) as api, api.connect() as client:
        client.send(SOUND)
        receive_until(client, Ready)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            client.send(SOUND)
            assert api.stop() == 0
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert any("1 connections did not end in time" in line for line in api.log), "it was killed by its parent"


def test_web_processes_do_not_outlive_their_parent(api: LiveApi) -> None:
    (web,) = api.web_processes()
    with api.connect() as client:
        client.send(SOUND)
        receive_until(client, Ready)
        api.process.kill()
        assert last_error(receive_all(client)) == "shutting_down"
        psutil.wait_procs([web], timeout=10)
    assert not web.is_running()
    with socket.socket() as successor:
        successor.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        successor.bind(("127.0.0.1", api.port))


@pytest.mark.parametrize(
    ("settings", "status", "text"),
    [
        ({"max_streams": 0}, 2, "HEARLINE_MAX_STREAMS='0'"),
        ({"policy": "luck"}, 2, "HEARLINE_POLICY"),
    ],
)
def test_wrong_settings_end_the_start_with_what_to_correct(
    redis_url: str, settings: dict[str, object], status: int, text: str
) -> None:
    api = LiveApi(redis_url, **settings)
    assert api.process.wait(20) == status
    api.stop()
    assert text in "\n".join(api.log)


def test_a_redis_that_evicts_is_refused(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        api = LiveApi(redis_url)
        assert api.process.wait(20) == 1
        api.stop()
        assert "noeviction" in "\n".join(api.log)
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
