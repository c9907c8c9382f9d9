"""How a worker is watched and how it ends; time is moved by hand."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pytest

from queueing.clock import ManualClock
from queueing.errors import QueueUnavailable
from queueing.job import LeasedJob, NewJob
from queueing.lane import Kind
from tests.support.eventually import eventually
from workers.lifecycle import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_HUNG,
    Activity,
    Stop,
    Watch,
    WatchLimits,
    WorkerState,
    backoff_s,
)


def a_lease() -> LeasedJob:
    job = NewJob("s:f:0", "s", Kind.FINAL, 0, 0, 32_000, 1.0, "front")
    return LeasedJob(job, job.lane, 1, 1, 0, 0, 10_000, 100.0)


class Scene:
    """A watch over a made-up loop."""

    def __init__(self, *, release_fails: bool = False, release_hangs: bool = False) -> None:
        self.clock = ManualClock()
        self.stop = Stop()
        self.activity = Activity(self.clock, self.stop)
        self.finished = threading.Event()
        self.released: list[LeasedJob] = []
        self.status: list[int | None] = []
        self._release_fails = release_fails
        self._release_hangs = release_hangs
        self.answer = threading.Event()
        self.watch = Watch(
            self.activity,
            self.stop,
            WatchLimits(max_decode_s=60, drain_s=30),
            self.clock,
            held=lambda: (a_lease(),),
            release=self._release,
        )
        self._thread = threading.Thread(target=lambda: self.status.append(self.watch.run(self.finished)), daemon=True)

    def _release(self, leases: Sequence[LeasedJob]) -> None:
        if self._release_hangs:
            assert self.answer.wait(20)
        if self._release_fails:
            raise QueueUnavailable("away")
        self.released.extend(leases)

    def start(self) -> None:
        self._thread.start()

    def stop_at_work(self) -> None:
        """Ask it to end in the middle of its work, and let the drain time pass."""
        self.activity.begin_work()
        self.start()
        self.stop.request()

        def ended_while_time_passes() -> bool:
            self.clock.advance(5)
            return bool(self.status)

        eventually(ended_while_time_passes, what="the end after the drain time")

    def result(self) -> int | None:
        eventually(lambda: self.status, what="the end of the watch")
        return self.status[0]


def test_an_idle_worker_ends_at_the_first_signal() -> None:
    scene = Scene()
    scene.activity.enter(WorkerState.READY)
    scene.start()
    scene.stop.request()
    assert scene.result() == EXIT_DONE
    assert not scene.activity.begin_work(), "a worker told to stop claims nothing"
    assert not scene.released


def test_a_running_decode_is_waited_for() -> None:
    scene = Scene()
    assert scene.activity.begin_work()
    scene.activity.begin_decode()
    scene.start()
    scene.stop.request()
    scene.clock.advance(29)
    assert not scene.status
    scene.activity.end_decode()
    scene.activity.end_work()
    assert scene.result() == EXIT_DONE
    assert not scene.released


@pytest.mark.parametrize("release_fails", [False, True])
def test_after_the_drain_time_the_jobs_are_given_back(release_fails: bool) -> None:
    scene = Scene(release_fails=release_fails)
    scene.stop_at_work()
    assert scene.result() == EXIT_DONE
    assert len(scene.released) == (0 if release_fails else 1)


def test_a_redis_that_hangs_does_not_hold_the_end_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.lifecycle.LAST_WORDS_S", 0.05)
    scene = Scene(release_hangs=True)
    try:
        scene.stop_at_work()
        assert scene.result() == EXIT_DONE
        assert not scene.released
    finally:
        scene.answer.set()


def test_a_second_signal_ends_it_now() -> None:
    scene = Scene()
    scene.activity.begin_work()
    scene.activity.begin_decode()
    scene.start()
    scene.stop.request()
    scene.stop.request()
    assert scene.result() == EXIT_FAILED
    assert not scene.released


def test_a_decode_beyond_its_limit_is_hung() -> None:
    scene = Scene()
    scene.activity.begin_work()
    scene.activity.begin_decode()
    scene.clock.advance(60)
    scene.start()
    assert not scene.status
    scene.clock.advance(0.1)
    assert scene.result() == EXIT_HUNG


def test_a_batch_may_take_as_many_times_as_long_as_a_job() -> None:
    scene = Scene()
    scene.activity.begin_work()
    scene.activity.begin_decode(jobs=20)
    scene.clock.advance(20 * 60)
    scene.start()
    assert not scene.status
    scene.clock.advance(1)
    assert scene.result() == EXIT_HUNG


def test_a_long_sequence_of_short_decodes_is_not_hung() -> None:
    scene = Scene()
    scene.start()
    for _ in range(5):
        scene.activity.begin_work()
        scene.activity.begin_decode()
        scene.clock.advance(59)
        assert scene.activity.end_decode() == 59
        scene.activity.end_work()
    scene.finished.set()
    assert scene.result() is None


def test_the_state_tells_what_goes_on() -> None:
    stop = Stop()
    activity = Activity(ManualClock(), stop)
    seen = [activity.state]
    for state in (WorkerState.LOADING, WorkerState.READY):
        activity.enter(state)
        seen.append(activity.state)
    activity.begin_work()
    seen.append(activity.state)
    activity.end_work()
    seen.append(activity.state)
    stop.request()
    seen.append(activity.state)
    assert [str(state) for state in seen] == ["starting", "loading", "ready", "busy", "ready", "draining"]


def test_backoff_doubles_to_its_limit_and_is_jittered(rng: random.Random) -> None:
    for attempt in range(40):
        full = min(0.05 * 2**attempt, 5.0)
        pauses = [backoff_s(attempt, rng) for _ in range(20)]
        assert all(full / 2 <= pause <= full for pause in pauses)
        assert len(set(pauses)) > 1
