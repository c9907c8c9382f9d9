"""What one client address may have, over real sockets, two front ends and a proxy that says who asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis
from websockets.exceptions import InvalidStatus

from ops.redis_server import RedisServer
from queueing.keys import QueueKeys
from queueing.lane import Kind
from sessions.wire import Done, End, Final, Flush, Start, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, receive_all, receive_until
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech

KEYS = QueueKeys("main")
LIMITS = {"trusted_proxies": "127.0.0.1", "max_streams_per_address": 2, "max_tries_per_address": 6}


@pytest.fixture(scope="module")
def fronts(redis_server: RedisServer) -> Iterator[tuple[LiveApi, LiveApi]]:
    with LiveApi(redis_server.url, **LIMITS) as one, LiveApi(redis_server.url, **LIMITS) as two:
        yield one, two


def refused(api: LiveApi, address: str) -> tuple[int, str, str]:
    """Retry-After, code and message."""
    with pytest.raises(InvalidStatus) as answer, api.connect(additional_headers={"X-Forwarded-For": address}):
        pass
    response = answer.value.response
    assert response.status_code == 429
    body = json.loads(response.body or b"")
    return int(response.headers["Retry-After"]), body["code"], body["message"]


def test_one_address_gets_its_streams_over_all_front_ends_and_no_other_pays_for_it(
    fronts: tuple[LiveApi, LiveApi], redis_client: redis.Redis
) -> None:
    one, two = fronts
    eventually(lambda: one.metric("hearline_stream_slots") == 0, what="the view of an empty Redis")
    with ExitStack() as stack:

        def connect(api: LiveApi, address: str) -> object:
            return stack.enter_context(api.connect(additional_headers={"X-Forwarded-For": address}))

        connect(one, "203.0.113.7")
        last = stack.enter_context(two.connect(additional_headers={"X-Forwarded-For": "203.0.113.7"}))
        retry_after_s, code, message = refused(one, "203.0.113.7")
        assert (retry_after_s > 0, code) == (True, "rate_limited")
        assert "203.0.113.7" in message
        assert "2 streams (HEARLINE_MAX_STREAMS_PER_ADDRESS)" in message
        assert one.metric("hearline_streams_rejected_total", reason="address_streams") == 1
        connect(one, "203.0.113.8")
        for _ in range(3):
            connect(two, "127.0.0.1")
        assert redis_client.zcard(KEYS.streams_of("address:203.0.113.7")) == 2
        last.send(encode(End()))
        assert isinstance(receive_all(last)[-1], Done)
        connect(one, "203.0.113.7")  # a place is free as soon as a stream is seen to be closed
        assert "2 streams" in refused(two, "203.0.113.7")[2]
        assert "2 streams" in refused(two, "203.0.113.7")[2]
        assert "6 requests a minute (HEARLINE_MAX_TRIES_PER_ADDRESS)" in refused(two, "203.0.113.7")[2]
    eventually(lambda: not list(redis_client.scan_iter("hl:{q:main}:streams-of:*")), what="nobody counted any more")


def test_a_fast_sender_is_read_at_its_rate_loses_nothing_and_a_neighbour_waits_for_nothing(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """Both send as fast as they can; the rate is far below that. Nobody is closed for it."""
    with (
        LiveApi(redis_server.url, max_stream_rate=1, idle_timeout_s=2) as api,
        QueueWorker(redis_client) as worker,
    ):
        eventually(lambda: api.ready, what="readiness")
        with api.connect() as fast, api.connect() as neighbour:
            fast.send(encode(Start(language="en", partials=False)))

            def flood() -> None:
                for _ in range(14):  # 10 s at once, then 4 s in 4 s: longer than a client may be idle
                    fast.send(speech(1.0))
                fast.send(encode(End()))

            flooding = threading.Thread(target=flood)
            flooding.start()
            neighbour.send(speech(0.5))
            neighbour.send(encode(Flush()))
            assert isinstance(receive_until(neighbour, Final)[-1], Final)
            messages = receive_all(fast, timeout_s=30)
            flooding.join(20)
        assert messages[-1] == Done(audio_s=14.0, finals=1)
        finals = [lease.job.audio_s for lease in worker.claimed if lease.job.kind is Kind.FINAL]
        assert sum(finals) == pytest.approx(14.5)
