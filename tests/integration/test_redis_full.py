"""A Redis at its memory limit, and one that cannot write its file: nothing new, but what runs is finished."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.clock import ManualClock
from queueing.connect import connect
from queueing.errors import QueueUnavailable, RedisFull
from queueing.job import CompleteStatus, EnqueueStatus
from queueing.job_queue import JobQueue
from queueing.memory import memory_share
from queueing.rescue import Rescuer
from sessions.admission import Slot, StreamSlots
from sessions.audio_buffer import AudioBuffer
from sessions.owners import OverLimit, Owner, StreamOwners
from sessions.parking import Parking
from tests.support.eventually import eventually
from tests.support.queue_jobs import claim_one, final, nonce, partial


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    client = connect(server.url)
    client.flushall()
    yield client
    client.config_set("maxmemory", 0)
    client.flushall()
    client.close()


def fill(client: redis.Redis) -> None:
    """From now on Redis has no memory left, whatever is freed."""
    client.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        client.set("anything", "x")


def test_nothing_new_is_stored_and_nothing_half_stored(client: redis.Redis) -> None:
    queue, buffer = JobQueue(client), AudioBuffer(client)
    buffer.append("s", 0, bytes(100))
    queue.enqueue(final("s", 0))
    before = {key: client.dump(key) for key in client.scan_iter()}
    fill(client)
    for refused in (
        lambda: queue.enqueue(final("s", 1)),
        lambda: queue.enqueue(partial("new")),
        lambda: buffer.append("s", 100, bytes(100)),
        lambda: buffer.create("new", {"front": "f"}),
    ):
        with pytest.raises(RedisFull, match=r"memory limit: (OOM )?command not allowed .* 'maxmemory'\.$"):
            refused()
    assert {key: client.dump(key) for key in client.scan_iter()} == before


def finish(queue: JobQueue) -> None:
    lease = claim_one(queue)
    assert queue.complete(lease, {"text": "said"}, decode_ms=5.0) is CompleteStatus.DONE
    assert [delivery.result for delivery in queue.events("s")] == [{"text": "said"}]


def fail_once_and_for_all(queue: JobQueue) -> None:
    assert queue.fail(claim_one(queue), "decode_failed", "it failed") is CompleteStatus.REQUEUED
    assert queue.fail(claim_one(queue), "decode_failed", "it failed", retry=False) is CompleteStatus.DEAD
    assert [delivery.outcome for delivery in queue.events("s")] == ["dead"]


def hold_and_give_back(queue: JobQueue) -> None:
    lease = claim_one(queue)
    assert queue.renew([lease]).lost == ()
    assert queue.release([lease]) == 1
    assert claim_one(queue).attempt == 1


def leave(queue: JobQueue) -> None:
    assert queue.cancel_session("s") == 1
    assert queue.stats().waiting == 0


def leave_while_it_is_decoded(queue: JobQueue) -> None:
    lease = claim_one(queue)
    assert queue.cancel_session("s") == 1
    assert queue.complete(lease, {"text": "late"}, decode_ms=5.0) is CompleteStatus.CANCELLED


def rescue(queue: JobQueue) -> None:
    claim_one(queue)
    seconds, _ = queue._client.time()
    report = queue.sweep(now_ms=1_000 * seconds + queue.limits.lease_ms + 1_000)
    assert (report.requeued, report.waiting, report.leased) == (1, 1, 0)


def look_around(queue: JobQueue) -> None:
    report = queue.sweep()
    assert (report.waiting, report.leased) == (1, 0)


def live(queue: JobQueue) -> None:
    queue.heartbeat("new", {"state": "ready"})
    queue.heartbeat("new", {"state": "busy"})
    assert [(worker.id, worker.state) for worker in queue.workers()] == [("new", "busy")]


@pytest.mark.parametrize(
    "step",
    [finish, fail_once_and_for_all, hold_and_give_back, leave, leave_while_it_is_decoded, rescue, look_around, live],
)
def test_what_waits_is_finished_all_the_same(client: redis.Redis, step: Callable[[JobQueue], None]) -> None:
    queue = JobQueue(client)
    queue.enqueue(final("s", 0))
    fill(client)
    step(queue)


def test_partials_are_claimed_cancelled_and_completed(client: redis.Redis) -> None:
    queue = JobQueue(client)
    for name in ("a", "b", "c"):
        queue.enqueue(partial(name))
    fill(client)
    assert queue.cancel_partial("a")
    leases = queue.claim("w", nonce(), max_jobs=2)
    assert queue.cancel_partial(leases[0].job.session)
    answers = [queue.complete(lease, {"text": "x"}, decode_ms=1.0) for lease in leases]
    assert answers == [CompleteStatus.CANCELLED, CompleteStatus.DONE]
    assert queue.stats().open_partials == 0


def test_streams_are_kept_trimmed_and_ended(client: redis.Redis) -> None:
    buffer, slots = AudioBuffer(client), StreamSlots(client, "main", cap=2)
    assert slots.acquire("s")
    buffer.append("s", 0, bytes(range(100)))
    fill(client)
    assert slots.refresh(["s", "forgotten"]) == 2
    assert buffer.trim("s", 60) == 40
    assert buffer.read("s", 60, 100) == bytes(range(60, 100))
    buffer.delete("s")
    slots.release("s")
    assert slots.count() == 1


def test_streams_are_parked_resumed_and_reaped(client: redis.Redis) -> None:
    queue, buffer, slots = JobQueue(client), AudioBuffer(client), StreamSlots(client, "main", cap=2)
    parking = Parking(client, "main", grace_s=30.0)
    buffer.create("s", {"token": "t0", "label": "", "epoch": "1", "front": "w1"}, epoch=1)
    buffer.append("s", 0, bytes(100), epoch=1)
    queue.enqueue(final("s", 0))
    fill(client)
    parking.park("s", keep_slot=True)
    assert parking.unpark("s") is not None
    assert buffer.take_up("s", "t0", "t1", label="", front="w2").held == 100
    assert slots.ask("s", resumed=True) is Slot.TAKEN
    assert queue.adopt("s", "w2") == 1
    parking.park("s", keep_slot=False)
    assert parking.waits("s")
    parking.forget("s")
    assert not parking.waits("s")


def test_who_comes_back_is_counted_and_nobody_new(client: redis.Redis) -> None:
    owners, address = StreamOwners(client, "main"), Owner("address:203.0.113.7", max_streams=1, max_tries=3)
    twice = replace(address, max_streams=2)
    assert owners.add("s", [address]) is None
    fill(client)
    with pytest.raises(RedisFull):
        owners.add("new", [address])
    assert owners.add("c", [twice], back=True) is None
    owners.add("s", [Owner(address.name)])
    owners.remove("c", [address.name])
    assert owners.add("d", [twice], back=True) is None
    assert owners.add("e", [twice], back=True) == OverLimit(twice, too_fast=True), "as often as it may, no more"


def test_a_rescuer_goes_on_when_there_is_room_again(client: redis.Redis, rng: random.Random) -> None:
    queue, clock = JobQueue(client), ManualClock()
    queue.enqueue(final("s", 0))
    rescuer = Rescuer(queue, clock, rng)
    fill(client)
    clock.advance(60)
    rescuer.tick()
    client.config_set("maxmemory", 0)
    assert queue.enqueue(final("s", 1)).status is EnqueueStatus.QUEUED


def test_the_share_of_memory_is_that_of_the_lower_limit(client: redis.Redis) -> None:
    assert memory_share(client) is None
    used = int(client.info("memory")["used_memory"])
    assert memory_share(client, 2 * used) == pytest.approx(0.5, rel=0.2)
    client.config_set("maxmemory", 4 * used)
    assert memory_share(client) == pytest.approx(0.25, rel=0.2)
    assert memory_share(client, 2 * used) == pytest.approx(0.5, rel=0.2)


def test_a_redis_that_cannot_write_its_file_is_unavailable_and_comes_back(client: redis.Redis, tmp_path: Path) -> None:
    """As with a full disk: it refuses every write until a snapshot succeeds."""
    folder = str(client.config_get("dir")["dir"])
    queue, doomed = JobQueue(client), tmp_path / "doomed"
    doomed.mkdir()
    queue.enqueue(final("s", 0))
    try:
        client.config_set("dir", str(doomed))
    except redis.ResponseError:
        pytest.skip("this Redis does not let its folder be changed")
    client.config_set("save", "3600 1000000")
    try:
        doomed.rmdir()
        client.bgsave()
        eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", what="a failed snapshot")
        for step in (lambda: queue.enqueue(final("s", 1)), lambda: queue.claim("w", nonce()), queue.sweep):
            with pytest.raises(QueueUnavailable, match="MISCONF") as refused:
                step()
            assert not isinstance(refused.value, RedisFull)
        client.config_set("dir", folder)
        client.bgsave()
        eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "ok", what="a good snapshot")
        finish(queue)
    finally:
        client.config_set("dir", folder)
        client.config_set("save", "")
