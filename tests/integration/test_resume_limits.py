"""What one client may have, while its stream loses its connection: the stream counts once, lost or not.

A client that comes back to ``/v1/stream?resume=1`` is let in also where its server has not noticed the loss yet.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from websockets.exceptions import InvalidStatus

from loadgen.client import Sending, stream
from loadgen.connecting import address
from ops import key_file
from ops.redis_server import RedisServer
from queueing.keys import QueueKeys
from sessions.api_keys import KeyRecord, digest, make_key
from sessions.wire import Done, End, Error, Ready, ServerMessage, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all
from tests.support.reset_proxy import ResetProxy
from tests.support.returning import begin, byte_of, come_back, finals_of, refused, resumed, vanish
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of

SOUND = speech(4.0)
ADDRESS = "203.0.113.7"
KEYS = QueueKeys("main")

Who = dict[str, Any]


class Limited:
    """Two front ends at which one may have one stream. ``who``: what a connection shows; ``owner``: whose it is."""

    def __init__(self, fronts: tuple[LiveApi, LiveApi], client: redis.Redis, who: Who, owner: str) -> None:
        self.fronts, self.who, self._client, self._owner = fronts, who, client, owner

    def counted(self) -> list[str]:
        found: Any = self._client.zrange(KEYS.streams_of(self._owner), 0, -1)
        return [name.decode() for name in found]

    def refused(self, front: int, query: str = "") -> str:
        """The code with which one more connection is refused."""
        with pytest.raises(InvalidStatus) as answer, self.fronts[front].connect(query=query, **self.who):
            pass
        response = answer.value.response
        assert response.status_code == 429
        body = json.loads(response.body or b"")
        assert "limit of 1 streams" in body["message"], "as it is set, also for who may have two connections for it"
        assert ("?resume=1" in body["message"]) == (not query)
        return str(body["code"])


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    file = tmp_path_factory.mktemp("keys") / "keys"
    key = make_key(secrets.token_bytes)
    key_file.add(file, KeyRecord(label="kiosk", sha256=digest(key), max_streams=1))
    return file, key


@pytest.fixture(scope="module", params=["address", "key"])
def fronts(
    redis_server: RedisServer, key: tuple[Path, str], request: pytest.FixtureRequest
) -> Iterator[tuple[tuple[LiveApi, LiveApi], Who, str]]:
    settings: dict[str, object] = {"resume_grace_s": 10}
    if request.param == "key":
        settings |= {"api_keys": key[0], "metrics_open": 1}
        who, owner = {"additional_headers": {"Authorization": f"Bearer {key[1]}"}}, "key:kiosk"
    else:
        settings |= {"trusted_proxies": "127.0.0.1", "max_streams_per_address": 1}
        who, owner = {"additional_headers": {"X-Forwarded-For": ADDRESS}}, f"address:{ADDRESS}"
    with LiveApi(redis_server.url, **settings) as one, LiveApi(redis_server.url, **settings) as two:
        yield (one, two), who, owner


@pytest.fixture
def limited(fronts: tuple[tuple[LiveApi, LiveApi], Who, str], redis_client: redis.Redis) -> Iterator[Limited]:
    limited = Limited(fronts[0], redis_client, *fronts[1:])
    with QueueWorker(redis_client):
        for front in limited.fronts:
            eventually(lambda front=front: front.ready, what="readiness")  # type: ignore[misc]
        yield limited
    eventually(lambda: not leftovers(redis_client), timeout_s=20, what="clean Redis")
    eventually(lambda: not limited.counted(), what="nobody counted any more")
    for front in limited.fronts:
        assert front.metric("hearline_stream_faults_total") == 0


@pytest.mark.parametrize("noticed", [True, False], ids=["lost", "half open"])
@pytest.mark.parametrize("other", [0, 1])
def test_a_stream_counts_once_whatever_becomes_of_its_connections(
    limited: Limited, redis_client: redis.Redis, noticed: bool, other: int
) -> None:
    client, ready = begin(limited.fronts[0], **limited.who)
    client.send(SOUND[:64_000])
    assert limited.refused(1) == "rate_limited"
    if noticed:
        vanish(client)
        eventually(lambda: redis_client.zscore(KEYS.parked, ready.session) is not None, what="a parked session")
        assert limited.refused(1) == "rate_limited", "while it waits its place is not free"
    again = come_back(limited.fronts[other], ready, query="?resume=1", **limited.who)
    at = byte_of(resumed(again).received_s)
    if not noticed:
        assert refused(client) == "taken_over"
    assert limited.counted() == [ready.session]
    for front in (0, 1):
        assert limited.refused(front) == "rate_limited"
    again.send(SOUND[at:])
    again.send(encode(End()))
    messages = receive_all(again)
    assert [final.text for final in finals_of(messages)] == [text_of(SOUND)]
    assert messages[-1] == Done(audio_s=4.0, finals=1)
    client, ready = begin(limited.fronts[1], **limited.who)  # its place is free as soon as it is seen to be closed
    assert limited.counted() == [ready.session]
    client.close()


def test_who_says_that_it_comes_back_and_does_not_gets_no_second_stream(limited: Limited) -> None:
    client, ready = begin(limited.fronts[0], **limited.who)
    for first in (encode(End()), SOUND[:3_200]):
        with limited.fronts[1].connect(query="?resume=1", **limited.who) as second:
            assert limited.refused(1, "?resume=1") == "rate_limited", "nor as many as it likes"
            second.send(first)
            told = receive_all(second)[-1]
            assert isinstance(told, Error)
            assert (told.code, told.fatal) == ("overloaded", True)
            assert "send resume first" in told.message
        eventually(lambda: limited.counted() == [ready.session], what="its own stream counted, alone")
    client.close()


@pytest.mark.parametrize("fronts", ["key"], indirect=True)
def test_the_projects_client_comes_back_though_its_place_is_taken_by_its_own_stream(
    limited: Limited, key: tuple[Path, str], rng: random.Random
) -> None:
    resumes = 0
    with ResetProxy(limited.fronts[0].port) as proxy:

        def lose(_at: float, message: ServerMessage) -> None:
            nonlocal resumes
            if isinstance(message, Ready):
                resumes += message.resumed
                if not message.resumed:
                    proxy.reset()

        record = stream(proxy.stream_url, [SOUND], sending=Sending(0), on_message=lose, api_key=key[1], rng=rng)
    assert (record.complete, resumes) == (True, 1)
    assert record.text == text_of(SOUND)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ws://h:1/v1/stream", "ws://h:1/v1/stream?resume=1"),
        ("wss://h/v1/stream?api_key=hl_x", "wss://h/v1/stream?api_key=hl_x&resume=1"),
    ],
)
def test_what_a_client_connects_to(url: str, expected: str) -> None:
    assert address(url, back=True) == expected
    assert address(url, back=False) == url
