"""The policy lives in Redis: installed once, changed while running, kept up to date with costs."""

from __future__ import annotations

import random

import pytest
import redis

from queueing.costs import prior_cost_ms
from queueing.errors import UnknownPolicy
from queueing.job import EnqueueStatus
from queueing.job_queue import JobQueue
from queueing.lane import Kind, Lane, all_lanes
from queueing.policies import POLICIES, get_policy
from queueing.policy import Load
from queueing.policy_store import InstalledPolicy, PolicyStore
from queueing.scripts import Scripts
from queueing.verbs import SetPolicy
from tests.support.queue_ears import scores
from tests.support.queue_jobs import START_MS, claim_one, final, in_lane, nonce, partial

LANE = Lane(Kind.FINAL, 5)


def test_the_first_process_installs_its_policy_and_the_others_follow(redis_client: redis.Redis) -> None:
    assert JobQueue(redis_client, policy="hrrn").policy().name == "hrrn"
    late = JobQueue(redis_client, policy="fcfs")
    assert late.policy().name == "hrrn"
    late.enqueue(final("s", audio_s=3.0), now_ms=START_MS)
    assert scores(redis_client, late) == {"s:f:0": START_MS - prior_cost_ms(LANE)}


def test_an_unknown_policy_is_refused_with_the_names_there_are(redis_client: redis.Redis) -> None:
    with pytest.raises(UnknownPolicy, match="choose one of fcfs, priority, strict"):
        JobQueue(redis_client, policy="fifo")
    queue = JobQueue(redis_client)
    with pytest.raises(UnknownPolicy):
        queue.set_policy("lifo")
    assert queue.policy().name == "priority"


@pytest.mark.parametrize("name", POLICIES)
def test_scores_in_redis_are_arrival_less_head_start(redis_client: redis.Redis, name: str) -> None:
    queue = JobQueue(redis_client, policy=name)
    for place, lane in enumerate(all_lanes()):
        queue.enqueue(in_lane(f"j{place}", lane), now_ms=START_MS + place)
    ranks = queue.policy().ranks
    assert scores(redis_client, queue) == {
        f"j{place}": START_MS + place - ranks[lane].head_start_ms for place, lane in enumerate(all_lanes())
    }


def test_changing_the_policy_rescores_every_job_exactly_and_loses_none(
    redis_client: redis.Redis, rng: random.Random
) -> None:
    queue = JobQueue(redis_client)
    redis_client.hset(queue.keys.costs, mapping={lane.name: rng.uniform(1, 60_000) for lane in all_lanes()})
    arrivals = {}
    for number in range(1_200):
        lane = all_lanes()[0] if number % 2 else rng.choice(all_lanes())
        arrivals[f"j{number}"] = (lane, START_MS + rng.randrange(100_000))
        queue.enqueue(in_lane(f"j{number}", lane), now_ms=arrivals[f"j{number}"][1])
    for name in [*POLICIES, "sjf", "hrrn", "sjf", "fcfs"]:
        change = queue.set_policy(name)
        installed = queue.policy()
        assert (installed.name, installed.version) == (name, change.version)
        assert scores(redis_client, queue) == {
            job_id: arrival - installed.ranks[lane].head_start_ms for job_id, (lane, arrival) in arrivals.items()
        }
    assert queue.stats().waiting == 1_200


def test_ranks_follow_costs_only_when_these_moved_by_more_than_a_tenth(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, policy="sjf")
    queue.enqueue(final("s", audio_s=3.0), now_ms=START_MS)
    before = queue.policy()
    prior = prior_cost_ms(LANE)
    redis_client.hset(queue.keys.costs, LANE.name, prior * 1.09)
    assert queue.refresh_policy() is None
    assert queue.policy() == before
    redis_client.hset(queue.keys.costs, LANE.name, prior * 1.2)
    change = queue.refresh_policy()
    assert change
    assert (change.version, change.rescored) == (before.version + 1, 1)
    assert scores(redis_client, queue) == {"s:f:0": START_MS + 1e7 * prior * 1.2}
    assert queue.refresh_policy() is None


def test_a_policy_that_ignores_costs_is_never_rescored(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, policy="fcfs")
    queue.policy()
    redis_client.hset(queue.keys.costs, LANE.name, 50_000)
    assert queue.refresh_policy() is None


def test_a_refresh_never_undoes_a_change_made_meanwhile(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, policy="sjf")
    stale = queue.policy()
    queue.set_policy("edf")
    store = PolicyStore(redis_client, queue.keys, Scripts(redis_client, queue.keys), "sjf")
    assert store._install("sjf", expected=str(stale.version)) is None
    assert queue.policy().name == "edf"


def test_arrivals_of_the_last_minute_are_the_load(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)
    store = PolicyStore(redis_client, queue.keys, Scripts(redis_client, queue.keys), "boost")
    assert store.load().arrivals_per_s == {}
    for number in range(30):
        queue.enqueue(final(f"s{number}", audio_s=3.0))
        queue.enqueue(partial("p", number))
    queue.heartbeat("w1", {})
    queue.heartbeat("w2", {})
    load = store.load()
    assert load.workers == 2
    assert load.arrivals_per_s[LANE] == pytest.approx(0.5, rel=0.1)
    assert load.arrivals_per_s[Lane(Kind.PARTIAL, 3)] == pytest.approx(1 / 60, rel=0.1), "an extension is no arrival"
    for key in redis_client.keys(queue.keys.arrivals_prefix + "*"):
        assert 0 < redis_client.ttl(key) <= 180


def test_a_redis_that_lost_its_data_gets_its_policy_back(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, policy="hrrn")
    queue.enqueue(final("s"))
    redis_client.flushall()
    assert queue.claim("w", nonce()) == ()
    assert queue.enqueue(final("s")).status is EnqueueStatus.QUEUED
    assert queue.policy().name == "hrrn"


@pytest.mark.parametrize("lost", ["policy", "heads"])
def test_a_deleted_rank_table_is_mended_without_losing_a_job(redis_client: redis.Redis, lost: str) -> None:
    queue = JobQueue(redis_client, policy="hrrn")
    for number in range(3):
        queue.enqueue(final(f"s{number}"), now_ms=START_MS + number)
    lease = claim_one(queue)
    redis_client.delete(getattr(queue.keys, lost))
    queue.cancel_session("s1")
    assert queue.fail(lease, "decode_failed", "again") == "requeued"
    assert [claim_one(queue).job.session for _ in range(2)] == ["s0", "s2"]
    assert queue.claim("w", nonce()) == ()


def test_ranks_are_readable_with_redis_cli(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, policy="priority")
    queue.policy()
    rank = get_policy("priority").rank(LANE, {LANE: 1.0}, Load())
    position = all_lanes().index(LANE) + 1
    assert redis_client.hget(queue.keys.policy, LANE.name) == (
        f"{position} {rank.tier} {rank.head_start_ms} {rank.rate} {rank.max_age_ms}".encode()
    )


def test_lanes_of_an_older_version_leave_the_index(redis_client: redis.Redis) -> None:
    """Else a claim could take jobs from a lane that nobody here knows."""
    queue = JobQueue(redis_client)
    ranks = queue.policy().ranks
    rows = tuple((lane.name, 0, 0.0, 1.0, 60_000.0) for lane in ranks)
    older = SetPolicy(now_ms=1, name="priority", expected="any", ranks=(*rows, ("final:60", 0, 0.0, 1.0, 60_000.0)))
    Scripts(redis_client, queue.keys).run(older)
    assert redis_client.strlen(queue.keys.heads) == 68 * (len(all_lanes()) + 1)
    queue.policy()
    assert redis_client.strlen(queue.keys.heads) == 68 * len(all_lanes())


def test_a_redis_that_is_emptied_again_and_again_has_a_policy_in_the_end(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(100))
    is_whole = PolicyStore._is_whole

    def emptied_before(store: PolicyStore, found: InstalledPolicy) -> bool:
        if next(looks) < 3:
            redis_client.flushall()
        return is_whole(store, found)

    monkeypatch.setattr(PolicyStore, "_is_whole", emptied_before)
    assert JobQueue(redis_client).policy().name == "priority"
    assert next(looks) >= 4
