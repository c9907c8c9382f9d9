"""A front end's subscription to a real Redis: it hears, it survives, it says when something may be missing."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.connect import connect
from queueing.job import Delivery
from queueing.keys import front_channel
from queueing.lane import Kind
from sessions.events import FrontListener
from tests.support.eventually import eventually

FRONT = "web-1"


def delivery(session: str, number: int = 1) -> Delivery:
    return Delivery(
        event_id=f"{number}-0", session=session, job=f"{session}:f:{number}", kind=Kind.FINAL, segment=number,
        outcome="done", start_byte=0, end_byte=2, audio_s=0.1, attempt=1, queue_ms=1, decode_ms=2, completed_ms=3,
        result={"text": "a", "model": "m"}, error=None,
    )  # fmt: skip


class Heard:
    """A mailbox, and what the listener said about reconnecting."""

    def __init__(self) -> None:
        self.box: queue.Queue[Delivery] = queue.Queue()
        self.reconnects: queue.Queue[tuple[str, ...]] = queue.Queue()

    def next(self) -> Delivery:
        return self.box.get(timeout=10)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def listener(redis_client: redis.Redis, heard: Heard, rng: random.Random) -> Iterator[FrontListener]:
    with FrontListener(redis_client, FRONT, rng=rng, on_reconnect=heard.reconnects.put) as listener:
        assert listener.wait_ready(10)
        yield listener


def publish(client: redis.Redis, message: Delivery | str) -> int:
    return int(client.publish(front_channel(FRONT), message if isinstance(message, str) else message.wire()))


def test_each_session_hears_its_own_and_only_while_registered(
    listener: FrontListener, heard: Heard, redis_client: redis.Redis
) -> None:
    other: queue.Queue[Delivery] = queue.Queue()
    listener.register("a", heard.box.put)
    listener.register("b", other.put)
    publish(redis_client, delivery("stranger"))
    publish(redis_client, delivery("a", 1))
    publish(redis_client, delivery("b", 2))
    assert heard.next() == delivery("a", 1)
    assert other.get(timeout=10) == delivery("b", 2)
    listener.unregister("a")
    listener.unregister("a")
    publish(redis_client, delivery("a", 3))
    publish(redis_client, delivery("b", 4))
    assert other.get(timeout=10).segment == 4, "b's message is behind a's on the same channel"
    assert heard.box.empty()


def test_a_malformed_message_and_a_faulty_callback_harm_nobody(
    listener: FrontListener, heard: Heard, redis_client: redis.Redis
) -> None:
    def faulty(_: Delivery) -> None:
        raise RuntimeError("a fault of one session")

    listener.register("bad", faulty)
    listener.register("a", heard.box.put)
    publish(redis_client, "no delivery at all")
    publish(redis_client, '- {"kind":"final"}')
    publish(redis_client, delivery("bad"))
    publish(redis_client, delivery("a"))
    assert heard.next() == delivery("a")
    assert listener.connected


def test_a_killed_connection_is_replaced_and_the_sessions_are_named(
    listener: FrontListener, heard: Heard, redis_client: redis.Redis
) -> None:
    listener.register("a", heard.box.put)
    listener.register("b", heard.box.put)
    for round_number in (1, 2):
        assert redis_client.client_kill_filter(_type="pubsub") == 1
        assert sorted(heard.reconnects.get(timeout=10)) == ["a", "b"]
        assert publish(redis_client, delivery("a", round_number)) == 1, "one subscriber, no double delivery"
        assert heard.next().segment == round_number
    assert heard.box.empty()


def test_nothing_published_after_the_reconnect_notice_is_missed(
    listener: FrontListener, heard: Heard, redis_client: redis.Redis
) -> None:
    """The notice comes when the subscription stands: what it cannot have heard is in the durable events by then."""
    listener.register("a", heard.box.put)
    redis_client.client_kill_filter(_type="pubsub")
    heard.reconnects.get(timeout=10)
    for number in range(50):
        assert publish(redis_client, delivery("a", number)) == 1
    assert [heard.next().segment for _ in range(50)] == list(range(50))


def test_it_comes_back_after_a_restart_of_redis(rng: random.Random, heard: Heard) -> None:
    with RedisServer() as server:
        client = connect(server.url)
        with FrontListener(client, FRONT, rng=rng, on_reconnect=heard.reconnects.put) as listener:
            assert listener.wait_ready(10)
            listener.register("a", heard.box.put)
            server.kill()
            eventually(lambda: not listener.connected, what="the loss is noticed")
            server.start()
            assert heard.reconnects.get(timeout=20) == ("a",)
            assert listener.connected
            publish(client, delivery("a", 7))
            assert heard.next().segment == 7
        client.close()


def test_it_waits_for_a_redis_that_comes_later(rng: random.Random) -> None:
    server = RedisServer()
    client = connect(server.url)
    with FrontListener(client, FRONT, rng=rng) as listener:
        assert not listener.connected
        with server:
            assert listener.wait_ready(20)
            listener.close()
            eventually(lambda: client.pubsub_numsub(front_channel(FRONT))[0][1] == 0, what="it has unsubscribed")
    client.close()


def test_closing_is_prompt_repeatable_and_gives_the_connection_back(
    redis_url: str, rng: random.Random, redis_client: redis.Redis
) -> None:
    client = connect(redis_url, max_connections=1)
    listener = FrontListener(client, FRONT, rng=rng).start()
    assert listener.wait_ready(10)
    listener.close()
    listener.close()
    assert not listener.connected
    assert client.ping(), "the pool's only connection is free again"
    client.close()
