"""g-Boost: g solves its equation, the boost falls with the cost, and everything stays finite."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueing.costs import MAX_COST_MS, MIN_COST_MS, prior_costs
from queueing.lane import Kind, Lane, all_lanes
from queueing.policies import get_policy
from queueing.policies.boost import BOOST_LIMIT_MS, LOAD_LIMIT, boost_ms, decay_rate, traffic
from queueing.policies.priority import head_start_ms
from queueing.policy import Load, rank_all

costs_ms = st.floats(MIN_COST_MS, 20_000.0)
mixes = st.lists(st.tuples(st.floats(0.01, 1.0), costs_ms), min_size=1, max_size=20)
"""(share of the arrivals, cost in ms)"""


def _scaled(mix: list[tuple[float, float]], utilisation: float) -> tuple[tuple[float, float], ...]:
    factor = utilisation / sum(rate * cost for rate, cost in mix)
    return tuple((rate * factor, cost) for rate, cost in mix)


@settings(deadline=None)
@given(mix=mixes, utilisation=st.floats(0.01, LOAD_LIMIT))
def test_g_solves_the_equation(mix: list[tuple[float, float]], utilisation: float) -> None:
    scaled = _scaled(mix, utilisation)

    g = decay_rate(scaled)

    assert g is not None
    assert g > 0
    assert sum(rate * math.expm1(g * cost) for rate, cost in scaled) == pytest.approx(g, rel=1e-9)


@settings(deadline=None)
@given(mix=mixes, g_times_mean=st.floats(0.05, 20.0))
def test_g_is_recovered_from_a_mix_made_for_it(mix: list[tuple[float, float]], g_times_mean: float) -> None:
    known = g_times_mean / max(cost for _, cost in mix)
    factor = known / sum(rate * math.expm1(known * cost) for rate, cost in mix)

    assert decay_rate(tuple((rate * factor, cost) for rate, cost in mix)) == pytest.approx(known, rel=1e-6)


@settings(deadline=None)
@given(mix=mixes, low=st.floats(0.05, 0.5), high=st.floats(0.55, LOAD_LIMIT))
def test_more_load_means_a_slower_decay_and_a_greater_boost(
    mix: list[tuple[float, float]], low: float, high: float
) -> None:
    calm, busy = decay_rate(_scaled(mix, low)), decay_rate(_scaled(mix, high))

    assert calm is not None
    assert busy is not None
    assert busy < calm
    assert boost_ms(100.0, busy, 1) >= boost_ms(100.0, calm, 1)


@settings(deadline=None)
@given(g=st.floats(1e-7, 10.0), costs=st.lists(costs_ms, min_size=2, max_size=10), workers=st.integers(0, 64))
def test_the_boost_falls_with_the_cost_within_its_bounds(g: float, costs: list[float], workers: int) -> None:
    boosts = [boost_ms(cost, g, workers) for cost in sorted(costs)]

    assert boosts == sorted(boosts, reverse=True)
    assert all(0 <= boost <= BOOST_LIMIT_MS for boost in boosts)


@given(g=st.floats(1e-3, 1e-2), cost=st.floats(10.0, 1_000.0), factor=st.floats(1.1, 3.0))
def test_the_boost_falls_strictly_below_its_limit(g: float, cost: float, factor: float) -> None:
    assert boost_ms(cost, g, 1) > boost_ms(cost * factor, g, 1)


@settings(deadline=None)
@given(
    arrivals=st.dictionaries(st.sampled_from(all_lanes()), st.floats(0.0, 1e9)),
    costs=st.fixed_dictionaries({lane: st.floats(MIN_COST_MS, MAX_COST_MS) for lane in all_lanes()}),
    workers=st.integers(0, 1_000),
)
def test_no_load_makes_a_rank_that_is_not_finite(
    arrivals: dict[Lane, float], costs: dict[Lane, float], workers: int
) -> None:
    for lane, rank in rank_all(get_policy("boost"), costs, Load(arrivals, workers)).items():
        extra = rank.head_start_ms - head_start_ms(lane)
        assert -1e-6 <= extra <= BOOST_LIMIT_MS + 1e-6


@pytest.mark.parametrize(
    "load",
    [
        Load(),
        Load({}, workers=0),
        *(Load({Lane(Kind.FINAL, 10): per_s}, workers=3) for per_s in (0.0, 5e-324, 1e-320, 1e-300, 1e-12)),
    ],
)
def test_without_a_known_load_boost_is_priority(load: Load) -> None:
    assert rank_all(get_policy("boost"), prior_costs(), load) == rank_all(get_policy("priority"), prior_costs(), load)


def test_beyond_the_load_limit_the_mix_counts_and_not_the_amount() -> None:
    costs = prior_costs()
    busy, swamped = (Load({Lane(Kind.FINAL, 4): n, Lane(Kind.FINAL, 30): n}, workers=1) for n in (5.0, 5_000.0))

    assert rank_all(get_policy("boost"), costs, busy)[Lane(Kind.FINAL, 4)].head_start_ms == pytest.approx(
        rank_all(get_policy("boost"), costs, swamped)[Lane(Kind.FINAL, 4)].head_start_ms
    )
    assert sum(rate * cost for rate, cost in traffic(costs, swamped)) == pytest.approx(LOAD_LIMIT)


@settings(deadline=None)
@given(workers=st.integers(1, 32), utilisation=st.floats(0.05, 0.9), cost=st.floats(20.0, 2_000.0))
def test_k_workers_are_one_that_is_k_times_as_fast(workers: int, utilisation: float, cost: float) -> None:
    lane = Lane(Kind.FINAL, 10)
    per_s = utilisation * workers / cost * 1_000.0
    many = get_policy("boost").rank(lane, {lane: cost}, Load({lane: per_s}, workers))
    fast = get_policy("boost").rank(lane, {lane: cost / workers}, Load({lane: per_s}, 1))

    assert many.head_start_ms == pytest.approx(fast.head_start_ms, rel=1e-9)
