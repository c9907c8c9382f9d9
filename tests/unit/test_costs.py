"""Lane costs: the prior, learned values over it, drift."""

from __future__ import annotations

import pytest

from queueing.costs import MAX_COST_MS, MIN_COST_MS, drifted, merge_costs, prior_cost_ms, prior_costs
from queueing.lane import Kind, Lane, all_lanes

FOUR, TEN = Lane(Kind.PARTIAL, 4), Lane(Kind.FINAL, 10)


@pytest.mark.parametrize(
    ("window_s", "cost_ms"),
    [(2, 156), (4, 192), (10, 300), (30, 660)],
)
def test_the_prior_is_affine_in_the_window(window_s: int, cost_ms: float) -> None:
    assert prior_cost_ms(Lane(Kind.FINAL, window_s)) == pytest.approx(cost_ms)


def test_a_longer_window_always_costs_more_at_first() -> None:
    for kind in Kind:
        costs = [prior_cost_ms(lane) for lane in all_lanes() if lane.kind is kind]
        assert costs == sorted(set(costs))


def test_learned_costs_replace_the_prior_lane_by_lane() -> None:
    costs = merge_costs({b"partial:4": b"81.5", b"final:10": b"402"})

    assert tuple(costs) == all_lanes()
    assert costs[FOUR] == 81.5
    assert costs[TEN] == 402.0
    assert costs[Lane(Kind.FINAL, 4)] == prior_cost_ms(Lane(Kind.FINAL, 4))
    assert merge_costs({"partial:4": 81.5, "final:10": 402.0}) == costs


@pytest.mark.parametrize("value", ["", "fast", "nan", "inf", "-inf", "-5", "0"])
def test_a_value_that_is_no_cost_gives_way_to_the_prior(value: str) -> None:
    assert merge_costs({"partial:4": value}) == prior_costs()


@pytest.mark.parametrize(("value", "cost_ms"), [("0.001", MIN_COST_MS), ("1e12", MAX_COST_MS)])
def test_a_learned_cost_is_held_within_its_bounds(value: str, cost_ms: float) -> None:
    assert merge_costs({"partial:4": value})[FOUR] == cost_ms


def test_lanes_of_another_version_are_left_out() -> None:
    assert merge_costs({b"partial:7": b"1", b"\xff\xfe": b"2", b"nonsense": b"3"}) == prior_costs()


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "has_drifted"),
    [
        (100.0, 100.0, False),
        (100.0, 110.0, False),
        (100.0, 110.1, True),
        (100.0, 90.0, False),
        (100.0, 89.9, True),
    ],
)
def test_a_cost_has_drifted_when_it_changed_by_more_than_a_tenth(
    before_ms: float, after_ms: float, has_drifted: bool
) -> None:
    before = {**prior_costs(), FOUR: before_ms}
    after = {**prior_costs(), FOUR: after_ms}

    assert drifted(before, after) == ((FOUR,) if has_drifted else ())


def test_a_lane_without_a_cost_before_has_drifted() -> None:
    assert drifted({}, {FOUR: 100.0}) == (FOUR,)


def test_the_limit_of_drift_can_be_given() -> None:
    assert drifted({FOUR: 100.0}, {FOUR: 140.0}, limit=0.5) == ()
    assert drifted({FOUR: 100.0}, {FOUR: 151.0}, limit=0.5) == (FOUR,)
