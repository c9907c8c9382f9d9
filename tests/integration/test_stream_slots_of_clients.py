"""What a client's streams count as while their connections come and go, in a real Redis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest
import redis

from api.keys import Limits, Principal
from api.limiter import ClientLimits, Limiter
from api.renewal import Renewal
from queueing.clock import SystemClock
from queueing.keys import QueueKeys
from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer
from sessions.owners import StreamOwners

KIOSK = Principal("kiosk", Limits(max_streams=1))


@pytest.fixture
def fronts(redis_client: redis.Redis) -> tuple[Limiter, Limiter]:
    """Those of two web processes."""
    one, two = (Limiter(StreamOwners(redis_client, "main"), SystemClock(), ClientLimits()) for _ in range(2))
    return one, two


def counted(client: redis.Redis) -> list[bytes]:
    found: Any = client.zrange(QueueKeys("main").streams_of("key:kiosk"), 0, -1)
    return list(found)


@pytest.mark.parametrize("other", [0, 1])
def test_a_stream_that_goes_on_is_counted_once_as_itself(
    fronts: tuple[Limiter, Limiter], redis_client: redis.Redis, other: int
) -> None:
    older, newer = fronts[0], fronts[other]
    assert older.take("s", KIOSK) is None
    assert newer.take("c", KIOSK) is not None
    assert newer.take("c", KIOSK, back=True) is None
    assert newer.take("d", KIOSK, back=True) is not None, "nor as many as it likes"
    newer.go_on("c", "s")
    assert counted(redis_client) == [b"s"]
    older.give_back("s", keep=True)  # is told that it was taken over
    for front in fronts:
        front.keep()
        assert front.take("e", KIOSK) is not None
    assert counted(redis_client) == [b"s"]
    newer.give_back("c")
    assert counted(redis_client) == []
    assert older.take("e", KIOSK) is None


def test_a_stream_that_waits_for_its_client_keeps_its_place(
    fronts: tuple[Limiter, Limiter], redis_client: redis.Redis
) -> None:
    one, two = fronts
    assert one.take("s", KIOSK) is None
    one.give_back("s", keep=True)
    assert two.take("e", KIOSK) is not None
    assert two.take("c", KIOSK, back=True) is None
    two.go_on("c", "s")
    two.give_back("c")
    assert counted(redis_client) == []


def test_who_comes_back_and_resumes_nothing_leaves_no_count(
    fronts: tuple[Limiter, Limiter], redis_client: redis.Redis
) -> None:
    one, _ = fronts
    assert one.take("s", KIOSK) is None
    assert one.take("c", KIOSK, back=True) is None
    one.give_back("c")
    assert counted(redis_client) == [b"s"]
    one.give_back("s")
    assert counted(redis_client) == []


class Interrupted(StreamOwners):
    """``meanwhile`` happens between the look at what counts and its renewal in Redis."""

    def __init__(self, client: redis.Redis, meanwhile: Callable[[], None]) -> None:
        super().__init__(client, "main")
        self._meanwhile = meanwhile

    def keep(self, streams: Mapping[str, Collection[str]], *, now_ms: int = 0) -> dict[str, int]:
        self._meanwhile()
        return super().keep(streams, now_ms=now_ms)


@pytest.mark.parametrize("waits", [False, True])
def test_a_stream_that_ends_while_it_is_renewed_is_not_counted_any_more(redis_client: redis.Redis, waits: bool) -> None:
    owners = Interrupted(redis_client, lambda: limiter.give_back("s", keep=waits))
    limiter = Limiter(owners, SystemClock(), ClientLimits())
    assert limiter.take("s", KIOSK) is None
    limiter.keep()
    assert counted(redis_client) == ([b"s"] if waits else [])


def test_a_stream_that_goes_on_while_its_connection_is_renewed_is_counted_once(redis_client: redis.Redis) -> None:
    owners = Interrupted(redis_client, lambda: limiter.go_on("c", "s"))
    limiter = Limiter(owners, SystemClock(), ClientLimits())
    assert limiter.take("c", KIOSK) is None
    limiter.keep()
    assert counted(redis_client) == [b"s"]


@pytest.mark.parametrize("known", [False, True], ids=["ended", "waits for its client"])
def test_a_slot_that_is_renewed_while_its_stream_ends_is_free(redis_client: redis.Redis, known: bool) -> None:
    slots, buffer = StreamSlots(redis_client, "main", cap=5), AudioBuffer(redis_client)
    limiter = Limiter(StreamOwners(redis_client, "main"), SystemClock(), ClientLimits())
    for session in ("lives", "ends"):
        assert slots.acquire(session)
    if known:
        buffer.create("ends", {"token": "t", "epoch": "1"}, epoch=1)
    else:
        slots.release("ends")
    Renewal(slots, limiter, buffer, lambda: ["lives"])(["lives", "ends"])
    assert slots.count() == 1 + known
    slots.release("lives")
    assert slots.count() == known
