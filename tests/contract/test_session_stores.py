"""What sessions keep in Redis, on a real server and on fakeredis: the same answers, step by step.

So a fakeredis may stand in for these two stores (and only for them: the queue's index needs Lua's ``struct``
library, which fakeredis lacks).
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import fakeredis
import pytest
import redis

from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer
from sessions.errors import AudioLost


@pytest.fixture(params=["real", "fake"])
def store(request: pytest.FixtureRequest) -> Iterator[redis.Redis]:
    """An empty Redis: a server, or fakeredis."""
    if request.param == "real":
        yield request.getfixturevalue("redis_client")
        return
    fake = fakeredis.FakeRedis(version=(6, 2))
    yield fake
    fake.close()


def test_the_buffer_holds_what_was_appended_once(store: redis.Redis, rng: random.Random) -> None:
    audio = AudioBuffer(store, ttl_s=60, max_bytes=10_000)
    audio.create("s", {"language": "en"})
    sent = b""
    while len(sent) < 5_000:
        piece = rng.randbytes(rng.randrange(1, 500))
        for _ in range(rng.randrange(1, 4)):  # a lost reply has the same append sent again
            assert audio.append("s", len(sent), piece) == len(sent) + len(piece)
        sent += piece
    start, end = sorted(rng.sample(range(len(sent)), 2))
    assert audio.read("s", start, end) == sent[start:end]
    for _ in range(2):
        assert audio.trim("s", start) == len(sent) - start
    assert audio.read("s", start, end) == sent[start:end]
    assert audio.append("s", len(sent) + 100, b"after a silence", follows=len(sent), keep_from=start) > len(sent)
    assert audio.read("s", len(sent) - 1, len(sent) + 105) == sent[-1:] + bytes(100) + b"after"
    audio.delete("s")
    assert not store.keys("*")


def test_the_buffer_says_what_it_lost_and_what_it_cannot_hold(store: redis.Redis) -> None:
    audio = AudioBuffer(store, ttl_s=60, max_bytes=100)
    audio.append("s", 0, b"x" * 40)
    with pytest.raises(AudioLost):
        audio.append("s", 50, b"y")
    with pytest.raises(AudioLost):
        audio.read("s", 0, 41)
    with pytest.raises(ValueError, match="at most 100"):
        audio.append("s", 40, b"z" * 61)
    assert audio.read("s", 0, 40) == b"x" * 40
    audio.delete("s")


def test_slots_are_capped_renewed_given_back_and_expire(store: redis.Redis) -> None:
    slots = StreamSlots(store, "main", cap=2, ttl_s=10)
    assert slots.acquire("a", now_ms=1_000)
    assert slots.acquire("b", now_ms=1_000)
    assert not slots.acquire("c", now_ms=1_000)
    assert slots.acquire("a", now_ms=2_000)
    assert slots.refresh(["b"], now_ms=6_000) == 2
    assert slots.count(now_ms=12_500) == 1
    assert slots.acquire("c", now_ms=12_500)
    slots.release("b")
    slots.release("b")
    assert slots.count(now_ms=12_500) == 1
    slots.release("c")
