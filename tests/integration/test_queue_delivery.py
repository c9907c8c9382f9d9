"""Results: published once, durable for finals, in the form that front ends read; and what completions teach."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from queueing.errors import BadJob
from queueing.job import CompleteStatus, Delivery
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import Kind, Lane
from queueing.records import Completion
from tests.support.queue_ears import Ears
from tests.support.queue_jobs import START_MS, claim_one, final, partial


@pytest.fixture
def queue(redis_client: redis.Redis) -> JobQueue:
    return JobQueue(redis_client)


@pytest.fixture
def ears(redis_client: redis.Redis) -> Iterator[Ears]:
    with Ears(redis_client) as subscription:
        yield subscription


def test_a_final_is_published_and_kept(queue: JobQueue, ears: Ears) -> None:
    queue.enqueue(final("s", 4, 3.25), now_ms=START_MS)
    lease = claim_one(queue, now_ms=START_MS + 40)
    result = {"text": 'He said "ü"\n', "language": "en", "words": [{"text": "He", "start_s": 0.5}]}
    assert queue.complete(lease, result, decode_ms=120.6, now_ms=START_MS + 200) is CompleteStatus.DONE
    (published,) = ears.heard()
    assert published == Delivery(
        event_id=published.event_id,
        session="s",
        job="s:f:4",
        kind=Kind.FINAL,
        segment=4,
        outcome="done",
        start_byte=0,
        end_byte=104_000,
        audio_s=3.25,
        attempt=1,
        queue_ms=40,
        decode_ms=120,
        completed_ms=START_MS + 200,
        result=result,
        error=None,
    )
    assert published.event_id
    assert queue.events("s") == (published,)


def test_the_script_writes_the_json_that_python_writes(queue: JobQueue, redis_client: redis.Redis) -> None:
    queue.enqueue(final("s"), now_ms=START_MS)
    queue.complete(claim_one(queue), {"text": "a"}, decode_ms=1, now_ms=START_MS)
    queue.enqueue(final("s", 1), now_ms=START_MS)
    queue.fail(claim_one(queue), "decode_failed", 'quote " slash / back \\ tab \t', retry=False, now_ms=START_MS)
    stored: Any = redis_client.xrange(queue.keys.events("s"))
    for delivery, (_, fields) in zip(queue.events("s"), stored, strict=True):
        assert json.loads(fields[b"body"]) == json.loads(delivery.body())
        assert list(json.loads(fields[b"body"])) == list(json.loads(delivery.body()))


def test_a_partial_is_published_but_not_kept(queue: JobQueue, ears: Ears) -> None:
    queue.enqueue(partial("s", 7))
    queue.complete(claim_one(queue), {"text": "so far"}, decode_ms=1)
    (published,) = ears.heard()
    assert (published.event_id, published.kind, published.job) == (None, Kind.PARTIAL, "s:p:7")
    assert published.result == {"text": "so far"}
    assert queue.events("s") == ()


@pytest.mark.parametrize("job", [final("s"), partial("s", 1)], ids=["final", "partial"])
def test_completing_again_after_a_lost_reply_publishes_nothing(queue: JobQueue, ears: Ears, job: object) -> None:
    queue.enqueue(job)  # type: ignore[arg-type]
    lease = claim_one(queue)
    for text in ("first", "again", "and again"):
        assert queue.complete(lease, {"text": text}, decode_ms=1) is CompleteStatus.DONE
    assert [delivery.result for delivery in ears.heard()] == [{"text": "first"}]
    assert len(queue.events("s")) <= 1


def test_only_the_owning_front_end_hears_it(queue: JobQueue, ears: Ears) -> None:
    queue.enqueue(final("elsewhere", front="front-2"))
    queue.complete(claim_one(queue), {}, decode_ms=1)
    assert ears.heard() == []


def test_events_are_read_from_where_one_left_off(queue: JobQueue) -> None:
    for segment in range(5):
        queue.enqueue(final("s", segment))
        queue.complete(claim_one(queue), {"text": str(segment)}, decode_ms=1)
    events = queue.events("s")
    assert [event.segment for event in events] == [0, 1, 2, 3, 4]
    assert queue.events("s", after=events[2].event_id) == events[3:]
    assert queue.events("s", after=events[4].event_id) == ()
    assert queue.events("nobody") == ()


def test_events_are_bounded_and_expire(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, limits=QueueLimits(max_events=3, events_ttl_ms=60_000))
    for segment in range(5):
        queue.enqueue(final("s", segment))
        queue.complete(claim_one(queue), {}, decode_ms=1)
    assert [event.segment for event in queue.events("s")] == [2, 3, 4]
    assert 0 < redis_client.pttl(queue.keys.events("s")) <= 60_000


def test_a_lane_learns_its_cost_from_what_decodes_took(queue: JobQueue) -> None:
    lane = Lane(Kind.FINAL, 5)

    def decode(segment: int, decode_ms: float) -> float:
        queue.enqueue(final("s", segment, 3.0))
        queue.complete(claim_one(queue), {}, decode_ms=decode_ms)
        (stats,) = (stats for stats in queue.stats().lanes if stats.lane == lane)
        assert stats.learned
        return stats.cost_ms

    assert decode(0, 100.0) == 100.0, "the first measurement replaces the guess"
    assert decode(1, 200.0) == pytest.approx(110.0)
    assert decode(2, 110.0) == pytest.approx(110.0)
    assert decode(4, 60_000.0) == pytest.approx(110.0 * 1.3), "one that stood still moves it like four times the cost"
    assert [decode(5 + n, 110.0) for n in range(20)][-1] == pytest.approx(110.0, rel=0.05)
    faster = [decode(30 + n, 11.0) for n in range(40)]
    assert faster[-1] == pytest.approx(11.0, rel=0.2), "a faster machine is believed"
    slower = [decode(80 + n, 1_100.0) for n in range(40)]
    assert slower[-1] == pytest.approx(1_100.0, rel=0.2), "and so is a slower one"
    decode(130, 110.0)
    before = decode(131, 110.0)
    queue.enqueue(final("s", 3, 3.0))
    queue.complete(claim_one(queue), {}, decode_ms=1.0, learn=False)
    (stats,) = (stats for stats in queue.stats().lanes if stats.lane == lane)
    assert stats.cost_ms == pytest.approx(before), "a job that never reached the model teaches nothing"
    others = [stats for stats in queue.stats().lanes if stats.lane != lane]
    assert not any(stats.learned for stats in others)


def test_the_jobs_of_a_batch_are_completed_together_and_each_once(queue: JobQueue, redis_client: redis.Redis) -> None:
    for number in range(4):
        queue.enqueue(final(f"s{number}"))
    leases = queue.claim("w", "n", max_jobs=4)
    queue.cancel_session("s1")
    lost = replace(leases[2], generation=leases[2].generation - 1)
    with Ears(redis_client) as ears:
        batch = [
            Completion.of(lease, {"text": lease.job.id}, decode_ms=25.0) for lease in (*leases[:2], lost, leases[3])
        ]
        expected = (CompleteStatus.DONE, CompleteStatus.CANCELLED, CompleteStatus.STALE, CompleteStatus.DONE)
        assert queue.complete_all(batch) == expected
        again = (CompleteStatus.DONE, CompleteStatus.STALE, CompleteStatus.STALE, CompleteStatus.DONE)
        assert queue.complete_all(batch) == again, "after a lost reply: nothing more is published"
        assert [delivery.job for delivery in ears.heard()] == ["s0:f:0", "s3:f:0"]
        assert queue.complete(leases[2], {}, decode_ms=1) is CompleteStatus.DONE, "its own lease is untouched"


def test_a_batch_is_completed_also_where_redis_forgot_the_script(queue: JobQueue, redis_client: redis.Redis) -> None:
    for number in range(3):
        queue.enqueue(final(f"s{number}"))
    leases = queue.claim("w", "n", max_jobs=3)
    redis_client.script_flush()
    batch = [Completion.of(lease, {}, decode_ms=1.0) for lease in leases]
    assert queue.complete_all(batch) == (CompleteStatus.DONE,) * 3
    assert redis_client.zcard(queue.keys.leases) == 0


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"text": float("nan")}, r"result of job s:f:0 is not JSON"),
        ({"text": b"bytes"}, r"result of job s:f:0 is not JSON"),
        ({"text": "x" * 1_100_000}, r"takes 11000\d\d bytes, at most 1048576 are allowed"),
    ],
)
def test_a_result_that_nobody_could_read_is_refused(queue: JobQueue, result: dict[str, object], said: str) -> None:
    queue.enqueue(final("s"))
    lease = claim_one(queue)
    with pytest.raises(BadJob, match=said):
        queue.complete(lease, result, decode_ms=1)
    assert queue.complete(lease, {"text": "fine"}, decode_ms=1) is CompleteStatus.DONE
