"""The cheap look at the backlog agrees with the full one, whatever waits and under every policy."""

from __future__ import annotations

import random
from typing import Any

import pytest
import redis

from queueing.backlog import TYPICAL_PARTIAL, Backlog
from queueing.job_queue import JobQueue
from queueing.lane import Kind, Lane, all_lanes
from queueing.policies import POLICIES
from tests.support.queue_jobs import final, in_lane, nonce


@pytest.mark.parametrize("policy", POLICIES)
def test_it_counts_the_jobs_that_the_full_look_counts(
    redis_client: redis.Redis, policy: str, rng: random.Random
) -> None:
    queue = JobQueue(redis_client, policy=policy)
    for lane in rng.sample(all_lanes(), 20):
        redis_client.hset(queue.keys.costs, lane.name, str(rng.uniform(20, 900)))
    queue.set_policy(policy)
    seconds, _ = redis_client.time()
    for number in range(60):
        # Ages are far from each policy's thresholds, as time passes between the two looks.
        age_ms = rng.choice([500, 4_000, 20_000, 50_000, 1_900_000])
        queue.enqueue(in_lane(f"j{number}", rng.choice(all_lanes())), now_ms=seconds * 1000 - age_ms)
    queue.claim("w", nonce(), max_jobs=3)
    stats, backlog = queue.stats(), queue.backlog()
    assert {one.lane: (one.depth, one.before_final) for one in backlog.lanes} == {
        one.lane: (one.depth, one.ahead) for one in stats.lanes if one.depth
    }
    assert backlog.measured
    learned = {one.lane: one.cost_ms for one in stats.lanes if one.learned}
    for one in backlog.lanes:
        assert one.cost_ms == pytest.approx(learned.get(one.lane, one.cost_ms))
        oldest = next(lane.oldest_age_ms for lane in stats.lanes if lane.lane == one.lane)
        assert one.oldest_age_ms == pytest.approx(oldest, abs=5_000)


def test_a_partial_waits_for_every_final(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)
    redis_client.hset(queue.keys.costs, Lane(Kind.FINAL, 10).name, "250")
    redis_client.hset(queue.keys.costs, TYPICAL_PARTIAL.name, "100")
    for number in range(4):
        queue.enqueue(final(f"s{number}", 0, 7.0))
        queue.enqueue(in_lane(f"p{number}", TYPICAL_PARTIAL))
    backlog = queue.backlog()
    assert backlog.final_wait_ms(2) == pytest.approx(500)
    assert backlog.partial_wait_ms(2) == pytest.approx(700)
    assert backlog.final_wait_ms(0) is None
    queue.claim("w", nonce())
    assert queue.backlog().final_wait_ms(1) == pytest.approx(750 + 50), "what runs counts half of a typical partial"


def test_costs_that_are_not_learned_are_scaled_by_those_that_are(redis_client: redis.Redis) -> None:
    """Of a machine that is ten times as fast as the guess in one lane, no other lane is thought slow."""
    queue = JobQueue(redis_client)
    redis_client.hset(queue.keys.costs, Lane(Kind.PARTIAL, 4).name, "19.2")
    queue.enqueue(final("s", 0, 7.0))
    assert queue.backlog().final_wait_ms(1) == pytest.approx(30.0)


def test_an_empty_redis_shows_no_backlog_and_stays_empty(redis_client: redis.Redis) -> None:
    assert JobQueue(redis_client).backlog() == Backlog()
    assert redis_client.dbsize() == 0


def test_it_takes_one_round_trip_while_nothing_waits_and_two_otherwise(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = JobQueue(redis_client)
    made: list[object] = []
    plain = redis_client.pipeline

    def counted(**options: Any) -> Any:
        made.append(options)
        return plain(**options)

    monkeypatch.setattr(redis_client, "pipeline", counted)
    queue.backlog()
    assert len(made) == 1
    for number in range(50):
        queue.enqueue(final(f"s{number}"))
    made.clear()
    queue.backlog()
    assert len(made) == 2
