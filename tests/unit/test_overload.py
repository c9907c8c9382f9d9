"""Whether new streams are taken, as the queue and Redis fill and empty again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from api.overload import MAX_RETRY_S, MEMORY_FREE, MEMORY_FULL, RESUME_SHARE, Load, Overload, OverloadCollector
from queueing.backlog import TYPICAL_PARTIAL, Backlog, WaitingLane
from queueing.lane import Kind, Lane
from sessions.codes import ErrorCode

FINALS, PARTIALS = Lane(Kind.FINAL, 10), TYPICAL_PARTIAL


def finals_that_take(seconds: float) -> Backlog:
    """On one worker."""
    return Backlog((WaitingLane(FINALS, 1, 0.0, seconds * 1000, before_final=1, before_partial=1),), measured=True)


class Watched:
    """An `Overload` whose surroundings a test sets."""

    def __init__(self, *, max_wait_s: float = 10.0) -> None:
        self.backlog = Backlog()
        self.memory: float | None = None
        self.overload = Overload(lambda: self.backlog, lambda: self.memory, max_wait_s=max_wait_s)

    def refused(self, backlog: Backlog | None = None, *, workers: int = 1, looks: int = 2) -> str | None:
        """The reason after so many looks at this backlog; None when streams are taken."""
        self.backlog = backlog or self.backlog
        for _ in range(looks):
            self.overload.look(workers)
        refusal = self.overload.refusal()
        return refusal.reason if refusal else None


def test_streams_are_refused_above_the_limit_until_the_wait_is_well_below_it() -> None:
    watched = Watched(max_wait_s=10.0)
    waits = (0, 9.9, 10.1, 9.9, 10 * RESUME_SHARE + 0.1, 10 * RESUME_SHARE - 0.1, 9.9)
    refused = [watched.refused(finals_that_take(wait)) for wait in waits]
    assert refused == [None, None, "predicted_wait", "predicted_wait", "predicted_wait", None, None]


def test_the_refusal_says_when_the_backlog_will_be_gone() -> None:
    watched = Watched(max_wait_s=10.0)
    for wait_s, expected in ((20.0, 13), (10.5, 4), (1_000.0, MAX_RETRY_S)):
        watched.refused(finals_that_take(wait_s))
        refusal = watched.overload.refusal()
        assert refusal is not None
        assert (refusal.status, refusal.code, refusal.retry_after_s) == (503, ErrorCode.OVERLOADED, expected)
        assert "HEARLINE_MAX_PREDICTED_WAIT_S" in refusal.message
        assert refusal.response().headers["Retry-After"] == str(expected)


def test_more_workers_mean_less_wait_and_none_no_verdict() -> None:
    watched = Watched(max_wait_s=10.0)
    assert watched.refused(finals_that_take(30.0), workers=2) == "predicted_wait"
    assert watched.refused(workers=5) is None
    assert watched.refused(workers=0) is None, "a stream waits for the first worker; readiness says that there is none"


def test_a_limit_of_zero_refuses_nobody() -> None:
    assert Watched(max_wait_s=0).refused(finals_that_take(1_000.0)) is None


def test_partials_that_yield_to_finals_keep_nobody_out() -> None:
    watched = Watched(max_wait_s=10.0)
    flood = WaitingLane(PARTIALS, 500, 0.0, 300.0, before_final=0, before_partial=500)
    assert watched.refused(Backlog((flood,), measured=True)) is None
    assert watched.overload.load.partial_wait_s > 10


@pytest.mark.parametrize(("age_s", "reason"), [(9.0, None), (11.0, "predicted_wait")])
def test_before_anything_is_measured_only_what_waits_long_counts(age_s: float, reason: str | None) -> None:
    watched = Watched(max_wait_s=10.0)
    guess = WaitingLane(FINALS, 1_000, age_s * 1000, 300.0, before_final=1_000, before_partial=1_000)
    assert watched.refused(Backlog((guess,), measured=False)) == reason


def test_memory_refuses_and_readmits_with_room_between() -> None:
    watched = Watched()
    levels = (0.5, MEMORY_FULL, MEMORY_FULL + 0.01, MEMORY_FREE + 0.01, MEMORY_FREE - 0.01, None)
    refused = []
    for watched.memory in levels:
        refused.append(watched.refused())
        assert bool(watched.overload.memory_problem) == (refused[-1] is not None)
    assert refused == [None, None, "redis_memory", "redis_memory", None, None]


def test_the_wait_of_partials_is_followed_up_at_once_and_down_slowly() -> None:
    watched = Watched()

    def follow(wait_s: float) -> Iterator[float]:
        watched.backlog = finals_that_take(wait_s)
        for _ in range(4):
            watched.overload.look(2)
            yield watched.overload.load.partial_wait_s

    up, down = list(follow(8.0)), list(follow(0.0))
    assert up == sorted(up)
    assert up[2] > 0.8 * 4.0
    assert down == sorted(down, reverse=True)
    assert down[2] > 0.5 * up[-1]
    assert watched.overload.load.workers == 2
    assert Load() == Load(0.0, 0)


def test_metrics_show_what_decides() -> None:
    watched = Watched(max_wait_s=1.0)
    watched.memory = 0.95
    watched.refused(finals_that_take(3.0))
    registry = CollectorRegistry()
    registry.register(OverloadCollector(watched.overload))
    shown = generate_latest(registry).decode()
    assert "hearline_admission_wait_seconds 3.0" in shown
    assert "hearline_redis_memory_ratio 0.95" in shown
    assert 'hearline_streams_refusing{reason="predicted_wait"} 1.0' in shown
    assert 'hearline_streams_refusing{reason="redis_memory"} 1.0' in shown
