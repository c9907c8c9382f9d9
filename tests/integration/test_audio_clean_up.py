"""Who removes a session from Redis, and who resumes it at that moment: one of the two has it whole."""

from __future__ import annotations

from typing import cast

import pytest
import redis
from prometheus_client import CollectorRegistry

from api.cleaner import Cleaner
from api.metrics import StreamMetrics
from queueing.clock import SystemClock
from queueing.job_queue import JobQueue
from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer
from sessions.keys import SessionKeys
from sessions.parking import Parking
from tests.support.live_api import leftovers
from tests.support.queue_jobs import final

FIRST = {"token": "t0", "label": "", "epoch": "1", "front": "w1"}


class Racing:
    """The parked sessions, and a client that comes back just after a front end was told to reap its session."""

    def __init__(self, parking: Parking, buffer: AudioBuffer, returns: bool) -> None:
        self._parking, self._buffer, self._returns = parking, buffer, returns

    def due(self, most: int) -> list[str]:
        found = self._parking.due(most)
        for session in found if self._returns else []:
            assert self._parking.unpark(session) is not None
            self._buffer.take_up(session, "t0", "t1", label="", front="w2")
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._parking, name)


class Desk:
    """A session ``s`` with audio, a job and a slot, and a cleaner."""

    def __init__(self, client: redis.Redis, *, returns: bool = False) -> None:
        self.queue = JobQueue(client)
        self.buffer = AudioBuffer(client)
        self.slots = StreamSlots(client, "main", cap=9)
        self.parking = Parking(client, "main", grace_s=0.0)
        self.metrics = StreamMetrics(CollectorRegistry())
        self.cleaner = Cleaner(
            self.queue,
            self.buffer,
            self.slots,
            cast("Parking", Racing(self.parking, self.buffer, returns)),
            self.metrics,
            lambda: "",
            SystemClock(),
        )
        self.buffer.create("s", FIRST, epoch=1)
        self.buffer.append("s", 0, bytes(100), epoch=1)
        self.slots.acquire("s")
        self.queue.enqueue(final("s", 0))


def test_who_did_not_come_back_is_reaped_with_everything(redis_client: redis.Redis) -> None:
    desk = Desk(redis_client)
    desk.cleaner.park("s", 1, {}, keep_slot=True)
    desk.cleaner.catch_up()
    assert not leftovers(redis_client)
    assert not redis_client.exists("hl:{q:main}:parked")


def test_who_comes_back_at_the_last_moment_is_not_reaped(redis_client: redis.Redis) -> None:
    desk = Desk(redis_client, returns=True)
    desk.cleaner.park("s", 1, {}, keep_slot=True)
    desk.cleaner.catch_up()
    assert desk.buffer.epoch("s") == 2
    assert desk.buffer.read("s", 0, 100) == bytes(100)
    assert redis_client.exists(desk.queue.keys.job("s:f:0"))


def test_an_older_connection_neither_ends_nor_parks_a_session(redis_client: redis.Redis) -> None:
    desk = Desk(redis_client)
    desk.buffer.take_up("s", "t0", "t1", label="", front="w2")
    before = {key: redis_client.dump(key) for key in redis_client.scan_iter()}
    desk.cleaner.end_session("s", 1)
    desk.cleaner.park("s", 1, {"over": "[]"}, keep_slot=False)
    assert {key: redis_client.dump(key) for key in redis_client.scan_iter()} == before


@pytest.mark.parametrize("step", ["cancel", "park", "end"])
def test_nothing_is_left_of_a_session_that_redis_forgot(redis_client: redis.Redis, step: str) -> None:
    desk = Desk(redis_client)
    redis_client.flushdb()
    if step == "cancel":
        desk.cleaner.cancel_jobs("s", 1, {"over": "[]"})
    elif step == "park":
        desk.cleaner.park("s", 1, {"over": "[]"}, keep_slot=True)
    else:
        desk.cleaner.end_session("s", 1)
    assert not leftovers(redis_client)
    assert not redis_client.exists("hl:{q:main}:parked")


@pytest.mark.parametrize("step", ["end", "park"])
def test_what_an_older_connection_wrote_after_the_end_goes_with_it(redis_client: redis.Redis, step: str) -> None:
    """It stood still meanwhile. Nothing in Redis says any more that it is an older one."""
    desk = Desk(redis_client)
    desk.buffer.take_up("s", "t0", "t1", label="", front="w2")
    desk.cleaner.end_session("s", 2)
    assert not leftovers(redis_client)
    desk.slots.refresh(["s"])
    desk.buffer.append("s", 100, bytes(100), keep_from=100, epoch=1, fields={"final:0": "[]"})
    desk.queue.enqueue(final("s", 0))
    assert redis_client.exists(SessionKeys("s").meta)
    if step == "end":
        desk.cleaner.end_session("s", 1)
    else:
        desk.cleaner.park("s", 1, {"over": "[]"}, keep_slot=True)
    assert not leftovers(redis_client)
    assert not redis_client.exists("hl:{q:main}:parked")
