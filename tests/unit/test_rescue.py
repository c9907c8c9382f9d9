"""When a worker sweeps and ranks anew: jittered, sooner with work than without, never in a rush."""

from __future__ import annotations

import itertools
import random
import threading
from dataclasses import dataclass, field

import pytest

from queueing.clock import ManualClock
from queueing.errors import QueueUnavailable
from queueing.limits import QueueLimits, SweepReport
from queueing.policy_store import PolicyChange
from queueing.rescue import MAX_SWEEPS, Rescuer

BUSY = SweepReport(leased=1)


@dataclass
class StandIn:
    """Answers sweeps from a list, the last one for ever."""

    answers: list[SweepReport | Exception]
    limits: QueueLimits = field(default_factory=QueueLimits)
    sweeps: int = 0
    refreshes: int = 0

    def sweep(self) -> SweepReport:
        self.sweeps += 1
        answer = self.answers[min(self.sweeps, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def refresh_policy(self) -> PolicyChange | None:
        self.refreshes += 1
        return None


def rescuer(queue: StandIn, clock: ManualClock, seed: int = 1) -> Rescuer:
    return Rescuer(queue, clock, random.Random(seed))  # type: ignore[arg-type]


def run_for(rescue: Rescuer, clock: ManualClock, seconds: float) -> list[float]:
    """The times of the ticks that did something."""
    times, end = [], clock.monotonic() + seconds
    while clock.monotonic() < end:
        clock.advance(max(0.001, min(rescue.seconds_left(), end - clock.monotonic())))
        if rescue.tick() is not None:
            times.append(clock.monotonic())
    return times


def test_nothing_happens_before_it_is_due() -> None:
    queue, clock = StandIn([BUSY]), ManualClock()
    rescue = rescuer(queue, clock)
    assert rescue.seconds_left() > 0
    assert rescue.tick() is None
    assert queue.sweeps == 0
    clock.advance(rescue.seconds_left())
    assert rescue.tick() == BUSY
    assert queue.sweeps == 1


@pytest.mark.parametrize("seed", range(5))
def test_an_expired_lease_is_found_within_a_third_of_a_lease(seed: int) -> None:
    queue, clock = StandIn([BUSY]), ManualClock()
    times = run_for(rescuer(queue, clock, seed), clock, 200)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) <= 10.0 / 3
    assert len({round(gap, 6) for gap in gaps}) > 10, "jittered"


@pytest.mark.parametrize("seed", range(5))
def test_an_idle_queue_is_swept_less_but_within_every_lease_time(seed: int) -> None:
    queue, clock = StandIn([SweepReport()]), ManualClock()
    times = run_for(rescuer(queue, clock, seed), clock, 200)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps) > 5
    assert max(gaps) < 10, "so that a lease taken meanwhile is known before it can run out"
    assert queue.refreshes == 0, "ranks of an empty queue can wait"


def test_ranks_are_looked_at_now_and_then_while_there_is_work() -> None:
    queue, clock = StandIn([BUSY]), ManualClock()
    run_for(rescuer(queue, clock), clock, 300)
    assert 15 <= queue.refreshes <= 35


def test_a_sweep_that_hit_its_bound_goes_on_at_once_and_not_for_ever() -> None:
    more = SweepReport(requeued=100, dead=1, waiting=5, more=True)
    queue, clock = StandIn([more, more, SweepReport(requeued=7, waiting=9)]), ManualClock()
    rescue = rescuer(queue, clock)
    clock.advance(rescue.seconds_left())
    assert rescue.tick() == SweepReport(requeued=207, dead=2, waiting=9)
    queue = StandIn([more])
    rescue = rescuer(queue, clock)
    clock.advance(rescue.seconds_left())
    rescue.tick()
    assert queue.sweeps == MAX_SWEEPS


def test_an_outage_is_tried_again_a_period_later() -> None:
    queue, clock = StandIn([QueueUnavailable("away"), BUSY]), ManualClock()
    rescue = rescuer(queue, clock)
    clock.advance(rescue.seconds_left())
    with pytest.raises(QueueUnavailable):
        rescue.tick()
    assert rescue.seconds_left() > 1
    clock.advance(rescue.seconds_left())
    assert rescue.tick() == BUSY


def test_the_loop_survives_an_outage_and_ends_when_told() -> None:
    stop = threading.Event()

    class Queue(StandIn):
        def sweep(self) -> SweepReport:
            clock.advance(60)
            try:
                return super().sweep()
            finally:
                clock.advance(60)
                if self.sweeps == 3:
                    stop.set()

    clock = ManualClock()
    queue = Queue([BUSY, QueueUnavailable("away"), SweepReport(requeued=2, waiting=2)])
    rescue = rescuer(queue, clock)
    clock.advance(60)
    rescue.run(stop)
    assert queue.sweeps == 3
