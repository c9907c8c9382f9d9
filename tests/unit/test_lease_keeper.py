"""What the lease keeper tells of leases that it could not extend."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

from structlog.testing import capture_logs

from queueing.errors import QueueUnavailable
from queueing.job import LeasedJob, Renewed
from queueing.lane import Kind, Lane
from tests.support.queue_jobs import START_MS, final
from workers.lease_keeper import LeaseKeeper
from workers.lifecycle import LOG_EVERY


class StandIn:
    """Refuses what it is told to; ``away`` renewals fail first."""

    def __init__(self, answer: Renewed, away: int = 0) -> None:
        self.answer = answer
        self.away = away

    def renew(self, leases: Sequence[LeasedJob]) -> Renewed:
        if self.away:
            self.away -= 1
            raise QueueUnavailable("Redis is away")
        return self.answer


class Turns(threading.Event):
    """Ends the keeper's loop after so many turns, without waiting."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self.turns = turns

    def wait(self, timeout: float | None = None) -> bool:
        self.turns -= 1
        return self.turns < 0


def lease(session: str) -> LeasedJob:
    return LeasedJob(final(session), Lane(Kind.FINAL, 5), 1, 1, START_MS, START_MS, START_MS + 1000, 100.0)


def keeper_of(queue: StandIn, heard: list[str]) -> LeaseKeeper:
    return LeaseKeeper(queue, 1.0, random.Random(1), on_lost=lambda one: heard.append(one.job.session))  # type: ignore[arg-type]


def test_a_cancelled_job_is_no_lost_lease() -> None:
    held = [lease("lost"), lease("cancelled"), lease("kept")]
    heard: list[str] = []
    keeper = keeper_of(StandIn(Renewed(lost=(held[0],), cancelled=(held[1],))), heard)
    keeper.hold(held)
    with capture_logs() as lines:
        keeper.renew()
        keeper.renew()
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("job_cancelled", "debug"),
        ("lease_lost", "warning"),
    ]
    assert heard == ["lost"]
    assert [keeper.is_lost(one) for one in held] == [True, True, False]
    assert keeper.held() == (held[2],)


def test_while_redis_is_away_not_every_failure_has_a_line() -> None:
    away = 2 * LOG_EVERY + 1
    keeper = keeper_of(StandIn(Renewed(), away=away), [])
    keeper.hold([lease("s")])
    with capture_logs() as lines:
        keeper.run(Turns(away))
    assert [line["attempt"] for line in lines] == [1, 1 + LOG_EVERY, 1 + 2 * LOG_EVERY]


def test_a_new_outage_has_its_line_at_once() -> None:
    queue = StandIn(Renewed(), away=2)
    keeper = keeper_of(queue, [])
    keeper.hold([lease("s")])
    with capture_logs() as lines:
        keeper.run(Turns(3))
        queue.away = 1
        keeper.run(Turns(1))
    assert [line["event"] for line in lines] == ["lease_renewal_failed"] * 2
