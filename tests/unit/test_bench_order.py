"""The simulation behind the response times in docs/scheduling.md."""

from __future__ import annotations

import pytest

from queueing.bench_order import SHARES, arrivals, responses, serve
from queueing.bench_redis import Summary
from queueing.lane import Kind
from queueing.policies import POLICIES, get_policy


@pytest.mark.parametrize("mix", SHARES)
def test_the_mix_has_the_load_and_shares_it_claims(mix: str) -> None:
    jobs, load, costs = arrivals(mix, 0.8, 20_000, seed=1)

    work = sum(rate * costs[lane] / 1_000.0 for lane, rate in load.arrivals_per_s.items())
    assert work == pytest.approx(0.8)
    for kind, share in SHARES[mix].items():
        of_kind = sum(rate * costs[lane] / 1_000.0 for lane, rate in load.arrivals_per_s.items() if lane.kind is kind)
        assert of_kind == pytest.approx(0.8 * share)
    assert sum(job.cost_ms for job in jobs) / jobs[-1].arrival_ms == pytest.approx(0.8, rel=0.05)


@pytest.mark.parametrize("name", POLICIES)
def test_one_worker_serves_every_job_once_and_never_idles_while_jobs_wait(name: str) -> None:
    jobs, load, costs = arrivals("kinds", 0.9, 400, seed=2)

    starts = serve(get_policy(name), jobs, load, costs)

    assert set(starts) == set(jobs)
    assert all(start >= job.arrival_ms for job, start in starts.items())
    in_turn = sorted(starts, key=starts.__getitem__)
    free = 0.0
    for place, job in enumerate(in_turn):
        assert starts[job] == pytest.approx(max(free, min(later.arrival_ms for later in in_turn[place:])))
        free = starts[job] + job.cost_ms


def test_the_same_seed_gives_the_same_figures() -> None:
    assert responses("boost", "clips", 0.9, 200, [7]) == responses("boost", "clips", 0.9, 200, [7])
    assert responses("boost", "clips", 0.9, 200, [7]) != responses("boost", "clips", 0.9, 200, [8])
    assert set(responses("fcfs", "kinds", 0.9, 200, [7])) == set(Kind)


def test_a_summary_keeps_the_median_and_the_extremes() -> None:
    assert Summary.of([3.0, 1.0, 10.0]) == Summary(median=3.0, least=1.0, most=10.0)
