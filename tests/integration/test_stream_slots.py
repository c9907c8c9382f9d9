"""The global cap on streams in a real Redis."""

from __future__ import annotations

import threading

import pytest
import redis

from queueing.keys import QueueKeys
from sessions.admission import StreamSlots
from sessions.parking import Parking

T0 = 1_700_000_000_000


@pytest.fixture
def slots(redis_client: redis.Redis) -> StreamSlots:
    return StreamSlots(redis_client, "main", cap=2, ttl_s=30)


def test_the_cap_holds_and_a_released_slot_is_free(slots: StreamSlots) -> None:
    assert [slots.acquire(name) for name in ("a", "b", "c")] == [True, True, False]
    assert slots.count() == 2
    slots.release("a")
    slots.release("a")
    assert slots.acquire("c")
    assert not slots.acquire("d")


def test_asking_again_is_not_a_second_slot(slots: StreamSlots) -> None:
    assert slots.acquire("a")
    assert slots.acquire("a")
    assert slots.count() == 1
    assert slots.acquire("b")
    assert slots.acquire("a"), "who holds a slot keeps it when all are taken"


def test_slots_of_a_crashed_front_end_expire(slots: StreamSlots) -> None:
    assert slots.acquire("a", now_ms=T0)
    assert slots.acquire("b", now_ms=T0)
    slots.refresh(["b"], now_ms=T0 + 20_000)
    assert not slots.acquire("c", now_ms=T0 + 29_999)
    assert slots.acquire("c", now_ms=T0 + 30_000), "admission looks itself who is gone"
    assert not slots.acquire("d", now_ms=T0 + 30_000)
    assert slots.count(now_ms=T0 + 49_999) == 2
    assert slots.count(now_ms=T0 + 50_000) == 1


def test_a_redis_that_forgot_learns_of_the_live_streams_again(slots: StreamSlots, redis_client: redis.Redis) -> None:
    assert slots.acquire("a")
    redis_client.flushall()
    assert slots.refresh(["a", "b"]) == 2
    assert not slots.acquire("c")


def test_a_refresh_of_nothing_counts_only(slots: StreamSlots) -> None:
    assert slots.refresh([]) == 0
    assert slots.acquire("a")
    assert slots.refresh(()) == 1


def test_queues_do_not_share_slots(redis_client: redis.Redis) -> None:
    one, two = (StreamSlots(redis_client, name, cap=1) for name in ("one", "two"))
    assert one.acquire("a")
    assert two.acquire("a")
    assert redis_client.zcard(QueueKeys("one").streams) == 1


def test_front_ends_that_ask_at_once_share_exactly_the_cap(redis_client: redis.Redis) -> None:
    slots = StreamSlots(redis_client, "main", cap=5)
    answers: list[bool] = []
    start = threading.Barrier(8)

    def ask(number: int) -> None:
        start.wait()
        answers.extend(slots.acquire(f"{number}-{i}") for i in range(10))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 80
    assert sum(answers) == 5
    assert slots.count() == 5


@pytest.mark.parametrize("first", ["due", "acquire", "refresh"])
def test_a_clock_of_redis_that_jumps_does_not_have_live_streams_reaped(
    slots: StreamSlots, redis_client: redis.Redis, first: str
) -> None:
    """Whoever sees a slot that has expired gives its session the grace from now on: time for its front end to say
    that it lives."""
    parking = Parking(redis_client, "main", grace_s=10)
    slots.acquire("a", now_ms=T0)
    jumped = T0 + 600_000
    if first == "acquire":
        slots.acquire("b", now_ms=jumped)
    elif first == "refresh":
        slots.refresh((), now_ms=jumped)
    assert parking.due(10, now_ms=jumped) == []
    slots.refresh(("a",), now_ms=jumped + 2_000)
    assert parking.due(10, now_ms=jumped + 20_000) == []
    assert parking.due(10, now_ms=jumped + 100_000) == [], "expired again, seen now"
    assert "a" in parking.due(10, now_ms=jumped + 120_000), "a front end that is dead says nothing"


def test_who_comes_back_when_its_slot_has_just_expired_is_not_reaped(
    slots: StreamSlots, redis_client: redis.Redis
) -> None:
    parking = Parking(redis_client, "main", grace_s=30)
    slots.acquire("s", now_ms=T0)
    slots.ask("s", resumed=True, now_ms=T0 + 30_001)
    assert not parking.waits("s")
    assert parking.due(10, now_ms=T0 + 60_000) == []
