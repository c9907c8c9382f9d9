"""Redis restarts, stays away, hangs or forgets while streams run: recovery or an explicit error, never silence."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from websockets.exceptions import InvalidStatus

from ops.redis_server import RedisServer
from queueing.connect import connect
from queueing.lane import Kind
from sessions.wire import Done, End, Error, Final, Flush, Ready, ServerMessage, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of
from tests.support.standstill import stop

SOUND = speech(2.0)


@contextmanager
def service(server: RedisServer, **settings: object) -> Iterator[tuple[LiveApi, redis.Redis]]:
    client = connect(server.url)
    with LiveApi(server.url, inference_timeout_s=20, **settings) as api:
        eventually(lambda: api.get("/metrics")[1].count(b"hearline_redis_up 1.0"), what="a first look at Redis")
        yield api, client
        assert api.metric("hearline_stream_faults_total") == 0
    client.close()
    assert not any("Traceback" in line for line in api.log), "\n".join(api.log)


def fatal(messages: list[ServerMessage]) -> str:
    """The code of the fatal error that ended a stream."""
    assert isinstance(messages[-1], Error)
    assert messages[-1].fatal
    return messages[-1].code


def test_a_restart_that_keeps_its_data_costs_nothing(tmp_path: Path) -> None:
    with RedisServer(data_dir=tmp_path) as server, service(server) as (api, client):
        with QueueWorker(client), api.connect() as stream:
            for part in range(0, len(SOUND), 3_200):
                stream.send(SOUND[part : part + 3_200])
                if part == 32_000:
                    receive_until(stream, Ready)
                    server.kill()
                    server.start()
            stream.send(encode(End()))
            messages = receive_all(stream)
        assert isinstance(messages[-1], Done)
        (final,) = [message for message in messages if isinstance(message, Final)]
        assert final.text == text_of(SOUND)
        eventually(lambda: not leftovers(client), what="clean Redis")


def test_a_restart_that_forgets_the_audio_is_an_error_for_those_who_spoke(tmp_path: Path) -> None:
    with RedisServer() as server, service(server) as (api, client), QueueWorker(client):
        eventually(lambda: api.ready, what="readiness")
        with api.connect() as speaking, api.connect() as silent:
            speaking.send(SOUND)
            receive_until(speaking, Ready)
            eventually(lambda: list(client.scan_iter("hl:{s:*:audio")), what="audio in Redis")
            server.kill()
            server.start()
            speaking.send(SOUND)
            speaking.send(encode(End()))
            assert fatal(receive_all(speaking)) == "state_lost"
            assert speaking.protocol.close_code == 1011
            silent.send(SOUND)  # this one had accepted nothing: it goes on
            silent.send(encode(End()))
            assert isinstance(receive_all(silent)[-1], Done)
        eventually(lambda: api.ready, what="readiness again")


def test_a_final_that_redis_forgot_is_not_waited_for_in_silence() -> None:
    with RedisServer() as server, service(server) as (api, client):
        with QueueWorker(client, hold=frozenset({Kind.FINAL})) as worker, api.connect() as stream:
            stream.send(SOUND)
            stream.send(encode(End()))
            receive_until(stream, Ready)
            eventually(lambda: Kind.FINAL in worker.claimed_kinds(), what="a claimed final")
            server.kill()
            server.start()
            worker.let_go()
            messages = receive_all(stream)
        assert fatal(messages) in {"state_lost", "decode_failed"}


def test_while_redis_is_away_streams_end_with_a_reason_and_none_begin() -> None:
    with RedisServer() as server, service(server) as (api, client), QueueWorker(client):
        eventually(lambda: api.ready, what="readiness")
        with api.connect() as stream:
            stream.send(SOUND)
            receive_until(stream, Ready)
            server.kill()
            stream.send(SOUND)
            stream.send(encode(Flush()))
            assert fatal(receive_all(stream)) == "unavailable"
            assert stream.protocol.close_code == 1011
        assert api.get("/health")[0] == 200
        eventually(lambda: "Redis" in api.json("/ready").get("reason", ""), what="the reason")
        assert api.metric("hearline_redis_up") == 0
        with pytest.raises(InvalidStatus) as refused, api.connect():
            pass
        assert refused.value.response.status_code == 503
        assert b"unavailable" in (refused.value.response.body or b"")
        server.start()
        eventually(lambda: api.ready, timeout_s=20, what="readiness again")
        with api.connect() as stream:
            stream.send(SOUND)
            stream.send(encode(End()))
            assert isinstance(receive_all(stream)[-1], Done)


@pytest.mark.slow
def test_a_redis_that_hangs_stops_neither_health_nor_the_end_of_streams() -> None:
    with RedisServer() as server, service(server) as (api, _client), api.connect() as stream:
        stream.send(SOUND)
        receive_until(stream, Ready)
        stop(server.pid)
        try:
            stream.send(SOUND)
            eventually(lambda: "Redis" in api.json("/ready").get("reason", ""), timeout_s=15, what="the reason")
            for path in ("/health", "/v1/status", "/metrics"):
                assert api.get(path)[0] == 200
            assert fatal(receive_all(stream, timeout_s=30)) == "unavailable"
        finally:
            os.kill(server.pid, signal.SIGCONT)
        eventually(lambda: api.metric("hearline_redis_up") == 1, timeout_s=20, what="Redis again")


def test_flushed_scripts_and_a_killed_subscription_are_not_noticed_by_clients() -> None:
    with RedisServer() as server, service(server) as (api, client), QueueWorker(client), api.connect() as stream:
        for round_number in range(3):
            client.script_flush()
            client.client_kill_filter(_type="pubsub")
            stream.send(SOUND)
            stream.send(encode(Flush()))
            final = receive_until(stream, Final)[-1]
            assert isinstance(final, Final)
            assert final.text == text_of(SOUND), round_number
        stream.send(encode(End()))
        assert isinstance(receive_all(stream)[-1], Done)
