"""Choosing among lane heads by rank is choosing among all jobs by the policy's textbook definition; who starves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueing.bench_order import Arrival, responses, serve
from queueing.costs import prior_costs
from queueing.lane import Kind, Lane, all_lanes
from queueing.policies import POLICIES, get_policy
from queueing.policies.boost import boost_ms, decay_rate, traffic
from queueing.policy import MAX_AGE_MS, Load, rank_all
from tests.support.policy_model import LaneQueue, Waiting, best, preferences, same_standing, standing

START_MS = 1_750_000_000_000
"""Arrivals are near today's Unix time in ms, so that the doubles are those of a real queue."""

lane_costs = st.fixed_dictionaries({lane: st.floats(1.0, 20_000.0) for lane in all_lanes()})
loads = st.builds(
    Load, st.dictionaries(st.sampled_from(all_lanes()), st.floats(0.0, 20.0), max_size=5), st.integers(0, 8)
)
arrivals = st.lists(st.tuples(st.sampled_from(all_lanes()), st.integers(0, 90_000)), min_size=1, max_size=40)
"""(lane, ms after START_MS): some jobs are overdue when they are claimed."""


@pytest.mark.parametrize("name", POLICIES)
@settings(deadline=None, max_examples=60)
@given(costs=lane_costs, load=loads, jobs=arrivals, gap_ms=st.integers(0, 3_000))
def test_each_claim_takes_a_job_that_no_waiting_job_should_precede(
    name: str, costs: dict[Lane, float], load: Load, jobs: list[tuple[Lane, int]], gap_ms: int
) -> None:
    policy = get_policy(name)
    g = decay_rate(traffic(costs, load))
    preference = preferences(lambda cost_ms: boost_ms(cost_ms, g, load.workers))[name]
    queue = LaneQueue(rank_all(policy, costs, load))
    waiting = [Waiting(lane, START_MS + after, costs[lane]) for lane, after in sorted(jobs, key=lambda job: job[1])]
    for job in waiting:
        queue.add(job)

    now = waiting[-1].arrival_ms
    while waiting:
        taken = queue.take(now)
        assert taken is not None
        assert same_standing(standing(taken, now, preference), best(waiting, now, preference))
        waiting.remove(taken)
        now += gap_ms
    assert queue.take(now) is None


@settings(deadline=None)
@given(cost_ms=st.floats(1.0, 600_000.0), arrival_ms=st.integers(0, 10**13), wait_ms=st.integers(0, 3_600_000))
def test_hrrn_urgency_is_the_response_ratio(cost_ms: float, arrival_ms: int, wait_ms: int) -> None:
    lane = Lane(Kind.FINAL, 10)
    rank = get_policy("hrrn").rank(lane, {lane: cost_ms}, Load())

    assert rank.urgency(arrival_ms, arrival_ms + wait_ms) == pytest.approx(
        (wait_ms + cost_ms) / cost_ms, rel=1e-6, abs=0.01 / cost_ms
    )


@settings(deadline=None)
@given(costs=lane_costs, earlier=st.integers(1, 600_000), first=st.sampled_from(all_lanes()))
def test_scores_keep_milliseconds_apart_under_every_policy(costs: dict[Lane, float], earlier: int, first: Lane) -> None:
    for name in POLICIES:
        rank = get_policy(name).rank(first, costs, Load())
        assert rank.score(START_MS) < rank.score(START_MS + 1) < rank.score(START_MS + earlier + 1)


@pytest.mark.parametrize("name", ["fcfs", "priority", "edf", "boost"])
@settings(deadline=None, max_examples=60)
@given(costs=lane_costs, load=loads, jobs=arrivals)
def test_where_nobody_starves_only_jobs_of_a_bounded_time_after_overtake(
    name: str, costs: dict[Lane, float], load: Load, jobs: list[tuple[Lane, int]]
) -> None:
    ranks = rank_all(get_policy(name), costs, load)
    queue = LaneQueue(ranks)
    for lane, after in sorted(jobs, key=lambda job: job[1]):
        queue.add(Waiting(lane, START_MS + after, costs[lane]))
    longest = max(rank.head_start_ms for rank in ranks.values())
    # just before anything is overdue, as the age limit is another rule
    now = START_MS + min(MAX_AGE_MS.values()) - 1

    served: list[Waiting] = []
    while (job := queue.take(now)) is not None:
        reach = longest - ranks[job.lane].head_start_ms
        assert all(before.arrival_ms <= job.arrival_ms + reach + 0.01 for before in served)
        served.append(job)


SHORT, LONG, PARTIAL, FILE = Lane(Kind.FINAL, 3), Lane(Kind.FINAL, 30), Lane(Kind.PARTIAL, 3), Lane(Kind.FILE, 3)
LATE_PARTIAL = Lane(Kind.PARTIAL, 8)
COSTS = {**prior_costs(), SHORT: 100.0, LONG: 1_000.0, PARTIAL: 100.0, FILE: 100.0}


def _start_under_flood(name: str, victim: Lane, until_ms: int = 120_000) -> float:
    """When a job of lane ``victim`` that came first starts, while short finals keep one worker exactly busy."""
    flood = [Arrival(at, SHORT, float(at), COSTS[SHORT]) for at in range(0, until_ms, int(COSTS[SHORT]))]
    job = Arrival(-1, victim, 0.5, COSTS[victim])
    return serve(get_policy(name), [job, *flood], Load({SHORT: 9.0}), COSTS)[job] - job.arrival_ms


@pytest.mark.parametrize(
    ("name", "victim", "least_ms", "most_ms"),
    [
        # long final under a flood of short ones: sjf leaves it until its age limit, the others do not
        ("fcfs", LONG, 0, 200),
        ("priority", LONG, 0, 200),
        ("edf", LONG, 0, 200),
        ("strict", LONG, 0, 200),
        ("boost", LONG, 0, 10_000),
        ("hrrn", LONG, 0, 2_000),
        ("sjf", LONG, 30_000, 30_200),
        # a partial under a flood of finals: strict, sjf and hrrn leave it until its age limit
        ("fcfs", PARTIAL, 0, 200),
        ("priority", PARTIAL, 8_300, 8_700),
        ("priority", LATE_PARTIAL, 9_800, 10_200),
        ("edf", PARTIAL, 800, 1_200),
        ("boost", PARTIAL, 8_300, 8_700),
        ("strict", PARTIAL, 60_000, 60_200),
        ("sjf", PARTIAL, 60_000, 60_200),
        ("hrrn", PARTIAL, 60_000, 60_200),
        # a file under a flood of finals
        ("fcfs", FILE, 0, 200),
        ("priority", FILE, 39_800, 40_200),
        ("boost", FILE, 39_800, 40_200),
    ],
)
def test_who_can_starve_and_for_how_long(name: str, victim: Lane, least_ms: float, most_ms: float) -> None:
    assert least_ms <= _start_under_flood(name, victim) <= most_ms


def test_size_policies_pay_on_clips_of_mixed_length() -> None:
    """Shortest first has the least mean, response ratio comes next; boost gains in the mean and keeps the tail."""
    means, p99 = {}, {}
    for name in ("fcfs", "sjf", "hrrn", "boost"):
        times = responses(name, "clips", 0.85, 5_000, range(4))[Kind.FINAL]
        means[name], p99[name] = sum(times) / len(times), times[int(0.99 * len(times))]

    assert means["sjf"] < means["hrrn"] < means["boost"] < means["fcfs"]
    assert p99["boost"] < p99["fcfs"] < p99["hrrn"] < p99["sjf"]


def test_a_head_start_for_finals_pays_where_kinds_mix() -> None:
    p95 = {
        name: {kind: times[int(0.95 * len(times))] for kind, times in responses(name, "kinds", 0.9, 5_000, [1]).items()}
        for name in ("fcfs", "priority")
    }

    assert p95["priority"][Kind.FINAL] < 0.5 * p95["fcfs"][Kind.FINAL]
    assert p95["priority"][Kind.PARTIAL] < p95["fcfs"][Kind.PARTIAL]
    assert p95["priority"][Kind.FILE] > p95["fcfs"][Kind.FILE]
