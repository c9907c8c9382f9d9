"""Claims, leases and generations: who may complete what, and what becomes of jobs whose worker is gone."""

from __future__ import annotations

import threading

import pytest
import redis

from queueing.connect import connect
from queueing.errors import BadJob
from queueing.job import CompleteStatus, EnqueueStatus, Renewed
from queueing.job_queue import JobQueue, QueueLimits, SweepReport
from queueing.lane import Kind, Lane
from queueing.limits import SWEEP_BATCH
from tests.support.queue_ears import Ears
from tests.support.queue_jobs import START_MS, claim_one, final, in_lane, nonce, partial

LIMITS = QueueLimits(lease_ms=10_000, max_attempts=3)
EXPIRED = START_MS + 10_001


@pytest.fixture
def queue(redis_client: redis.Redis) -> JobQueue:
    return JobQueue(redis_client, limits=LIMITS)


def test_a_batch_is_the_oldest_jobs_of_one_lane(queue: JobQueue) -> None:
    for number in range(5):
        queue.enqueue(in_lane(f"a{number}", Lane(Kind.FINAL, 5)), now_ms=START_MS + number)
        queue.enqueue(in_lane(f"b{number}", Lane(Kind.FINAL, 8)), now_ms=START_MS + number)
    batch = queue.claim("w", nonce(), max_jobs=3, now_ms=START_MS + 100)
    assert [lease.job.id for lease in batch] == ["a0", "a1", "a2"]
    assert [lease.job.id for lease in queue.claim("w", nonce(), max_jobs=9, now_ms=START_MS + 100)] == [
        f"b{number}" for number in range(5)
    ]


def test_a_claim_may_be_restricted_to_lanes(queue: JobQueue) -> None:
    queue.enqueue(in_lane("first", Lane(Kind.FINAL, 5)), now_ms=START_MS)
    queue.enqueue(in_lane("second", Lane(Kind.PARTIAL, 8)), now_ms=START_MS + 9)
    only = [Lane(Kind.PARTIAL, 8), Lane(Kind.PARTIAL, 10)]
    assert [lease.job.id for lease in queue.claim("w", nonce(), lanes=only)] == ["second"]
    assert queue.claim("w", nonce(), lanes=only) == ()
    assert [lease.job.id for lease in queue.claim("w", nonce())] == ["first"]


@pytest.mark.parametrize("max_jobs", [0, 65])
def test_a_claim_of_too_few_or_too_many_jobs_is_refused(queue: JobQueue, max_jobs: int) -> None:
    with pytest.raises(BadJob, match=rf"max_jobs is {max_jobs}, a claim takes 1 to 64 jobs"):
        queue.claim("w", "n", max_jobs=max_jobs)


def test_asking_again_with_the_same_nonce_returns_the_same_jobs(queue: JobQueue) -> None:
    for number in range(4):
        queue.enqueue(final(f"s{number}"))
    first = queue.claim("w", "lost-reply", max_jobs=2)
    assert queue.claim("w", "lost-reply", max_jobs=2) == first
    assert len(queue.jobs("leased")) == 2
    assert [lease.attempt for lease in first] == [1, 1]
    other = queue.claim("v", "lost-reply", max_jobs=2)
    assert {lease.job.id for lease in other}.isdisjoint({lease.job.id for lease in first}), "nonces are a worker's own"


def test_a_replayed_claim_returns_only_what_is_still_held(queue: JobQueue) -> None:
    for number in range(3):
        queue.enqueue(final(f"s{number}"), now_ms=START_MS + number)
    done, lost, held = queue.claim("w", "n", max_jobs=3, now_ms=START_MS + 10)
    queue.complete(done, {}, decode_ms=1)
    queue.release([lost])
    assert claim_one(queue, "v").job.id == lost.job.id
    assert queue.claim("w", "n", max_jobs=3) == (held,)


def test_a_clients_own_fault_is_told_to_it_and_leaves_no_dead_job(queue: JobQueue, redis_client: redis.Redis) -> None:
    queue.enqueue(final("s"))
    lease = claim_one(queue)
    for _ in range(2):  # the second time as after a lost reply
        answer = queue.fail(lease, "unsupported_language", "no German", retry=False, keep=False)
        assert answer is CompleteStatus.DEAD
    (event,) = queue.events("s")
    assert event.error == {"code": "unsupported_language", "message": "no German"}
    assert queue.jobs("dead") == ()
    assert not queue.retry_dead(lease.job.id)
    assert queue.stats().counts["final:dropped"] == 1
    assert 0 < redis_client.pttl(queue.keys.job(lease.job.id)) <= LIMITS.job_ttl_ms


def test_an_older_generation_can_neither_complete_nor_fail_nor_renew(queue: JobQueue) -> None:
    queue.enqueue(final("s"), now_ms=START_MS)
    old = claim_one(queue, "paused", now_ms=START_MS)
    queue.sweep(now_ms=EXPIRED)
    new = claim_one(queue, "fresh", now_ms=EXPIRED)
    assert (new.generation, new.attempt, new.arrival_ms) == (2, 2, START_MS)
    assert queue.complete(old, {"text": "old"}, decode_ms=1) is CompleteStatus.STALE
    assert queue.fail(old, "decode_failed", "old") is CompleteStatus.STALE
    assert queue.renew([old, new]) == Renewed(lost=(old,))
    assert queue.release([old]) == 0
    assert queue.complete(new, {"text": "new"}, decode_ms=1) is CompleteStatus.DONE
    assert queue.complete(old, {"text": "old"}, decode_ms=1) is CompleteStatus.STALE
    assert [event.result for event in queue.events("s")] == [{"text": "new"}]


def test_a_lease_that_ran_out_unseen_still_counts(queue: JobQueue) -> None:
    """Time alone takes nothing away: only a sweep does, so a slow result that nobody waits for anew is kept."""
    queue.enqueue(final("s"), now_ms=START_MS)
    lease = claim_one(queue, now_ms=START_MS)
    assert queue.complete(lease, {"text": "slow"}, decode_ms=1, now_ms=EXPIRED) is CompleteStatus.DONE
    assert queue.sweep(now_ms=EXPIRED) == SweepReport()


def test_renewing_moves_the_expiry(queue: JobQueue) -> None:
    queue.enqueue(final("s"), now_ms=START_MS)
    lease = claim_one(queue, now_ms=START_MS)
    assert queue.renew([lease], now_ms=START_MS + 9_000) == Renewed()
    assert queue.sweep(now_ms=EXPIRED).requeued == 0
    assert queue.sweep(now_ms=START_MS + 19_001).requeued == 1
    assert queue.renew([lease]) == Renewed(lost=(lease,))
    assert queue.renew([]) == Renewed()


def test_released_jobs_keep_age_and_attempts(queue: JobQueue) -> None:
    queue.enqueue(final("s"), now_ms=START_MS)
    for _ in range(5):
        assert queue.release([claim_one(queue)]) == 1
    lease = claim_one(queue)
    assert (lease.attempt, lease.generation, lease.arrival_ms) == (1, 6, START_MS)


def test_a_failed_final_is_tried_again_until_its_attempts_are_used(queue: JobQueue) -> None:
    queue.enqueue(final("s"), now_ms=START_MS)
    for attempt in (1, 2):
        lease = claim_one(queue)
        assert lease.attempt == attempt
        assert queue.fail(lease, "decode_failed", "bad luck") is CompleteStatus.REQUEUED
        assert queue.fail(lease, "decode_failed", "bad luck") is CompleteStatus.REQUEUED, "the reply was lost"
    last = claim_one(queue)
    for _ in range(2):
        assert queue.fail(last, "decode_failed", "bad luck") is CompleteStatus.DEAD
    (event,) = queue.events("s")
    assert (event.outcome, event.error) == ("dead", {"code": "decode_failed", "message": "bad luck"})
    assert queue.job_state("s:f:0") == "dead"


def test_a_hopeless_failure_is_not_tried_again(queue: JobQueue) -> None:
    queue.enqueue(final("s"))
    assert queue.fail(claim_one(queue), "audio_missing", "gone", retry=False) is CompleteStatus.DEAD
    assert [event.error for event in queue.events("s")] == [{"code": "audio_missing", "message": "gone"}]


def test_a_failed_partial_is_dropped_and_its_session_may_ask_again(queue: JobQueue) -> None:
    queue.enqueue(partial("s", 1))
    lease = claim_one(queue)
    assert queue.fail(lease, "decode_failed", "odd") is CompleteStatus.DEAD
    assert queue.fail(lease, "decode_failed", "odd") is CompleteStatus.DEAD, "the reply was lost"
    assert queue.events("s") == (), "nothing durable for a partial"
    assert queue.enqueue(partial("s", 2)).status is EnqueueStatus.QUEUED
    assert queue.stats().dead == 0


def test_jobs_of_a_killed_worker_are_decoded_again(queue: JobQueue) -> None:
    queue.enqueue(final("s"), now_ms=START_MS)
    queue.enqueue(partial("t", 1), now_ms=START_MS)
    killed = [claim_one(queue, "killed", now_ms=START_MS) for _ in range(2)]
    assert queue.sweep(now_ms=START_MS + 9_999) == SweepReport(leased=2)
    assert queue.sweep(now_ms=EXPIRED) == SweepReport(requeued=1, dropped_partials=1, waiting=1)
    assert claim_one(queue).job.id == "s:f:0"
    assert queue.renew(killed) == Renewed(lost=tuple(killed))
    assert queue.enqueue(partial("t", 2)).status is EnqueueStatus.QUEUED


def test_a_poison_job_ends_in_the_dead_set_and_its_client_is_told(queue: JobQueue) -> None:
    queue.enqueue(final("s"), now_ms=START_MS)
    now = START_MS
    for _ in range(3):
        claim_one(queue, "victim", now_ms=now)
        now += LIMITS.lease_ms + 1
        report = queue.sweep(now_ms=now)
    assert report == SweepReport(dead=1)
    (event,) = queue.events("s")
    assert event.error == {"code": "decode_failed", "message": "its worker was lost on each of 3 attempts"}
    assert (event.outcome, event.attempt, event.segment, event.result) == ("dead", 3, 0, None)
    assert [record.job.id for record in queue.jobs("dead")] == ["s:f:0"]
    assert queue.claim("w", nonce(), now_ms=now) == ()


def test_two_sweepers_at_once_requeue_each_job_once(redis_url: str, redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, limits=LIMITS)
    for number in range(80):
        queue.enqueue(final(f"s{number}"), now_ms=START_MS)
    queue.claim("dead", nonce(), max_jobs=64, now_ms=START_MS)
    reports: list[SweepReport] = []

    def sweep() -> None:
        client = connect(redis_url)
        start.wait()
        reports.append(JobQueue(client, limits=LIMITS).sweep(now_ms=EXPIRED))
        client.close()

    start = threading.Barrier(4)
    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(report.requeued for report in reports) == [0, 0, 0, 64]
    assert queue.stats().waiting == 80


def test_a_sweep_stops_at_its_bound_and_says_that_there_is_more(queue: JobQueue) -> None:
    for number in range(SWEEP_BATCH + 20):
        queue.enqueue(final(f"s{number}"), now_ms=START_MS)
    while queue.claim("dead", nonce(), max_jobs=64, now_ms=START_MS):
        pass
    first, second = queue.sweep(now_ms=EXPIRED), queue.sweep(now_ms=EXPIRED)
    assert (first.requeued, first.more) == (SWEEP_BATCH, True)
    assert (second.requeued, second.more) == (20, False)


def test_a_partial_that_waited_too_long_is_dropped_and_its_session_told(
    queue: JobQueue, redis_client: redis.Redis
) -> None:
    queue.enqueue(partial("s", 1), now_ms=START_MS)
    queue.enqueue(final("t"), now_ms=START_MS)
    with Ears(redis_client) as ears:
        assert queue.sweep(now_ms=START_MS + LIMITS.stale_partial_ms - 1).dropped_partials == 0
        assert queue.sweep(now_ms=START_MS + LIMITS.stale_partial_ms).dropped_partials == 1
        (told,) = ears.heard()
    assert (told.job, told.outcome, told.event_id, told.queue_ms) == ("s:p:1", "dead", None, LIMITS.stale_partial_ms)
    assert told.error == {"code": "timeout", "message": f"it waited over {LIMITS.stale_partial_ms} ms"}
    assert queue.stats().counts["partial:stale"] == 1
    assert queue.enqueue(partial("s", 2)).status is EnqueueStatus.QUEUED


def test_a_final_that_nobody_can_take_dies_loudly_before_its_record_expires(queue: JobQueue) -> None:
    queue.enqueue(final("s"), now_ms=START_MS)
    assert queue.sweep(now_ms=START_MS + LIMITS.max_wait_ms - 1).dead == 0
    assert queue.sweep(now_ms=START_MS + LIMITS.max_wait_ms).dead == 1
    assert [event.error["code"] for event in queue.events("s") if event.error] == ["timeout"]


def test_a_job_whose_record_is_gone_holds_nobody_up(queue: JobQueue, redis_client: redis.Redis) -> None:
    queue.enqueue(partial("s", 1), now_ms=START_MS)
    queue.enqueue(final("t"), now_ms=START_MS + 60_000)
    redis_client.delete(queue.keys.job("s:p:1"))
    assert queue.claim("w", nonce(), now_ms=START_MS + 60_001) == ()
    assert claim_one(queue).job.id == "t:f:0"
    assert queue.stats().counts["partial:dropped"] == 1
    assert queue.stats().open_partials == 1
    queue.sweep()
    assert queue.stats().open_partials == 0
