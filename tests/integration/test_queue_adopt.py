"""A session goes on at another front end: what becomes of its jobs is told there."""

from __future__ import annotations

import redis

from queueing.job_queue import JobQueue
from tests.support.queue_ears import Ears
from tests.support.queue_jobs import claim_one, final, partial


def test_jobs_that_wait_or_run_are_told_to_the_new_front_end_and_no_others(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)
    with Ears(redis_client, "front-1") as old, Ears(redis_client, "front-2") as new:
        queue.enqueue(final("s", 0))
        running = claim_one(queue)
        queue.enqueue(final("s", 1))
        queue.enqueue(final("neighbour", 0))
        queue.adopt("s", "front-2")
        queue.complete(running, {"text": "running"}, decode_ms=1)
        for _ in range(2):
            lease = claim_one(queue)
            queue.complete(lease, {"text": lease.job.session}, decode_ms=1)
        assert sorted(told.job for told in new.heard()) == ["s:f:0", "s:f:1"]
        assert [told.job for told in old.heard()] == ["neighbour:f:0"]


def test_a_partial_and_a_job_that_is_given_up_are_told_there_too(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)
    with Ears(redis_client, "front-1") as old, Ears(redis_client, "front-2") as new:
        queue.enqueue(partial("s", 1))
        queue.adopt("s", "front-2")
        queue.complete(claim_one(queue), {"text": "guess"}, decode_ms=1)
        queue.enqueue(final("s", 0))
        running = claim_one(queue)
        queue.adopt("s", "front-2")
        queue.fail(running, "decode_failed", "x", retry=False)
        assert [(told.job, told.outcome) for told in new.heard()] == [("s:p:1", "done"), ("s:f:0", "dead")]
        assert old.heard() == []


def test_what_is_done_stays_as_it_is_and_a_session_without_jobs_is_none(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)
    queue.enqueue(final("s", 0))
    queue.complete(claim_one(queue), {"text": "done"}, decode_ms=1)
    before = queue.events("s")
    queue.adopt("s", "front-2")
    queue.adopt("nobody", "front-2")
    assert queue.events("s") == before
    assert redis_client.hget(queue.keys.job("s:f:0"), "front") == b"front-1"
    assert not redis_client.exists(queue.keys.session_jobs("nobody"))
