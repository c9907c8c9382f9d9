"""A batch begins with the job that would be claimed alone, and its companions are what the worker's bounds say."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueing.batches import Batch, Batches
from queueing.errors import BadJob
from queueing.job import LeasedJob
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import WINDOWS_S, Kind, Lane
from queueing.policies import POLICIES
from queueing.scripts import Scripts
from queueing.verbs import Claim
from tests.support.queue_jobs import START_MS, in_lane, nonce

ON_REDIS = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
LIMITS = QueueLimits(stale_partial_ms=10**9, job_ttl_ms=10**9)
PARTIALS = [Lane(Kind.PARTIAL, window) for window in (2, 3, 4, 6, 30)]
FEW = [*PARTIALS, *PARTIALS, *(Lane(kind, window) for kind in (Kind.FINAL, Kind.FILE) for window in (2, 3, 30))]
"""Few enough that batches find company, most of them partials."""

jobs_waiting = st.lists(st.tuples(st.sampled_from(FEW), st.integers(0, 70_000)), min_size=1, max_size=30)
costs_of_lanes = st.dictionaries(st.sampled_from(FEW), st.floats(1.0, 20_000.0), max_size=8)


@st.composite
def bounds(draw: st.DrawFn) -> Batches:
    """Most lanes bounded, partials with and without smaller windows, some lanes not named."""
    unnamed = draw(st.sets(st.sampled_from(FEW), max_size=3))
    return Batches(
        {
            lane: Batch(draw(st.integers(1, 6)), draw(st.integers(0, 11)) if lane.kind is Kind.PARTIAL else 0)
            for lane in dict.fromkeys(FEW)
            if lane not in unnamed
        }
    )


def filled(client: redis.Redis, policy: str, costs: Mapping[Lane, float], jobs: list[tuple[Lane, int]]) -> JobQueue:
    client.flushall()
    queue = JobQueue(client, policy=policy, limits=LIMITS)
    if costs:
        client.hset(queue.keys.costs, mapping={lane.name: cost for lane, cost in costs.items()})
    for number, (lane, after) in enumerate(jobs):
        assert queue.enqueue(in_lane(f"j{number:02}", lane), now_ms=START_MS + after).status == "queued"
    return queue


def companions(
    waiting: Mapping[str, tuple[Lane, int]], head: LeasedJob, bound: Batch, scores: Mapping[str, float]
) -> list[str]:
    """The oracle: of all waiting jobs, those of the head's lane, then window by window down, each lane by score."""
    place = WINDOWS_S.index(head.lane.window_s)
    windows = WINDOWS_S[max(0, place - bound.smaller) : place + 1]
    able = [
        (-lane.window_s, scores[name], name)
        for name, (lane, _) in waiting.items()
        if lane.kind is head.lane.kind and lane.window_s in windows
    ]
    return [name for _, _, name in sorted(able)][: bound.most]


@pytest.mark.parametrize("name", POLICIES)
@ON_REDIS
@given(
    costs=costs_of_lanes,
    jobs=jobs_waiting,
    batches=bounds(),
    most=st.integers(1, 8),
    settle_ms=st.integers(0, 20_000),
    gap_ms=st.integers(0, 3_000),
    lost_reply=st.booleans(),
)
def test_batches_hold_under_every_policy(
    redis_client: redis.Redis,
    name: str,
    costs: Mapping[Lane, float],
    jobs: list[tuple[Lane, int]],
    batches: Batches,
    most: int,
    settle_ms: int,
    gap_ms: int,
    lost_reply: bool,
) -> None:
    queue = filled(redis_client, name, costs, jobs)
    ranks = queue.policy().ranks
    waiting = {f"j{number:02}": job for number, job in enumerate(jobs)}
    scores = {job: ranks[lane].score(START_MS + after) for job, (lane, after) in waiting.items()}
    now = START_MS + max(after for _, after in jobs) + settle_ms
    while waiting:
        (alone,) = queue.claim("probe", nonce(), now_ms=now)
        assert queue.release([alone]) == 1, "it waits again, as old as it was"
        token = nonce()
        batch = queue.claim("w", token, max_jobs=most, batches=batches, now_ms=now)
        assert batch[0].job.id == alone.job.id, "company changes nothing of who is first"
        bound = batches.by_lane.get(alone.lane, Batch(most))
        expected = companions(waiting, alone, Batch(min(most, bound.most), bound.smaller), scores)
        assert [lease.job.id for lease in batch] == expected
        for lease in batch:
            lane, after = waiting.pop(lease.job.id)
            assert (lease.lane, lease.arrival_ms) == (lane, START_MS + after), "a lifted job stays of its own lane"
        if lost_reply:
            assert queue.claim("w", token, max_jobs=most, batches=batches, now_ms=now + 9) == batch
        now += gap_ms
    assert queue.claim("w", nonce(), now_ms=now) == ()


@ON_REDIS
@given(jobs=jobs_waiting, batches=bounds(), most=st.integers(1, 64))
def test_a_final_or_file_is_only_ever_with_its_own_lane(
    redis_client: redis.Redis, jobs: list[tuple[Lane, int]], batches: Batches, most: int
) -> None:
    queue = filled(redis_client, "priority", {}, jobs)
    seen = 0
    while batch := queue.claim("w", nonce(), max_jobs=most, batches=batches, now_ms=START_MS + 80_000):
        seen += len(batch)
        assert len({lease.lane.kind for lease in batch}) == 1
        if batch[0].lane.kind is not Kind.PARTIAL:
            assert len({lease.lane for lease in batch}) == 1
        assert max(lease.lane.window_s for lease in batch) == batch[0].lane.window_s, "the first job's window holds all"
    assert seen == len(jobs)


def test_company_comes_only_from_lanes_that_the_worker_takes(redis_client: redis.Redis) -> None:
    head, next_one, last = (Lane(Kind.PARTIAL, window) for window in (5, 4, 3))
    queue = filled(redis_client, "fcfs", {}, [(head, 0), (next_one, 1), (last, 2), (last, 3)])
    wide = Batches({head: Batch(8, 11)})
    batch = queue.claim("w", nonce(), max_jobs=8, batches=wide, lanes=[head, last], now_ms=START_MS + 9)
    assert [lease.lane for lease in batch] == [head, last, last]
    assert [lease.lane for lease in queue.claim("w", nonce(), max_jobs=8, now_ms=START_MS + 9)] == [next_one]


def test_a_lone_job_is_taken_at_once_whatever_the_bounds(redis_client: redis.Redis) -> None:
    lane = Lane(Kind.PARTIAL, 8)
    queue = filled(redis_client, "priority", {}, [(lane, 0)])
    assert len(queue.claim("w", nonce(), max_jobs=8, batches=Batches({lane: Batch(8, 5)}), now_ms=START_MS)) == 1


@pytest.mark.parametrize(
    ("lane", "batch", "said"),
    [
        (Lane(Kind.FINAL, 8), Batch(2, 1), r"final:8 takes jobs of 1 smaller windows: only partials"),
        (Lane(Kind.FILE, 8), Batch(2, 3), r"file:8 takes jobs of 3 smaller windows"),
        (Lane(Kind.PARTIAL, 8), Batch(2, -1), r"partial:8 takes jobs of -1 smaller windows"),
        (Lane(Kind.PARTIAL, 8), Batch(0), r"partial:8 may hold 0 jobs, a claim takes 1 to 64"),
        (Lane(Kind.PARTIAL, 8), Batch(65), r"partial:8 may hold 65 jobs"),
    ],
)
def test_bounds_that_cannot_be_are_refused(lane: Lane, batch: Batch, said: str) -> None:
    with pytest.raises(BadJob, match=said):
        Batches({lane: batch})


def test_the_script_itself_never_leaves_the_kind(redis_client: redis.Redis) -> None:
    jobs = [(Lane(Kind.FINAL, 2), 0), (Lane(Kind.PARTIAL, 30), 1), (Lane(Kind.PARTIAL, 25), 2)]
    queue = filled(redis_client, "fcfs", {}, jobs)
    everything = Claim(
        now_ms=START_MS + 9, worker="w", nonce=nonce(), max_jobs=8, lease_ms=1_000, batches=" final:2 8 11 ", lanes=()
    )
    _, *leased = Scripts(redis_client, queue.keys).run(everything)
    assert len(leased) == 1
