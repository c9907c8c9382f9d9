"""New streams under load, over real sockets: refused before the upgrade, with the time to come back; then taken."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis
from websockets.exceptions import InvalidStatus

from ops.redis_server import RedisServer
from queueing.job_queue import JobQueue
from queueing.lane import Kind, Lane
from sessions.wire import CloseCode, Done, End, Error, Final, Flush, Ready, Start, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.queue_jobs import final
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(redis_server.url, max_predicted_wait_s=5) as server:
        yield server


def refusal(api: LiveApi) -> tuple[int, str, str] | None:
    """Retry-After, code and message; None when a stream is taken."""
    try:
        with api.connect() as client:
            client.send(encode(End()))
            assert isinstance(receive_all(client)[-1], Done)
    except InvalidStatus as refused:
        answer = refused.response
    else:
        return None
    assert answer.status_code == 503
    body = json.loads(answer.body or b"")
    return int(answer.headers["Retry-After"]), body["code"], body["message"]


def test_streams_are_refused_while_finals_would_wait_and_taken_when_the_backlog_is_gone(
    server: LiveApi, redis_client: redis.Redis
) -> None:
    queue = JobQueue(redis_client)
    with QueueWorker(redis_client, hold=frozenset({Kind.FINAL})) as worker:
        eventually(lambda: server.ready, what="readiness")
        assert refusal(server) is None
        redis_client.hset(queue.keys.costs, Lane(Kind.FINAL, 5).name, "1000")
        for number in range(21):
            queue.enqueue(final(f"waiting-{number}"))
        eventually(lambda: server.metric("hearline_streams_refusing", reason="predicted_wait") == 1, what="a refusal")
        found = refusal(server)
        assert found is not None
        retry_after_s, code, message = found
        assert (code, "HEARLINE_MAX_PREDICTED_WAIT_S" in message) == ("overloaded", True)
        assert 14 <= retry_after_s <= 18, "until 20 s of work have become 3.5 s"
        ready, body = server.get("/ready")
        assert (ready, json.loads(body)["overloaded"]) == (200, message)
        assert server.metric("hearline_streams_rejected_total", reason="predicted_wait") >= 1
        worker.fault = lambda lease: ("decode_failed", "this audio is not there")
        worker.let_go()
        eventually(lambda: refusal(server) is None, what="a stream that is taken")
    assert "overloaded" not in server.json("/ready")


def test_near_its_memory_limit_no_stream_begins_and_those_that_run_are_finished(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    with LiveApi(redis_server.url) as api, QueueWorker(redis_client):
        eventually(lambda: api.ready, what="readiness")
        with api.connect() as client:
            client.send(encode(Start(language="en", partials=False)))
            receive_until(client, Ready)

            def near_the_limit() -> bool:
                """Again at each look: what Redis frees in the background would lead away from the limit."""
                redis_client.config_set("maxmemory", int(redis_client.info("memory")["used_memory"] / 0.95))
                return not api.says_ready

            try:
                eventually(near_the_limit, 20, what="readiness that says it")
                assert "of its memory in use" in api.json("/ready")["reason"]
                assert api.metric("hearline_redis_memory_ratio") > 0.9
                found = refusal(api)
                assert found is not None
                assert found[1] == "overloaded"
                assert "of its memory in use" in found[2], "how much of it changes from look to look"
                for _ in range(3):
                    client.send(speech(0.5))
                    client.send(encode(Flush()))
                    assert isinstance(receive_until(client, Final)[-1], Final), "there is room for what runs"
                redis_client.config_set("maxmemory", 1)
                client.send(speech(2.0))
                client.send(encode(End()))
                told = [message for message in receive_all(client) if isinstance(message, Error)]
                assert [(error.code, error.retry_after_s is not None) for error in told] == [("overloaded", True)]
                assert "Redis is at its memory limit" in told[0].message
                assert client.protocol.close_code == CloseCode.TRY_AGAIN
            finally:
                redis_client.config_set("maxmemory", 0)
        eventually(lambda: refusal(api) is None, what="a stream that is taken")
        eventually(lambda: leftovers(redis_client) == {}, what="nothing left behind")
