"""What a final that comes now waits for: which jobs go before it, and how long they take."""

from __future__ import annotations

from dataclasses import replace

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from queueing.costs import prior_cost_ms
from queueing.job_queue import JobQueue
from queueing.lane import Kind, Lane, all_lanes
from queueing.policies import POLICIES
from queueing.policy import LaneRank
from queueing.policy_store import InstalledPolicy
from queueing.registry import WorkerInfo
from queueing.stats import TYPICAL_FINAL, LaneStats, LeaseStats, QueueStats, score_ahead
from tests.support.queue_jobs import final, in_lane, nonce, partial

NOW = 1_7_00000_000_000.0
RANK = LaneRank(0, 0.0, 1.0, 1e12)

ranks = st.builds(
    LaneRank,
    st.integers(0, 2),
    st.floats(-1e7, 1e7),
    st.floats(1e-4, 10.0),
    st.floats(1_000.0, 1e7),
)


@given(lane=ranks, last=ranks, age_ms=st.integers(0, 2_000_000))
def test_the_jobs_ahead_are_those_that_the_claim_rule_prefers(lane: LaneRank, last: LaneRank, age_ms: int) -> None:
    arrival = NOW - age_ms
    difference = lane.urgency(arrival, NOW) - last.urgency(NOW, NOW)
    overdue = lane.overdue_ms(arrival, NOW)
    if min(abs(overdue), abs(difference) / lane.rate) < 0.01:
        return  # within what a double keeps of a score
    first = overdue >= 0 or lane.tier < last.tier or (lane.tier == last.tier and difference > 0)
    assert (lane.score(arrival) <= score_ahead(lane, last, NOW)) == first


def stats(lanes: dict[Lane, tuple[int, float]], leases: list[tuple[str, Lane, int]], *states: str) -> QueueStats:
    """``lanes``: (ahead, cost); ``leases``: (worker, lane, claimed so many ms ago)."""
    costs = {lane: prior_cost_ms(lane) for lane in all_lanes()} | {lane: cost for lane, (_, cost) in lanes.items()}
    return QueueStats(
        taken_ms=int(NOW),
        policy=InstalledPolicy("priority", 1, 0, {}),
        lanes=tuple(
            LaneStats(lane, 0, None, costs[lane], True, RANK, ahead=lanes.get(lane, (0, 0.0))[0])
            for lane in all_lanes()
        ),
        leases=tuple(
            LeaseStats(final("s"), lane, worker, 1, 1, int(NOW) - ago, int(NOW) + 9_000, 9_000)
            for worker, lane, ago in leases
        ),
        workers=tuple(WorkerInfo(f"w{n}", 0, 100, {"state": state}) for n, state in enumerate(states)),
        dead=0,
        open_partials=0,
        counts={},
    )


SHORT, LONG = Lane(Kind.PARTIAL, 4), Lane(Kind.FINAL, 15)


def test_the_wait_is_the_work_ahead_over_the_workers() -> None:
    waiting = {SHORT: (3, 50.0), LONG: (2, 200.0)}
    assert stats(waiting, [], "ready").predicted_wait_ms == 550.0
    assert stats(waiting, [], "ready", "busy").predicted_wait_ms == 275.0
    assert stats({}, [], "ready").predicted_wait_ms == 0.0


def test_workers_that_cannot_take_work_do_not_count() -> None:
    assert stats({}, []).predicted_wait_ms is None
    assert stats({}, [], "loading", "draining").predicted_wait_ms is None
    one = stats({SHORT: (1, 50.0)}, [], "ready", "busy")
    silent = replace(one, workers=tuple(replace(worker, age_ms=6_001 * n) for n, worker in enumerate(one.workers)))
    assert silent.predicted_wait_ms == 50.0


def test_what_runs_counts_with_what_is_left_of_it() -> None:
    costs = {SHORT: (0, 100.0)}
    batch = [("w0", SHORT, 150)] * 3
    assert stats(costs, batch, "busy").predicted_wait_ms == 150.0
    late = [("w0", SHORT, 5_000)] * 3
    assert stats(costs, late, "busy").predicted_wait_ms == 0.0, "a decode that takes longer than known ends soon"
    assert stats(costs, [*late, ("w1", SHORT, 40)], "busy", "busy").predicted_wait_ms == 30.0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_snapshot_counts_the_jobs_that_are_claimed_before_a_final_of_now(
    redis_client: redis.Redis, policy: str
) -> None:
    """Ages are far from each policy's thresholds, as time passes between the snapshot and the claims."""
    queue = JobQueue(redis_client, policy=policy)
    seconds, _ = redis_client.time()
    now = seconds * 1000
    for number, (lane, age_ms) in enumerate(
        [
            (Lane(Kind.FINAL, 3), 7_000),
            (Lane(Kind.FINAL, 30), 400),
            (Lane(Kind.PARTIAL, 5), 900),
            (Lane(Kind.PARTIAL, 5), 7_000),
            (Lane(Kind.PARTIAL, 6), 20_000),
            (Lane(Kind.FILE, 30), 1_000),
            (Lane(Kind.FILE, 30), 60_000),
            (Lane(Kind.FILE, 4), 1_900_000),
        ]
    ):
        queue.enqueue(in_lane(f"j{number}", lane), now_ms=now - age_ms)
    ahead = sum(lane.ahead for lane in queue.stats().lanes)
    queue.enqueue(in_lane("probe", TYPICAL_FINAL))
    order = [queue.claim("w", nonce())[0].job.id for _ in range(9)]
    assert order.index("probe") == ahead
    assert 1 <= ahead <= 8


def test_the_snapshot_predicts_from_costs_and_heartbeats(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client)
    assert queue.stats().predicted_wait_ms is None
    for number in range(3):
        queue.enqueue(final(f"s{number}", 0, 7.0))
    queue.enqueue(partial("p", 1, 1.0))
    redis_client.hset(queue.keys.costs, Lane(Kind.FINAL, 10).name, "250")
    queue.heartbeat("w1", {"state": "ready"})
    snapshot = queue.stats()
    assert snapshot.predicted_wait_ms == 750.0, "the partial came just now: a final goes before it"
    assert snapshot.running_ms == 0
