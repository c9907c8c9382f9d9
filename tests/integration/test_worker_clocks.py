"""Workers whose clocks are five minutes off change nothing: Redis's time orders jobs and ends leases."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from queueing.clock import SystemClock
from queueing.job_queue import QueueLimits
from queueing.lane import Kind
from queueing.rescue import Rescuer
from tests.support.eventually import eventually
from tests.support.workers import Desk, ThreadWorker, noise_pcm, scripted, tidy_desk_at
from workers.scripted import Script, scripted_text

LIMITS = QueueLimits(lease_ms=2_000, max_attempts=2)
FIVE_MINUTES_S = 300.0


class WrongClock(SystemClock):
    """Off by so many seconds, in both of its readings."""

    def __init__(self, off_s: float) -> None:
        self._off_s = off_s

    def monotonic(self) -> float:
        return super().monotonic() + self._off_s

    def wall_ms(self) -> int:
        return super().wall_ms() + round(self._off_s * 1000)


@pytest.fixture
def desk(redis_url: str) -> Iterator[Desk]:
    with tidy_desk_at(redis_url, LIMITS) as desk:
        yield desk


def test_clocks_that_are_five_minutes_off_lose_double_and_reorder_nothing(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    """Decodes longer than a lease beside others' sweeps: a lease that a worker's clock ended would be taken over."""
    audio = {f"s{number}": noise_pcm(rng, 0.5) for number in range(4)}
    slow = scripted(Script(base_s=2.5, per_audio_s=0))
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                ThreadWorker(redis_client, LIMITS, slow, name=f"w{number}", seed=number, clock=WrongClock(off_s))
            )
            for number, off_s in enumerate((-FIVE_MINUTES_S, FIVE_MINUTES_S))
        ]
        rescuers = [
            Rescuer(worker.queue, WrongClock(off_s), rng)
            for worker, off_s in zip(workers, (FIVE_MINUTES_S, -FIVE_MINUTES_S), strict=True)
        ]
        began_ms = desk.redis_ms()
        for session, pcm in audio.items():
            desk.final(session, pcm)

        def all_heard() -> bool:
            for rescuer in rescuers:
                report = rescuer.tick()
                assert report is None or not (report.requeued or report.dead), "a live lease was taken"
            return len(desk.listen()) >= len(audio)

        eventually(all_heard, 60, "every final")
        ended_ms = desk.redis_ms()
    heard = desk.listen()
    assert Counter(delivery.session for delivery in heard) == Counter(list(audio))
    for delivery in heard:
        assert (delivery.attempt, delivery.outcome) == (1, "done")
        assert delivery.result is not None
        assert delivery.result["text"] == scripted_text(audio[delivery.session])
        assert 0 <= delivery.queue_ms <= ended_ms - began_ms
        assert began_ms <= delivery.completed_ms <= ended_ms
    by_start = sorted(heard, key=lambda delivery: delivery.completed_ms - delivery.decode_ms)
    assert {one.session for one in by_start[:2]} == {"s0", "s1"}, "the oldest first"
    assert not any(worker.lost for worker in workers)


@pytest.mark.parametrize("off_s", [-FIVE_MINUTES_S, FIVE_MINUTES_S])
def test_a_jobs_age_and_lease_are_those_of_redis(desk: Desk, redis_client: redis.Redis, off_s: float) -> None:
    """The clock of who asks is not asked: whatever it says, the lease ends a lease time after Redis's now."""
    before_ms = desk.redis_ms()
    desk.ask(Kind.FINAL, "s1", 0, 32_000)
    worker = ThreadWorker(redis_client, LIMITS, scripted(), clock=WrongClock(off_s))
    (lease,) = worker.queue.claim("w1", "n")
    after_ms = desk.redis_ms()
    assert before_ms <= lease.arrival_ms <= lease.claimed_ms <= after_ms
    assert lease.lease_until_ms == lease.claimed_ms + LIMITS.lease_ms
    desk.queue.cancel_session("s1")
