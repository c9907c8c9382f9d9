"""What an enqueue does: queue, extend, supersede, refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest
import redis

from queueing.errors import BadJob
from queueing.job import CompleteStatus, Enqueued, EnqueueStatus, LeasedJob, Renewed
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import Kind, Lane
from tests.support.queue_ears import Ears, key_names
from tests.support.queue_jobs import START_MS, claim_one, final, in_lane, partial


@pytest.fixture
def queue(redis_client: redis.Redis) -> JobQueue:
    return JobQueue(redis_client)


def test_a_job_comes_back_from_a_claim_as_it_was_queued(queue: JobQueue) -> None:
    job = replace(final("s", 2, 7.25), start_byte=96_000, end_byte=328_000, options={"language": "de", "words": True})
    assert queue.enqueue(job, now_ms=START_MS) == Enqueued(EnqueueStatus.QUEUED)
    lease = claim_one(queue, now_ms=START_MS + 250)
    assert lease.job == job
    assert lease.lane == Lane(Kind.FINAL, 10)
    assert (lease.arrival_ms, lease.queue_ms, lease.attempt, lease.generation) == (START_MS, 250, 1, 1)
    assert lease.lease_until_ms == START_MS + 250 + queue.limits.lease_ms


def test_the_speech_in_a_job_chooses_its_lane_and_comes_back(queue: JobQueue) -> None:
    job = replace(final("s", 0, 20.0), speech_s=3.5)
    queue.enqueue(job)
    record = queue.job(job.id)
    assert record is not None
    assert (record.job, record.lane) == (job, Lane(Kind.FINAL, 6))
    lease = claim_one(queue)
    assert (lease.job, lease.lane) == (job, Lane(Kind.FINAL, 6))


def test_a_delivery_tells_the_audio_not_the_speech(queue: JobQueue, redis_client: redis.Redis) -> None:
    queue.enqueue(replace(final("s", 0, 20.0), speech_s=3.5))
    with Ears(redis_client) as ears:
        queue.complete(claim_one(queue), {}, decode_ms=5)
        assert [delivery.audio_s for delivery in ears.heard()] == [20.0]


def test_an_extended_partial_moves_by_its_new_speech(queue: JobQueue, redis_client: redis.Redis) -> None:
    redis_client.hset(queue.keys.costs, Lane(Kind.PARTIAL, 6).name, 77.5)
    queue.enqueue(replace(partial("s", 1, 8.0), speech_s=1.0), now_ms=START_MS)
    more = replace(partial("s", 2, 9.0), speech_s=3.5)
    assert queue.enqueue(more, now_ms=START_MS + 500).status is EnqueueStatus.EXTENDED
    lease = claim_one(queue, now_ms=START_MS + 600)
    assert (lease.job, lease.lane) == (replace(more, id="s:p:1"), Lane(Kind.PARTIAL, 6))
    assert (lease.arrival_ms, lease.cost_ms) == (START_MS, 77.5), "the age stays, the cost is that of the new lane"


def test_an_extended_partial_forgets_speech_that_nobody_counted(queue: JobQueue) -> None:
    queue.enqueue(replace(partial("s", 1, 8.0), speech_s=1.0))
    queue.enqueue(partial("s", 2, 8.0))
    lease = claim_one(queue)
    assert (lease.job.speech_s, lease.lane) == (None, Lane(Kind.PARTIAL, 10))


def test_speech_beyond_the_audio_does_not_count() -> None:
    assert replace(final("s", 0, 1.0), speech_s=9.0).lane == Lane(Kind.FINAL, 3)


@pytest.mark.parametrize("seconds", [-0.1, 28.1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["audio_s", "speech_s"])
def test_a_length_that_cannot_be_is_named_with_its_limit(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=rf"job s:f:0: {name} is {seconds}; a job holds 0 to 28 s"):
        replace(final("s"), **{name: seconds})  # type: ignore[arg-type]


def test_the_longest_job_just_fits_its_window() -> None:
    assert final("s", 0, 28.0).lane == Lane(Kind.FINAL, 30)


def test_the_same_id_is_one_job_whatever_became_of_it(queue: JobQueue) -> None:
    job = final("s")
    assert queue.enqueue(job).status is EnqueueStatus.QUEUED
    assert queue.enqueue(job).status is EnqueueStatus.DUPLICATE
    lease = claim_one(queue)
    assert queue.enqueue(job).status is EnqueueStatus.DUPLICATE
    assert queue.complete(lease, {"text": "a"}, decode_ms=5) is CompleteStatus.DONE
    assert queue.enqueue(job).status is EnqueueStatus.DUPLICATE
    assert queue.claim("w", "n") == ()


def test_a_finished_partial_is_not_queued_again(queue: JobQueue) -> None:
    queue.enqueue(partial("s", 1))
    queue.complete(claim_one(queue), {}, decode_ms=5)
    assert queue.enqueue(partial("s", 1)).status is EnqueueStatus.DUPLICATE
    assert queue.enqueue(partial("s", 2)).status is EnqueueStatus.QUEUED


def test_a_queued_partial_is_extended_in_place_and_keeps_its_age(queue: JobQueue, redis_client: redis.Redis) -> None:
    queue.enqueue(partial("s", 1, 1.0), now_ms=START_MS)
    queue.enqueue(partial("other", 1, 9.0), now_ms=START_MS + 10)
    longer = replace(partial("s", 2, 9.0), start_byte=3_200)
    assert queue.enqueue(longer, now_ms=START_MS + 1_000).status is EnqueueStatus.EXTENDED
    assert redis_client.zcard(queue.keys.lane(Lane(Kind.PARTIAL, 3))) == 0
    assert queue.stats().waiting == 2
    lease = claim_one(queue, now_ms=START_MS + 2_000)
    assert lease.job == replace(longer, id="s:p:1"), "one entry, under its first id, over the newest audio"
    assert lease.lane == Lane(Kind.PARTIAL, 12)
    assert lease.arrival_ms == START_MS


def test_a_partial_waits_for_the_one_being_decoded(queue: JobQueue) -> None:
    queue.enqueue(partial("s", 1))
    lease = claim_one(queue)
    assert queue.enqueue(partial("s", 2)).status is EnqueueStatus.BUSY
    queue.complete(lease, {}, decode_ms=5)
    assert queue.enqueue(partial("s", 2)).status is EnqueueStatus.QUEUED


def test_a_final_removes_its_sessions_queued_partial_alone(queue: JobQueue) -> None:
    for session in ("s", "other"):
        queue.enqueue(partial(session, 1))
    assert queue.enqueue(final("s")) == Enqueued(EnqueueStatus.QUEUED, superseded=True)
    assert {record.job.id for record in queue.jobs()} == {"s:f:0", "other:p:1"}
    assert queue.job_state("s:p:1") is None
    assert queue.stats().counts["partial:superseded"] == 1


def test_a_final_makes_the_partial_being_decoded_obsolete(queue: JobQueue, redis_client: redis.Redis) -> None:
    queue.enqueue(partial("s", 1))
    lease = claim_one(queue)
    assert queue.enqueue(final("s")) == Enqueued(EnqueueStatus.QUEUED, superseded=False)
    assert queue.renew([lease]) == Renewed(cancelled=(lease,))
    with Ears(redis_client) as ears:
        assert queue.complete(lease, {"text": "late"}, decode_ms=5) is CompleteStatus.CANCELLED
        queue.complete(claim_one(queue), {"text": "final"}, decode_ms=5)
        assert [delivery.job for delivery in ears.heard()] == ["s:f:0"], "the obsolete partial published nothing"


def test_no_partial_follows_the_final_it_belongs_to(queue: JobQueue) -> None:
    queue.enqueue(final("s", 3))
    assert queue.enqueue(partial("s", 9, segment=3)).status is EnqueueStatus.OBSOLETE
    assert queue.enqueue(partial("s", 9, segment=2)).status is EnqueueStatus.OBSOLETE
    assert queue.enqueue(partial("s", 9, segment=4)).status is EnqueueStatus.QUEUED
    queue.complete(claim_one(queue), {}, decode_ms=5)
    assert queue.enqueue(partial("s", 10, segment=3)).status is EnqueueStatus.OBSOLETE, "also when the final is done"


def test_a_full_queue_refuses_partials_and_files_first_then_finals(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, limits=QueueLimits(max_queued=4))
    for number in range(4):
        assert queue.enqueue(final(f"s{number}")).status is EnqueueStatus.QUEUED
    assert queue.enqueue(partial("late")).status is EnqueueStatus.FULL
    assert queue.enqueue(in_lane("file-1", Lane(Kind.FILE, 8))).status is EnqueueStatus.FULL
    assert queue.enqueue(final("s4")).status is EnqueueStatus.QUEUED
    assert queue.enqueue(final("s5")).status is EnqueueStatus.FULL
    assert queue.job_state("s5:f:0") is None
    assert redis_client.exists(queue.keys.session("s5"), queue.keys.session_jobs("s5")) == 0
    assert queue.stats().counts["final:refused"] == 1
    claim_one(queue)
    assert queue.enqueue(final("s5")).status is EnqueueStatus.QUEUED


def test_a_full_queue_still_extends_what_waits(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, limits=QueueLimits(max_queued=1))
    queue.enqueue(partial("s", 1))
    assert queue.enqueue(partial("s", 2, 5.0)).status is EnqueueStatus.EXTENDED


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": "no spaces"}, r"id 'no spaces' must be 1 to 128 characters"),
        ({"session": ""}, r"session '' must be"),
        ({"front": 'quo"te'}, r"front 'quo\"te' must be"),
        ({"segment": -1}, r"segment is -1"),
        ({"start_byte": 5, "end_byte": 5}, r"bytes 5 to 5 are no audio; 0 <= start < end"),
        ({"options": {"prompt": "x" * 20_000}}, r"options take \d+ bytes of JSON, at most 16384"),
        ({"options": {"set": {1}}}, r"not JSON serializable"),
    ],
)
def test_a_job_that_no_worker_could_decode_is_refused(queue: JobQueue, change: dict[str, object], said: str) -> None:
    with pytest.raises(BadJob, match=said):
        queue.enqueue(replace(final("s"), **change))  # type: ignore[arg-type]


def test_cancelling_a_partial(queue: JobQueue) -> None:
    assert not queue.cancel_partial("s")
    queue.enqueue(partial("s", 1))
    assert queue.cancel_partial("s")
    assert queue.stats().waiting == 0
    assert queue.claim("w", "n1") == ()
    queue.enqueue(partial("s", 2))
    lease = claim_one(queue)
    assert queue.cancel_partial("s")
    assert queue.job_state("s:p:2") == "cancelled"
    assert queue.enqueue(partial("s", 3)).status is EnqueueStatus.QUEUED, "the obsolete one no longer blocks"
    assert queue.complete(lease, {}, decode_ms=5) is CompleteStatus.CANCELLED
    assert [job.job.id for job in queue.claim("w", "n2")] == ["s:p:3"]


def one_in_each_state(queue: JobQueue) -> LeasedJob:
    """Jobs of a session: a final that is done, one that is leased, one that waits, and a partial that waits."""
    queue.enqueue(final("s", 0))
    queue.complete(claim_one(queue), {"text": "done"}, decode_ms=5)
    queue.enqueue(final("s", 1))
    leased = claim_one(queue)
    queue.enqueue(final("s", 2))
    queue.enqueue(partial("s", 1, segment=3))
    return leased


def test_the_events_of_a_cancelled_session_may_stay(queue: JobQueue, redis_client: redis.Redis) -> None:
    leased = one_in_each_state(queue)
    assert queue.cancel_session("s", keep_events=True) == 3
    assert queue.jobs() == ()
    assert queue.complete(leased, {"text": "late"}, decode_ms=5) is CompleteStatus.CANCELLED
    assert [(event.job, event.result) for event in queue.events("s")] == [("s:f:0", {"text": "done"})]
    assert queue.cancel_session("s") == 0
    assert [name for name in key_names(redis_client) if name.endswith(":s")] == []


def test_a_cancelled_session_leaves_no_key(queue: JobQueue, redis_client: redis.Redis) -> None:
    leased = one_in_each_state(queue)
    queue.enqueue(final("bystander"))
    assert queue.cancel_session("s") == 3
    assert queue.events("s") == ()
    assert queue.complete(leased, {"text": "late"}, decode_ms=5) is CompleteStatus.CANCELLED
    assert [record.job.id for record in queue.jobs()] == ["bystander:f:0"]
    assert [
        name for name in key_names(redis_client) if "bystander" not in name and ":s" in name.replace(":session", "")
    ] == []
    assert queue.cancel_session("s") == 0
