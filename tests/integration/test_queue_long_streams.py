"""A stream without end: what Redis holds of it stays small, and no promise of the queue weakens by that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from queueing.job import CompleteStatus, EnqueueStatus, LeasedJob
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import MAX_JOB_AUDIO_S
from sessions.limits import MAX_WAITING_FINALS
from tests.support.queue_ears import Ears
from tests.support.queue_jobs import claim_one, final, partial

KEPT = QueueLimits().max_events
MANY = 3 * KEPT


@pytest.fixture
def queue(redis_client: redis.Redis) -> JobQueue:
    return JobQueue(redis_client)


@pytest.fixture
def ears(redis_client: redis.Redis) -> Iterator[Ears]:
    with Ears(redis_client) as subscription:
        yield subscription


def speak(queue: JobQueue, segments: range, session: str = "s") -> list[LeasedJob]:
    """Each segment with a partial before its final, as a stream has them."""
    leases = []
    for segment in segments:
        queue.enqueue(partial(session, segment, segment=segment))
        queue.complete(claim_one(queue), {"text": "so far"}, decode_ms=1)
        assert queue.enqueue(final(session, segment)).status is EnqueueStatus.QUEUED
        lease = claim_one(queue)
        assert queue.complete(lease, {"text": str(segment)}, decode_ms=1) is CompleteStatus.DONE
        leases.append(lease)
    return leases


def held(client: redis.Redis, session: str = "s") -> dict[str, int]:
    """Bytes that Redis spends on each key of a session."""
    keys = [key for key in client.scan_iter(count=1000) if f":{session}" in key.decode()]
    return {key.decode(): client.memory_usage(key) or 0 for key in keys}


def test_what_a_stream_holds_does_not_grow_with_its_length(queue: JobQueue, redis_client: redis.Redis) -> None:
    speak(queue, range(2 * KEPT))
    before = held(redis_client)
    speak(queue, range(2 * KEPT, MANY))
    after = held(redis_client)
    assert len(after) == len(before) <= KEPT + 4
    assert sum(after.values()) < 1.1 * sum(before.values())
    assert redis_client.scard(queue.keys.session_jobs("s")) == KEPT == redis_client.xlen(queue.keys.events("s"))
    assert [event.segment for event in queue.events("s")] == list(range(MANY - KEPT, MANY))
    queue.cancel_session("s")
    assert held(redis_client) == {}


def test_a_final_is_not_queued_again_however_old(queue: JobQueue, ears: Ears) -> None:
    speak(queue, range(MANY))
    ears.heard()
    for segment in range(0, MANY, 7):
        assert queue.enqueue(final("s", segment)).status is EnqueueStatus.DUPLICATE
        assert queue.enqueue(partial("s", MANY + segment, segment=segment)).status is EnqueueStatus.OBSOLETE
    assert queue.stats().waiting == 0
    assert queue.enqueue(final("s", MANY)).status is EnqueueStatus.QUEUED


def test_a_report_that_is_repeated_publishes_nothing_however_late(queue: JobQueue, ears: Ears) -> None:
    leases = speak(queue, range(MANY))
    events = queue.events("s")
    ears.heard()
    for lease in leases[-KEPT:]:
        assert queue.complete(lease, {"text": "again"}, decode_ms=1) is CompleteStatus.DONE
    for lease in leases[:-KEPT:7]:
        assert queue.complete(lease, {"text": "again"}, decode_ms=1) is CompleteStatus.STALE
        assert queue.fail(lease, "decode_failed", "again") is CompleteStatus.STALE
    assert ears.heard() == []
    assert queue.events("s") == events


def test_a_front_end_finds_every_answer_that_it_can_still_wait_for(queue: JobQueue) -> None:
    """It heard nothing since an event that is long gone; twice as many answers came as one stream can have waiting: of
    those due before the oldest unsaid final's, and of those that its being unsaid still let in."""
    speak(queue, range(MANY))
    last = queue.events("s")[-1].event_id
    in_one_message = int(MAX_JOB_AUDIO_S + 4)  # segments of a second in the largest usual message
    waiting = 2 * (MAX_WAITING_FINALS + in_one_message)
    assert waiting < KEPT
    speak(queue, range(MANY, MANY + waiting))
    assert [event.segment for event in queue.events("s", after=last)] == list(range(MANY, MANY + waiting))


def test_finals_that_fail_are_forgotten_too(queue: JobQueue, redis_client: redis.Redis) -> None:
    """A client whose language the model lacks: told each time, and nothing is left to the operator."""
    for segment in range(3 * KEPT):
        queue.enqueue(final("s", segment))
        lease = claim_one(queue)
        assert queue.fail(lease, "unsupported_language", "no", retry=False, keep=False) is CompleteStatus.DEAD
        assert queue.fail(lease, "unsupported_language", "no", retry=False, keep=False) is CompleteStatus.DEAD
    assert len(held(redis_client)) <= KEPT + 3
    assert queue.enqueue(final("s", 0)).status is EnqueueStatus.DUPLICATE
    assert queue.stats().dead == 0
    queue.cancel_session("s")
    assert held(redis_client) == {}


def test_what_waits_runs_or_is_left_to_the_operator_is_not_forgotten(queue: JobQueue) -> None:
    queue.enqueue(final("s", 0))
    queue.fail(claim_one(queue), "decode_failed", "poison", retry=False)
    queue.enqueue(final("s", 1))
    running = claim_one(queue)
    speak(queue, range(2, 2 + 2 * KEPT))
    assert queue.job_state("s:f:0") == "dead"
    assert queue.job_state("s:f:1") == "leased"
    assert queue.enqueue(final("s", 1)).status is EnqueueStatus.DUPLICATE
    assert queue.complete(running, {"text": "late"}, decode_ms=1) is CompleteStatus.DONE
    assert queue.events("s")[-1].segment == 1
    assert queue.retry_dead("s:f:0")
    retried = claim_one(queue)
    speak(queue, range(2 + 2 * KEPT, 2 + 4 * KEPT))
    assert queue.complete(retried, {"text": "at last"}, decode_ms=1) is CompleteStatus.DONE
