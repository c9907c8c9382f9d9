"""When a process that ended is started again, and when it is given up."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ops.restarts import RestartRules, Restarts

RULES = RestartRules(first_delay_s=0.5, longest_delay_s=15.0, steady_s=10.0, start_failures=3, running_failures=50)


def test_one_that_never_ran_is_given_up_at_the_limit() -> None:
    restarts = Restarts(RULES)
    assert [restarts.ended(0.1, 1) for _ in range(3)] == [0.5, 1.0, None]


@pytest.mark.parametrize("status", [2, 78])
def test_wrong_settings_are_not_tried_again(status: int) -> None:
    assert Restarts(RULES).ended(0.1, status) is None


def test_a_status_like_wrong_settings_of_one_that_ran_is_tried_again() -> None:
    assert Restarts(RULES).ended(60.0, 2) == 0.5


def test_one_that_ran_steadily_comes_back_with_growing_bounded_delays() -> None:
    restarts = Restarts(RULES)
    delays = [restarts.ended(10.0, -9)] + [restarts.ended(1.0, -9) for _ in range(48)]
    assert all(delay is not None for delay in delays)
    assert delays[:7] == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    assert all(later >= earlier for earlier, later in pairwise(delay for delay in delays if delay))
    assert restarts.ended(1.0, -9) is None


def test_a_steady_run_clears_the_count() -> None:
    restarts = Restarts(RULES)
    for _ in range(3):
        assert [restarts.ended(ran_s, 1) for ran_s in (10.0, 9.9, 9.9, 9.9)] == [0.5, 1.0, 2.0, 4.0]


def test_a_ready_service_proves_what_never_failed() -> None:
    good, bad = Restarts(RULES), Restarts(RULES)
    bad.ended(0.1, 1)
    for restarts in (good, bad):
        restarts.service_is_ready()
    assert [good.ended(0.1, 1) for _ in range(3)] == [0.5, 1.0, 2.0]
    assert [bad.ended(0.1, 1) for _ in range(2)] == [1.0, None]
