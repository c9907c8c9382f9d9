"""Redis claims jobs in exactly the order that a search through all waiting jobs would give."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueing.costs import MAX_COST_MS, merge_costs
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import Kind, Lane, all_lanes
from queueing.policies import POLICIES
from queueing.policies.boost import boost_ms, decay_rate, traffic
from queueing.policy import LaneRank, Load
from queueing.scripts import Scripts
from queueing.verbs import SetPolicy
from tests.support.policy_model import Waiting, best, preferences, same_standing, standing
from tests.support.queue_jobs import START_MS, in_lane, nonce

ON_REDIS = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
LIMITS = QueueLimits(stale_partial_ms=10**9, job_ttl_ms=10**9)

lanes = st.sampled_from(all_lanes())
costs_of_lanes = st.dictionaries(lanes, st.floats(1.0, 20_000.0), max_size=12)
arrivals = st.lists(st.tuples(lanes, st.integers(0, 90_000)), min_size=1, max_size=25)
"""(lane, ms after START_MS): some jobs are overdue when they are claimed, many lanes are shared."""


@dataclass(frozen=True)
class Job:
    id: str
    lane: Lane
    arrival_ms: int


def fresh(client: redis.Redis, policy: str, costs: dict[Lane, float]) -> JobQueue:
    client.flushall()
    queue = JobQueue(client, policy=policy, limits=LIMITS)
    if costs:
        client.hset(queue.keys.costs, mapping={lane.name: cost for lane, cost in costs.items()})
    queue.policy()
    return queue


def fill(queue: JobQueue, jobs: list[tuple[Lane, int]]) -> list[Job]:
    made = [Job(f"j{number:02}", lane, START_MS + after) for number, (lane, after) in enumerate(jobs)]
    for job in made:
        assert queue.enqueue(in_lane(job.id, job.lane), now_ms=job.arrival_ms).status == "queued"
    return made


def first_of(waiting: list[Job], ranks: dict[Lane, LaneRank], now_ms: int) -> Job:
    """The oracle: looks at every job. Ties go to the earlier lane, then to the lower score, then to the lower id."""

    def last_resort(job: Job) -> tuple[int, float, str]:
        return (all_lanes().index(job.lane), ranks[job.lane].score(job.arrival_ms), job.id)

    overdue = [job for job in waiting if ranks[job.lane].overdue_ms(job.arrival_ms, now_ms) >= 0]
    if overdue:
        return min(overdue, key=lambda job: (-ranks[job.lane].overdue_ms(job.arrival_ms, now_ms), *last_resort(job)))
    tier = min(ranks[job.lane].tier for job in waiting)
    return min(
        (job for job in waiting if ranks[job.lane].tier == tier),
        key=lambda job: (-ranks[job.lane].urgency(job.arrival_ms, now_ms), *last_resort(job)),
    )


@pytest.mark.parametrize("name", POLICIES)
@ON_REDIS
@given(costs=costs_of_lanes, jobs=arrivals, gap_ms=st.integers(0, 3_000), settle_ms=st.integers(0, 40_000))
def test_every_policy_claims_in_the_order_of_the_oracle(
    redis_client: redis.Redis,
    name: str,
    costs: dict[Lane, float],
    jobs: list[tuple[Lane, int]],
    gap_ms: int,
    settle_ms: int,
) -> None:
    queue = fresh(redis_client, name, costs)
    ranks = dict(queue.policy().ranks)
    waiting = fill(queue, jobs)
    now = max(job.arrival_ms for job in waiting) + settle_ms
    while waiting:
        expected = first_of(waiting, ranks, now)
        (lease,) = queue.claim("w", nonce(), now_ms=now)
        assert (lease.job.id, lease.lane) == (expected.id, expected.lane)
        waiting.remove(expected)
        now += gap_ms
    assert queue.claim("w", nonce(), now_ms=now) == ()


@pytest.mark.parametrize("name", POLICIES)
@ON_REDIS
@given(costs=costs_of_lanes, jobs=arrivals, gap_ms=st.integers(0, 3_000))
def test_every_policy_claims_as_its_textbook_says(
    redis_client: redis.Redis, name: str, costs: dict[Lane, float], jobs: list[tuple[Lane, int]], gap_ms: int
) -> None:
    """The same against definitions that know nothing of lanes and ranks (for hrrn: the greatest response ratio)."""
    queue = fresh(redis_client, name, costs)
    known = merge_costs({lane.name: cost for lane, cost in costs.items()})
    # The load at the time of installation is empty: the policy was installed before the first job came.
    preference = preferences(lambda cost_ms: boost_ms(cost_ms, decay_rate(traffic(known, Load())), 1))[name]
    waiting = {
        job.id: Waiting(job.lane, job.arrival_ms, known[job.lane]) for job in fill(queue, sorted(jobs, key=_after))
    }
    now = max(int(job.arrival_ms) for job in waiting.values())
    while waiting:
        (lease,) = queue.claim("w", nonce(), now_ms=now)
        taken = waiting[lease.job.id]
        assert same_standing(standing(taken, now, preference), best(list(waiting.values()), now, preference))
        del waiting[lease.job.id]
        now += gap_ms


@ON_REDIS
@given(costs=costs_of_lanes, jobs=arrivals, waits_ms=st.integers(0, 25_000))
def test_hrrn_takes_the_greatest_response_ratio_of_all_jobs(
    redis_client: redis.Redis, costs: dict[Lane, float], jobs: list[tuple[Lane, int]], waits_ms: int
) -> None:
    queue = fresh(redis_client, "hrrn", costs)
    known = merge_costs({lane.name: cost for lane, cost in costs.items()})
    only = [(Lane(Kind.FINAL, lane.window_s), after % 5_000) for lane, after in jobs]
    waiting = fill(queue, only)
    now = max(job.arrival_ms for job in waiting) + waits_ms

    def ratio(job: Job) -> float:
        return ((now - job.arrival_ms) + known[job.lane]) / known[job.lane]

    while waiting:
        (lease,) = queue.claim("w", nonce(), now_ms=now)
        (taken,) = (job for job in waiting if job.id == lease.job.id)
        assert ratio(taken) == pytest.approx(max(ratio(job) for job in waiting), rel=1e-6)
        waiting.remove(taken)


@ON_REDIS
@given(
    jobs=arrivals,
    costs=costs_of_lanes,
    path=st.lists(st.sampled_from(list(POLICIES)), min_size=1, max_size=4),
    settle_ms=st.integers(0, 20_000),
)
def test_after_changes_of_policy_the_order_is_the_last_ones(
    redis_client: redis.Redis, jobs: list[tuple[Lane, int]], costs: dict[Lane, float], path: list[str], settle_ms: int
) -> None:
    queue = fresh(redis_client, "sjf", costs)
    waiting = fill(queue, jobs)
    for name in path:
        queue.set_policy(name)
    ranks = dict(queue.policy().ranks)
    now = max(job.arrival_ms for job in waiting) + settle_ms
    while waiting:
        expected = first_of(waiting, ranks, now)
        (lease,) = queue.claim("w", nonce(), now_ms=now)
        assert lease.job.id == expected.id
        waiting.remove(expected)
    assert queue.stats().waiting == 0


HEAD_STARTS = st.one_of(
    st.floats(-1e7 * MAX_COST_MS, 1e7),
    st.sampled_from([-1e7 * MAX_COST_MS, -1e7 * 174.123456789, -1e7, 2_000.0, 60_000.0, 264.1, 0.1 + 0.2]),
)


@ON_REDIS
@given(
    arrival=st.integers(1_000_000_000_000, 4_102_444_800_000),
    head_starts=st.lists(HEAD_STARTS, min_size=1, max_size=3),
    steps=st.lists(st.integers(1, 3), min_size=1, max_size=8),
    lane=lanes,
)
def test_milliseconds_stay_apart_for_any_arrival_and_head_start_in_use(
    redis_client: redis.Redis, arrival: int, head_starts: list[float], steps: list[int], lane: Lane
) -> None:
    """Ids run against time, so any lost millisecond would turn the order round."""
    queue = fresh(redis_client, "fcfs", {})
    scripts = Scripts(redis_client, queue.keys)

    def install(head_start: float) -> None:
        rows = tuple((each.name, 0, head_start, 1.0, 1e12) for each in all_lanes())
        scripts.run(SetPolicy(now_ms=1, name="fcfs", expected="any", ranks=rows))

    install(head_starts[0])
    expected = {}
    for number, step in enumerate(steps):
        arrival += step
        job_id = f"j{len(steps) - number:02}"
        expected[job_id] = arrival
        queue.enqueue(in_lane(job_id, lane), now_ms=arrival)
    for head_start in head_starts[1:]:
        install(head_start)
    claimed = [queue.claim("w", nonce(), now_ms=arrival)[0] for _ in steps]
    assert {lease.job.id: lease.arrival_ms for lease in claimed} == expected
    assert [lease.job.id for lease in claimed] == list(expected)


@pytest.mark.parametrize("name", ["strict", "sjf"])
def test_the_greatest_age_counts_to_the_millisecond(redis_client: redis.Redis, name: str) -> None:
    """sjf's head start has a fraction here, so the age must survive the subtraction that made the score."""
    old, young = Lane(Kind.FILE, 8), Lane(Kind.FINAL, 3)
    queue = fresh(redis_client, name, {old: 1234.56789})
    limit = int(queue.policy().ranks[old].max_age_ms)
    for now in (START_MS + limit - 1, START_MS + limit):
        fill(queue, [(old, 0)])
        queue.enqueue(in_lane("young", young), now_ms=now)
        first = queue.claim("w", nonce(), now_ms=now)[0]
        assert first.lane == (old if now - START_MS == limit else young)
        queue = fresh(redis_client, name, {old: 1234.56789})


def test_the_oracle_can_tell_policies_apart(redis_client: redis.Redis) -> None:
    """Else the properties above would hold for any order."""
    orders = set()
    for name in POLICIES:
        queue = fresh(redis_client, name, {})
        fill(queue, [(lane, 700 * (place * 7 % 13)) for place, lane in enumerate(all_lanes())])
        now = START_MS + 9_000
        order = tuple(queue.claim("w", nonce(), now_ms=now + step * 200)[0].job.id for step in range(len(all_lanes())))
        orders.add(order)
    assert len(orders) >= 5


def _after(job: tuple[Lane, int]) -> int:
    return job[1]
