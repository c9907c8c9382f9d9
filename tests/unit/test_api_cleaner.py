"""What is made up for when Redis is back must not keep the pulse from saying that it is."""

from __future__ import annotations

from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from api.cleaner import CATCH_UP_S, REAP, Cleaner
from api.metrics import StreamMetrics
from queueing.clock import ManualClock

SESSIONS = [f"s{number}" for number in range(50)]


class SlowRedis:
    """Everything a cleaner asks; each call takes ``call_s``."""

    def __init__(self, call_s: float) -> None:
        self.clock = ManualClock()
        self.call_s = call_s
        self.released: list[str] = []
        self.waiting = list(SESSIONS)
        self.handed_out: list[str] = []
        self.reaped: list[str] = []
        self.error = ""
        stage = cast("Any", self)
        metrics = StreamMetrics(CollectorRegistry())
        self.cleaner = Cleaner(stage, stage, stage, stage, metrics, lambda: self.error, self.clock)

    def _called(self) -> None:
        self.clock.advance(self.call_s)

    def release(self, session: str) -> None:
        self._called()
        self.released.append(session)

    def due(self, most: int) -> list[str]:
        self._called()
        given, self.waiting = self.waiting[:most], self.waiting[most:]
        self.handed_out += given
        return given

    def epoch(self, _session: str) -> int:
        return 1

    def waits(self, _session: str) -> bool:
        return True

    def delete(self, _session: str, *, epoch: int) -> None:
        assert epoch == 1

    def cancel_session(self, _session: str) -> None: ...

    def forget(self, session: str) -> None:
        self._called()
        self.reaped.append(session)


def test_a_quick_redis_is_caught_up_with_within_bounds() -> None:
    stage = SlowRedis(0.0)
    stage.cleaner.catch_up()
    assert stage.reaped == SESSIONS[:REAP]


@pytest.mark.parametrize("call_s", [0.3, 0.6])
def test_a_slow_one_is_left_to_the_next_pulses(call_s: float) -> None:
    stage = SlowRedis(call_s)
    stage.error = "Redis has not answered for 5 s"
    for session in SESSIONS:
        stage.cleaner.release_slot(session)
    stage.error = ""
    pulses = 0
    while stage.waiting:
        before_s = stage.clock.monotonic()
        stage.cleaner.catch_up()
        pulses += 1
        assert stage.clock.monotonic() - before_s <= CATCH_UP_S + 2 * call_s, "a step that was begun is finished"
        assert stage.handed_out == stage.reaped, "nobody waits for who was asked for and not reaped"
    assert pulses > len(SESSIONS) / 4
    assert stage.released == stage.reaped == SESSIONS
