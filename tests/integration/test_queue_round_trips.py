"""What the verbs cost: round trips, and commands inside Redis that do not grow with the queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import redis
from redis.connection import Connection

from queueing.batches import Batch, Batches
from queueing.connect import connect
from queueing.errors import QueueUnavailable
from queueing.job import CompleteStatus, EnqueueStatus, LeasedJob
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import Kind, all_lanes
from queueing.records import Completion
from tests.support.queue_ears import key_names
from tests.support.queue_jobs import START_MS, claim_one, final, in_lane, nonce, partial


@dataclass
class Trips:
    """Writes to the socket: each is one round trip."""

    count: int = 0

    def of(self, call: Callable[[], object]) -> int:
        before = self.count
        call()
        return self.count - before


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Trips:
    seen = Trips()
    send: Callable[..., object] = Connection.send_packed_command

    def counting(self: Connection, *args: object, **kwargs: object) -> object:
        seen.count += 1
        return send(self, *args, **kwargs)

    monkeypatch.setattr(Connection, "send_packed_command", counting)
    return seen


def test_enqueue_claim_and_complete_take_one_round_trip_each(redis_client: redis.Redis, trips: Trips) -> None:
    queue = JobQueue(redis_client)
    queue.enqueue(final("warm-up"))
    queue.complete(claim_one(queue), {}, decode_ms=1)
    assert trips.of(lambda: queue.enqueue(partial("s", 1))) == 1
    assert trips.of(lambda: queue.enqueue(partial("s", 2, 9.0))) == 1
    assert trips.of(lambda: queue.enqueue(final("s"))) == 1
    held: list[LeasedJob] = []
    assert trips.of(lambda: held.extend(queue.claim("w", nonce(), max_jobs=8))) == 1
    assert trips.of(lambda: queue.complete(held[0], {"text": "a"}, decode_ms=1)) == 1
    assert trips.of(lambda: queue.claim("w", nonce())) == 1
    for number in range(8):
        queue.enqueue(partial(f"b{number}", 1))
    wide = Batches({lane: Batch(8, 3) for lane in all_lanes() if lane.kind is Kind.PARTIAL})
    batch: list[LeasedJob] = []
    assert trips.of(lambda: batch.extend(queue.claim("w", nonce(), max_jobs=8, batches=wide))) == 1
    done = [Completion.of(lease, {"text": "a"}, decode_ms=1) for lease in batch]
    assert len(done) == 8
    assert trips.of(lambda: queue.complete_all(done)) == 1


def test_a_forgotten_script_costs_one_round_trip_more_and_no_job(redis_client: redis.Redis, trips: Trips) -> None:
    queue = JobQueue(redis_client)
    queue.enqueue(final("s0"))
    redis_client.script_flush()
    assert trips.of(lambda: queue.enqueue(final("s1"))) == 2
    assert trips.of(lambda: queue.enqueue(final("s2"))) == 1
    redis_client.script_flush()
    leases = queue.claim("w", nonce(), max_jobs=3)
    redis_client.script_flush()
    assert [queue.complete(lease, {}, decode_ms=1) for lease in leases] == [CompleteStatus.DONE] * 3
    redis_client.script_flush()
    assert queue.sweep().waiting == 0
    redis_client.script_flush()
    assert queue.set_policy("hrrn").rescored == 0
    assert queue.enqueue(final("s0")).status is EnqueueStatus.DUPLICATE


def commands_of(client: redis.Redis, call: Callable[[], object]) -> dict[str, int]:
    client.config_resetstat()
    call()
    stats = client.info("commandstats")
    return {name: int(stats[name]["calls"]) for name in stats if name not in ("cmdstat_info", "cmdstat_config")}


@pytest.mark.parametrize("policy", ["fcfs", "hrrn", "sjf"])
def test_a_claim_does_not_do_more_when_more_jobs_wait(redis_client: redis.Redis, policy: str) -> None:
    queue = JobQueue(redis_client, policy=policy, limits=QueueLimits(max_queued=100_000))

    def fill(total: int) -> None:
        for number in range(queue.stats().waiting, total):
            queue.enqueue(in_lane(f"j{number}", all_lanes()[number % len(all_lanes())]), now_ms=START_MS + number)

    fill(2 * len(all_lanes()))
    claim_one(queue)
    few = commands_of(redis_client, lambda: claim_one(queue, now_ms=START_MS))
    fill(1_000)
    many = commands_of(redis_client, lambda: claim_one(queue, now_ms=START_MS))
    assert few == many
    assert sum(many.values()) <= 12, f"a claim grew: {many}"


def test_every_key_lies_in_the_queues_own_slot(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, "blue")
    queue.heartbeat("w", {})
    for segment in range(3):
        queue.enqueue(final("s", segment))
    queue.enqueue(partial("s", 1, segment=3))
    queue.complete(claim_one(queue), {}, decode_ms=1)
    queue.fail(claim_one(queue), "decode_failed", "x", retry=False)
    claim_one(queue)
    names = key_names(redis_client)
    assert len(names) > 12
    assert all(name.startswith("hl:{q:blue}:") for name in names)


def test_queues_of_different_names_share_nothing(redis_client: redis.Redis) -> None:
    blue, green = JobQueue(redis_client, "blue"), JobQueue(redis_client, "green", policy="edf")
    blue.enqueue(final("s"))
    assert green.claim("w", nonce()) == ()
    assert green.enqueue(final("s")).status is EnqueueStatus.QUEUED
    assert (blue.policy().name, green.policy().name) == ("priority", "edf")


def test_a_redis_that_is_away_is_one_kind_of_error(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)
    queue.enqueue(final("s"))
    lease = claim_one(queue)
    client = connect("redis://127.0.0.1:1/0")
    away = JobQueue(client)
    calls: list[Callable[[], object]] = [
        lambda: away.enqueue(final("s")),
        lambda: away.claim("w", nonce()),
        lambda: away.renew([lease]),
        lambda: away.complete(lease, {}, decode_ms=1),
        lambda: away.complete_all([Completion.of(lease, {}, decode_ms=1)] * 2),
        lambda: away.fail(lease, "decode_failed", "x"),
        lambda: away.release([lease]),
        lambda: away.cancel_partial("s"),
        lambda: away.cancel_session("s"),
        away.sweep,
        lambda: away.events("s"),
        lambda: away.job_state("s:f:0"),
        lambda: away.heartbeat("w", {}),
        lambda: away.forget_worker("w"),
        away.workers,
        away.policy,
        lambda: away.set_policy("fcfs"),
        away.refresh_policy,
        away.stats,
        away.jobs,
        lambda: away.retry_dead("s:f:0"),
    ]
    for call in calls:
        with pytest.raises(QueueUnavailable):
            call()
    client.close()


def test_a_redis_that_is_full_is_unavailable_not_broken(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)
    queue.enqueue(final("s"))
    redis_client.config_set("maxmemory", "1")
    try:
        with pytest.raises(QueueUnavailable, match="at its memory limit"):
            queue.enqueue(final("t"))
    finally:
        redis_client.config_set("maxmemory", "0")
    assert queue.enqueue(final("t")).status is EnqueueStatus.QUEUED
