"""No job is lost or run twice, whatever the order of verbs, lost replies, expiries and changes of policy."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from queueing.batches import Batches
from queueing.connect import connect
from queueing.lane import Lane
from queueing.policies import POLICIES
from tests.support.queue_driver import BATCHES, FILE_LANES, REPORTS, SESSIONS, STEPS_MS, QueueDriver, worth_seeing

AUDIO_S = (0.5, 2.5, 5.5, 9.0)
WORKERS = ("w1", "w2", "w3")

sessions = st.sampled_from(SESSIONS)
audio = st.sampled_from(AUDIO_S)


class QueueMachine(RuleBasedStateMachine):
    """Short walks that shrink to the few steps that break something."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.client = connect(self.url)
        self.driver = QueueDriver(self.client)

    @rule(session=sessions, audio_s=audio, lost_reply=st.booleans())
    def enqueue_final(self, session: str, audio_s: float, lost_reply: bool) -> None:
        self.driver.enqueue_final(session, audio_s, lost_reply)

    @rule(session=sessions, audio_s=audio, late=st.booleans())
    def enqueue_partial(self, session: str, audio_s: float, late: bool) -> None:
        self.driver.enqueue_partial(session, audio_s, late)

    @rule(lane=st.sampled_from(FILE_LANES))
    def enqueue_file(self, lane: Lane) -> None:
        self.driver.enqueue_file(lane)

    @rule(
        worker=st.sampled_from(WORKERS),
        most=st.integers(1, 4),
        lost_reply=st.booleans(),
        batches=st.sampled_from(BATCHES),
    )
    def claim(self, worker: str, most: int, lost_reply: bool, batches: Batches) -> None:
        self.driver.claim(worker, most, lost_reply, batches)

    @precondition(lambda self: self.driver.leases)
    @rule(data=st.data(), verb=st.sampled_from(REPORTS), times=st.integers(1, 2))
    def report(self, data: st.DataObject, verb: str, times: int) -> None:
        self.driver.report(data.draw(st.sampled_from(self.driver.leases[-12:])), verb, times)

    @rule(ms=st.sampled_from(STEPS_MS), sweepers=st.integers(0, 2))
    def time_passes(self, ms: int, sweepers: int) -> None:
        self.driver.time_passes(ms)
        if sweepers:
            self.driver.sweep(sweepers)

    @rule(session=sessions, whole=st.booleans())
    def cancel(self, session: str, whole: bool) -> None:
        if whole:
            self.driver.end_session(session)
        else:
            self.driver.cancel_partial(session)

    @rule(name=st.sampled_from(list(POLICIES)))
    def change_policy(self, name: str) -> None:
        self.driver.change_policy(name)

    @rule()
    def wake_up(self) -> None:
        self.driver.wake_up()

    @invariant()
    def redis_holds_what_the_model_holds(self) -> None:
        self.driver.check()

    def teardown(self) -> None:
        try:
            self.driver.finish()
        finally:
            self.driver.close()
            self.client.close()


@pytest.mark.timeout(300)
def test_no_short_sequence_of_verbs_loses_a_job_or_runs_it_twice(redis_url: str) -> None:
    machine = type("QueueMachineOnRedis", (QueueMachine,), {"url": redis_url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None,
            max_examples=30,
            stateful_step_count=40,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )


def walk(driver: QueueDriver, rng: random.Random, steps: int) -> None:
    """A long walk with the odds of a busy service."""
    ways: list[tuple[int, Callable[[], None]]] = [
        (6, lambda: driver.enqueue_final(rng.choice(SESSIONS), rng.choice(AUDIO_S), rng.random() < 0.2)),
        (10, lambda: driver.enqueue_partial(rng.choice(SESSIONS), rng.choice(AUDIO_S), rng.random() < 0.2)),
        (3, lambda: driver.enqueue_file(rng.choice(FILE_LANES))),
        (12, lambda: driver.claim(rng.choice(WORKERS), rng.randint(1, 4), rng.random() < 0.2, rng.choice(BATCHES))),
        (
            14,
            lambda: (
                driver.report(
                    rng.choice(driver.leases[-8:]), rng.choice(("complete", "complete", *REPORTS)), rng.randint(1, 2)
                )
                if driver.leases
                else None
            ),
        ),
        (6, lambda: driver.time_passes(rng.choice(STEPS_MS))),
        (3, lambda: driver.sweep(rng.randint(1, 2))),
        (2, lambda: driver.cancel_partial(rng.choice(SESSIONS))),
        (2, lambda: driver.change_policy(rng.choice(list(POLICIES)))),
        (1, driver.refresh_policy),
        (1, driver.forget_scripts),
        (4, driver.wake_up),
    ]
    for step in range(steps):
        (way,) = rng.choices([way for _, way in ways], [odds for odds, _ in ways])
        way()
        if rng.random() < 0.3:
            driver.check()
        if step in (steps // 2, steps * 3 // 4):
            at_work = [lease.job.session for lease in driver.leases[-4:] if lease.job.session in SESSIONS]
            driver.end_session(rng.choice(at_work or SESSIONS))
    driver.check()
    driver.finish()


@pytest.mark.timeout(300)
def test_no_long_walk_loses_a_job_or_runs_it_twice(redis_client: redis.Redis, rng: random.Random) -> None:
    seen: Counter[str] = Counter()
    for walks in count(1):
        driver = QueueDriver(redis_client)
        try:
            walk(driver, rng, 250)
        finally:
            driver.close()
        seen += driver.seen
        missing = worth_seeing() - set(seen)
        if walks >= 12 and not missing:
            break
        assert walks < 100, f"never seen: {missing}"  # the rarest comes in one walk of six or so
