"""Looking into the queue, looking after its dead, and who works on it."""

from __future__ import annotations

import pytest
import redis

from queueing.errors import BadJob, QueueUnavailable
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import Kind, Lane, all_lanes
from queueing.registry import WORKER_TTL_MS
from queueing.settings import QueueSettings
from tests.support.eventually import eventually
from tests.support.queue_jobs import START_MS, claim_one, final, in_lane, partial


@pytest.fixture
def queue(redis_client: redis.Redis) -> JobQueue:
    return JobQueue(redis_client)


def redis_ms(client: redis.Redis) -> int:
    seconds, micros = client.time()
    return int(seconds) * 1000 + int(micros) // 1000


def test_a_snapshot_shows_lanes_leases_workers_dead_and_counts(queue: JobQueue, redis_client: redis.Redis) -> None:
    now = redis_ms(redis_client)
    queue.set_policy("hrrn")
    queue.enqueue(final("s0", audio_s=3.0), now_ms=now - 5_000)
    queue.enqueue(final("s1", audio_s=3.0), now_ms=now - 4_000)
    queue.enqueue(final("s2", audio_s=3.0), now_ms=now - 1_000)
    queue.enqueue(partial("s3", 1), now_ms=now - 2_000)
    queue.fail(claim_one(queue, "w1"), "decode_failed", "x", retry=False)
    lease = claim_one(queue, "w1")
    queue.heartbeat("w1", {"state": "busy", "model": "tiny.en"})
    stats = queue.stats()

    assert (stats.policy.name, stats.waiting, stats.dead, stats.open_partials) == ("hrrn", 2, 1, 1)
    assert [lane.lane for lane in stats.lanes] == list(all_lanes())
    depths = {lane.lane: lane for lane in stats.lanes if lane.depth}
    assert set(depths) == {Lane(Kind.FINAL, 5), Lane(Kind.PARTIAL, 3)}
    oldest = depths[Lane(Kind.PARTIAL, 3)].oldest_age_ms
    assert oldest is not None
    assert 2_000 <= oldest < 60_000
    assert stats.oldest_age_ms == oldest
    assert depths[Lane(Kind.FINAL, 5)].rank.rate == pytest.approx(1 / depths[Lane(Kind.FINAL, 5)].cost_ms)
    (held,) = stats.leases
    assert (held.job, held.worker, held.generation, held.attempt) == (lease.job, "w1", 1, 1)
    assert 0 < held.left_ms <= queue.limits.lease_ms
    (worker,) = stats.workers
    assert (worker.id, worker.state, worker.info["model"]) == ("w1", "busy", "tiny.en")
    assert stats.counts == {"final:queued": 3, "partial:queued": 1, "final:dead": 1}


def test_an_empty_queue_has_a_snapshot_too(queue: JobQueue) -> None:
    stats = queue.stats()
    assert (stats.waiting, stats.leases, stats.workers, stats.dead, stats.counts) == (0, (), (), 0, {})
    assert stats.oldest_age_ms is None


def test_listing_jobs_by_state(queue: JobQueue) -> None:
    for number in range(6):
        queue.enqueue(in_lane(f"j{number}", all_lanes()[number]), now_ms=START_MS + 10 - number)
    assert [record.job.id for record in queue.jobs()] == ["j5", "j4", "j3", "j2", "j1", "j0"]
    assert [record.job.id for record in queue.jobs(limit=2)] == ["j5", "j4"]
    first = claim_one(queue, now_ms=START_MS + 20)
    second = claim_one(queue, now_ms=START_MS + 30)
    assert [record.job.id for record in queue.jobs("leased")] == [first.job.id, second.job.id]
    assert {record.worker for record in queue.jobs("leased")} == {"worker-1"}
    assert [record.lease_until_ms for record in queue.jobs("leased")] == [first.lease_until_ms, second.lease_until_ms]
    with pytest.raises(ValueError, match="no list of 'lost' jobs; choose queued, leased or dead"):
        queue.jobs("lost")


def test_a_dead_job_is_retried_as_if_it_came_now(queue: JobQueue) -> None:
    queue.enqueue(final("s"), now_ms=START_MS)
    queue.fail(claim_one(queue, now_ms=START_MS), "decode_failed", "x", retry=False, now_ms=START_MS)
    (dead,) = queue.jobs("dead")
    assert (dead.error_code, dead.error_message, dead.died_ms, dead.attempts) == ("decode_failed", "x", START_MS, 1)
    assert queue.retry_dead("s:f:0", now_ms=START_MS + 50_000)
    assert not queue.retry_dead("s:f:0")
    assert queue.jobs("dead") == ()
    lease = claim_one(queue, now_ms=START_MS + 50_100)
    assert (lease.attempt, lease.generation, lease.arrival_ms) == (1, 2, START_MS + 50_000)
    queue.complete(lease, {"text": "at last"}, decode_ms=1)
    assert [event.outcome for event in queue.events("s")] == ["dead", "done"]


def test_a_dead_job_is_dropped(queue: JobQueue) -> None:
    queue.enqueue(final("s"))
    queue.fail(claim_one(queue), "decode_failed", "x", retry=False)
    assert queue.drop_dead("s:f:0")
    assert not queue.drop_dead("s:f:0")
    assert queue.job_state("s:f:0") is None
    assert queue.stats().dead == 0


def test_only_dead_jobs_can_be_settled(queue: JobQueue) -> None:
    queue.enqueue(final("s"))
    assert not queue.retry_dead("s:f:0")
    assert not queue.drop_dead("s:f:0")
    assert not queue.retry_dead("nobody")
    assert queue.stats().waiting == 1


def test_the_dead_are_capped_and_the_oldest_go(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, limits=QueueLimits(max_dead=3))
    for number in range(5):
        queue.enqueue(final(f"s{number}"))
        queue.fail(claim_one(queue), "decode_failed", "x", retry=False, now_ms=START_MS + number)
    assert [record.job.session for record in queue.jobs("dead")] == ["s4", "s3", "s2"]
    assert queue.job_state("s0:f:0") is None


def test_the_dead_are_forgotten_after_their_time(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, limits=QueueLimits(dead_ttl_ms=60_000))
    for number, now in enumerate((START_MS, START_MS + 60_001)):
        queue.enqueue(final(f"s{number}"))
        queue.fail(claim_one(queue), "decode_failed", "x", retry=False, now_ms=now)
    assert redis_client.zrange(queue.keys.dead, 0, -1) == [b"s1:f:0"]
    assert 0 < redis_client.pttl(queue.keys.job("s1:f:0")) <= 60_000


def test_workers_are_listed_while_they_give_signs_of_life(queue: JobQueue, redis_client: redis.Redis) -> None:
    assert queue.workers() == ()
    queue.heartbeat("w1", {"state": "loading"}, now_ms=START_MS)
    queue.heartbeat("w2", {"state": "ready"}, now_ms=START_MS + 1)
    queue.heartbeat("w1", {"state": "ready"}, now_ms=START_MS + 2)
    assert [(worker.id, worker.state, worker.joined_ms) for worker in queue.workers()] == [
        ("w1", "ready", START_MS),
        ("w2", "ready", START_MS + 1),
    ]
    assert all(0 <= worker.age_ms < WORKER_TTL_MS for worker in queue.workers())
    queue.forget_worker("w1")
    assert [worker.id for worker in queue.workers()] == ["w2"]
    redis_client.pexpire(queue.keys.worker("w2"), 1)
    eventually(lambda: not redis_client.exists(queue.keys.worker("w2")), what="the silent worker's record expires")
    assert queue.workers() == ()
    queue.heartbeat("w3", {})
    assert redis_client.zrange(queue.keys.workers, 0, -1) == [b"w3"], "who joins clears away the silent"
    assert queue.workers()[0].state == "unknown"


@pytest.mark.parametrize("lost", ["the record's reply", "the joining"])
def test_a_worker_joins_with_a_later_beat_where_the_first_was_half_done(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    queue = JobQueue(redis_client)
    with monkeypatch.context() as patch:
        if lost == "the joining":
            # No script gets through, as where Redis has no memory left; the record's plain command does.
            patch.setattr(queue._registry._scripts, "run", _unavailable)
        else:
            done = redis.Redis.set
            patch.setattr(redis.Redis, "set", lambda *given, **options: _refuse(done(*given, **options)))
        with pytest.raises(QueueUnavailable):
            queue.heartbeat("w", {"state": "ready"})
    assert redis_client.exists(queue.keys.worker("w"))
    assert queue.workers() == ()
    queue.heartbeat("w", {"state": "ready"})
    assert [worker.id for worker in queue.workers()] == ["w"]


def _unavailable(*_arguments: object, **_options: object) -> None:
    raise QueueUnavailable("no memory")


def _refuse(*_arguments: object, **_options: object) -> None:
    raise redis.ConnectionError("the connection broke")


def test_a_workers_age_is_measured_by_redis(queue: JobQueue, redis_client: redis.Redis) -> None:
    queue.heartbeat("w", {"state": "ready"})
    redis_client.pexpire(queue.keys.worker("w"), WORKER_TTL_MS - 7_000)
    assert 7_000 <= queue.workers()[0].age_ms < WORKER_TTL_MS


def test_a_worker_name_that_cannot_stand_in_a_key_is_refused(queue: JobQueue) -> None:
    with pytest.raises(BadJob, match="worker 'a b' must be 1 to 128 characters"):
        queue.heartbeat("a b", {})


def test_settings_make_the_queue(redis_client: redis.Redis) -> None:
    settings = QueueSettings.from_env(
        {"HEARLINE_QUEUE": "green", "HEARLINE_POLICY": "edf", "HEARLINE_LEASE_S": "2.5", "HEARLINE_ATTEMPTS": "5"}
    )
    queue = JobQueue.of(redis_client, settings)
    assert queue.keys.prefix == "hl:{q:green}:"
    assert queue.policy().name == "edf"
    assert (queue.limits.lease_ms, queue.limits.max_attempts, queue.limits.max_queued) == (2_500, 5, 10_000)
