"""Audio that ends every worker which decodes it: it alone is given up, whoever was in a batch with it."""

from __future__ import annotations

from itertools import count

import pytest
import redis

from queueing.batches import Batch, Batches
from queueing.job import CompleteStatus, LeasedJob
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import Kind, Lane
from queueing.records import Completion
from tests.support.queue_jobs import START_MS, final, nonce, partial

LANE = Lane(Kind.FINAL, 5)
WIDE = Batches({LANE: Batch(8)})


def claim(queue: JobQueue, now_ms: int, most: int = 4) -> tuple[LeasedJob, ...]:
    return queue.claim("w", nonce(), max_jobs=most, batches=WIDE, now_ms=now_ms)


@pytest.mark.parametrize("attempts", [2, 3])
@pytest.mark.parametrize("poison", [{0}, {3}, {5}, {0, 1}, {0, 4, 5, 11}, set(range(12))])
def test_only_the_poison_dies(redis_client: redis.Redis, poison: set[int], attempts: int) -> None:
    queue = JobQueue(redis_client, limits=QueueLimits(lease_ms=1_000, max_attempts=attempts))
    for number in range(12):
        queue.enqueue(final(f"s{number}"), now_ms=START_MS + number)
    bad = {f"s{number}:f:0" for number in poison}
    for round_ in count():
        now = START_MS + 2_000 * (round_ + 1)
        batch = claim(queue, now)
        if not batch:
            break
        if bad & {lease.job.id for lease in batch}:
            queue.sweep(now_ms=now + 1_500)  # the worker is gone, nothing was reported
        else:
            assert set(queue.complete_all([Completion.of(lease, {}, decode_ms=1.0) for lease in batch])) == {"done"}
        assert round_ < 12 * attempts + 12
    assert {record.job.id for record in queue.jobs("dead")} == bad
    assert queue.stats().counts.get("final:done", 0) == 12 - len(bad)
    assert queue.stats().waiting == 0


def test_what_was_tried_before_is_taken_alone_in_its_turn(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, limits=QueueLimits(lease_ms=1_000))
    for number in range(6):
        queue.enqueue(final(f"s{number}"), now_ms=START_MS + number)
    failed, kept = queue.claim("w", nonce(), max_jobs=2, batches=WIDE, now_ms=START_MS + 10)
    assert queue.fail(failed, "decode_failed", "out of memory") is CompleteStatus.REQUEUED
    assert queue.release([kept]) == 1, "given back untried"
    taken = [[lease.job.session for lease in claim(queue, START_MS + 20)] for _ in range(4)]
    assert taken == [["s0"], ["s1", "s2", "s3", "s4"], ["s5"], []]


def test_company_passes_over_what_was_tried_before_and_leaves_it_in_its_place(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, limits=QueueLimits(lease_ms=1_000))
    for number in range(5):
        queue.enqueue(final(f"s{number}"), now_ms=START_MS + number)
    leases = queue.claim("w", nonce(), max_jobs=3, batches=WIDE, now_ms=START_MS + 10)
    queue.fail(leases[1], "decode_failed", "once")
    queue.release([leases[0], leases[2]])
    before = {lane.lane: lane.depth for lane in queue.stats().lanes}
    assert before[LANE] == 5
    batch = claim(queue, START_MS + 20)
    assert [lease.job.session for lease in batch] == ["s0", "s2", "s3"]
    assert queue.stats().waiting == 2
    assert queue.set_policy("sjf").rescored == 2, "it is where a change of policy finds it"
    assert [[lease.job.session for lease in claim(queue, START_MS + 30)] for _ in range(3)] == [["s1"], ["s4"], []]


def test_a_worker_that_waits_is_woken_for_what_was_passed_over(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)
    queue.enqueue(final("s0"))
    queue.enqueue(final("s1"))
    leases = queue.claim("w", nonce(), max_jobs=2, batches=WIDE)
    queue.fail(leases[1], "decode_failed", "once")
    queue.release([leases[0]])
    while queue.wait(0):
        pass
    assert [lease.job.session for lease in claim(queue, 0)] == ["s0"]
    assert queue.wait(0)
    queue.enqueue(partial("s2"))
    assert {lease.job.session for _ in range(2) for lease in claim(queue, 0)} == {"s1", "s2"}
