"""Predicted batch times and the bounds they give."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueing.batches import Batch
from queueing.costs import prior_batch_ms, prior_cost_ms
from queueing.lane import Kind, Lane, all_lanes
from workers.batching import FORGET_AFTER, BatchTimes

FOUR, FIVE, THIRTY = (Lane(Kind.PARTIAL, window) for window in (4, 5, 30))
FINAL = Lane(Kind.FINAL, 4)

learned = st.lists(st.tuples(st.sampled_from(all_lanes()), st.integers(1, 8), st.floats(0.5, 20_000.0)), max_size=60)


def times(
    max_batch: int = 8, max_batch_ms: float = 500.0, *, batches_finals: bool = True, lifts_partials: bool = True
) -> BatchTimes:
    return BatchTimes(max_batch, max_batch_ms, batches_finals=batches_finals, lifts_partials=lifts_partials)


def most(of: BatchTimes, lane: Lane) -> int:
    return of.bounds.by_lane[lane].most


@settings(deadline=None)
@given(learned=learned)
def test_more_jobs_never_take_less_time_whatever_was_measured(learned: list[tuple[Lane, int, float]]) -> None:
    known = times()
    for lane, jobs, ms in learned:
        known.learn(lane, jobs, ms)
    for lane in all_lanes():
        predicted = [known.predict_ms(lane, jobs) for jobs in range(1, 13)]
        assert predicted == sorted(predicted)
        assert predicted[0] > 0


def test_rounding_makes_no_larger_batch_faster(rng: random.Random) -> None:
    """The line to a size ends where the next one, of equal time, begins; whatever its first point was."""
    for _ in range(300):
        known = times()
        few_ms, many_ms = sorted(rng.uniform(0.5, 20_000.0) for _ in range(2))
        for jobs, ms in ((1, few_ms), (3, many_ms), (6, many_ms), (8, 2 * many_ms)):
            known.learn(FOUR, jobs, ms)
        predicted = [known.predict_ms(FOUR, jobs) for jobs in range(1, 13)]
        assert predicted == sorted(predicted), (few_ms, many_ms)


@settings(deadline=None)
@given(learned=learned, bound_ms=st.floats(1, 60_000), max_batch=st.integers(1, 32), finals=st.booleans())
def test_bounds_keep_the_predicted_time_and_take_all_that_fits(
    learned: list[tuple[Lane, int, float]], bound_ms: float, max_batch: int, finals: bool
) -> None:
    known = times(max_batch, bound_ms, batches_finals=finals)
    for lane, jobs, ms in learned:
        known.learn(lane, jobs, ms)
    assert set(known.bounds.by_lane) == set(all_lanes())
    for lane, bound in known.bounds.by_lane.items():
        if lane.kind is not Kind.PARTIAL:
            assert bound.smaller == 0, "finals are never lifted"
            if not finals:
                assert bound == Batch(1)
                continue
        assert 1 <= bound.most <= max_batch
        assert bound.most == 1 or known.predict_ms(lane, bound.most) <= bound_ms
        assert bound.most == max_batch or known.predict_ms(lane, bound.most + 1) > bound_ms


@settings(deadline=None)
@given(learned=learned)
def test_only_windows_whose_jobs_cost_more_alone_may_join(learned: list[tuple[Lane, int, float]]) -> None:
    known = times(max_batch_ms=2_000.0)
    for lane, jobs, ms in learned:
        known.learn(lane, jobs, ms)
    lanes = [lane for lane in all_lanes() if lane.kind is Kind.PARTIAL]
    for place, lane in enumerate(lanes):
        bound = known.bounds.by_lane[lane]
        added = [known.predict_ms(lane, jobs + 1) - known.predict_ms(lane, jobs) for jobs in range(1, bound.most)]
        below = [known.predict_ms(other, 1) for other in reversed(lanes[:place])]
        assert bound.smaller <= place
        assert all(alone > max(added) for alone in below[: bound.smaller])
        if added and bound.smaller < place:
            assert below[bound.smaller] <= max(added) + 1e-9


def test_nothing_joins_where_the_model_decodes_window_by_window() -> None:
    apart, together = times(lifts_partials=False), times()
    assert {bound.smaller for bound in apart.bounds.by_lane.values()} == {0}
    assert {lane: bound.most for lane, bound in apart.bounds.by_lane.items()} == {
        lane: bound.most for lane, bound in together.bounds.by_lane.items()
    }
    assert together.bounds.by_lane[FIVE].smaller > 0


def test_before_anything_is_measured_the_prior_holds() -> None:
    known = times()
    assert known.predict_ms(FOUR, 1) == prior_cost_ms(FOUR)
    assert known.predict_ms(FOUR, 4) == prior_batch_ms(FOUR, 4) == pytest.approx(192 * 1.78)
    assert most(known, THIRTY) == 1
    assert most(known, Lane(Kind.PARTIAL, 2)) == 8


def test_one_measured_lane_tells_of_the_others_of_its_kind_alone() -> None:
    known = times()
    known.learn(FOUR, 1, 10 * prior_cost_ms(FOUR))
    assert known.predict_ms(FIVE, 1) == pytest.approx(10 * prior_cost_ms(FIVE))
    assert known.predict_ms(FINAL, 1) == prior_cost_ms(FINAL)
    assert most(known, FIVE) == 1


def test_sizes_between_measured_ones_are_interpolated() -> None:
    known = times()
    known.learn(FOUR, 2, 100.0)
    known.learn(FOUR, 6, 300.0)
    assert [known.predict_ms(FOUR, jobs) for jobs in (2, 3, 4, 6)] == pytest.approx([100, 150, 200, 300])
    assert known.predict_ms(FOUR, 1) == pytest.approx(100 * prior_batch_ms(FOUR, 1) / prior_batch_ms(FOUR, 2))
    assert known.predict_ms(FOUR, 8) == pytest.approx(300 * prior_batch_ms(FOUR, 8) / prior_batch_ms(FOUR, 6))


def test_a_slower_machine_is_believed_within_a_few_batches_and_a_faster_one_too() -> None:
    known = times()
    for _ in range(10):
        known.learn(FOUR, 8, 50.0)
    assert most(known, FOUR) == 8
    for _ in range(20):
        known.learn(FOUR, most(known, FOUR), 2_000.0)
    assert most(known, FOUR) == 1
    for _ in range(3 * FORGET_AFTER):
        jobs = most(known, FOUR)
        known.learn(FOUR, jobs, 40.0 + 5.0 * jobs)
    assert most(known, FOUR) == 8


def test_a_machine_that_stood_still_once_goes_on_with_batches() -> None:
    known = times()
    for _ in range(10):
        known.learn(FOUR, 8, 300.0)
    known.learn(FOUR, 8, 30_000.0)
    assert known.predict_ms(FOUR, 8) == pytest.approx(360.0)
    assert most(known, FOUR) == 8


def test_a_time_of_nothing_is_not_believed_for_ever() -> None:
    known = times()
    known.learn(FOUR, 8, 0.0)
    for _ in range(80):
        known.learn(FOUR, 8, 400.0)
    assert known.predict_ms(FOUR, 8) == pytest.approx(400.0, rel=0.05)


def test_the_time_of_real_batches_is_found_in_noise(rng: random.Random) -> None:
    """Affine times as measured on a CPU, 20 % noise: predictions within a fifth, and the bound is that of the truth."""
    known = times(max_batch_ms=450.0)
    truth = [144.0 + 50.0 * jobs for jobs in range(1, 9)]
    for _ in range(400):
        jobs = rng.randint(1, most(known, FOUR))
        known.learn(FOUR, jobs, truth[jobs - 1] * rng.uniform(0.8, 1.2))
    for jobs in range(1, most(known, FOUR) + 1):
        assert known.predict_ms(FOUR, jobs) == pytest.approx(truth[jobs - 1], rel=0.2)
    assert most(known, FOUR) in (5, 6, 7), "the sixth job ends at 444 ms"


def test_bounds_are_made_anew_only_when_they_change() -> None:
    known = times()
    known.learn(FOUR, 1, 190.0)
    before = known.bounds
    known.learn(FOUR, 1, 190.0)
    assert known.bounds is before
