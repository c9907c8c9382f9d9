"""A stream's timers beside a step that is held up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from api.mailbox import Mailbox
from api.steps import READY, Wait
from api.stream import Stream
from api.turns import Turns
from queueing.clock import SystemClock
from queueing.job import Enqueued, NewJob
from queueing.lane import Kind
from sessions.limits import SessionLimits
from sessions.session import Session
from sessions.wire import Resume
from tests.support.frames import BINARY, close_frame, frame
from tests.unit.test_api_effects import Stage
from tests.unit.test_api_socket import LIMITS, Pair

SECOND = 4 * frame(BINARY, bytes(range(1, 201)) * 40)
"""A second of audio. Each of its messages is less than what is read at once."""
IDLE_S = 5.0


class SlowStage(Stage):
    """Each write of audio takes longer than a client may be silent; the client goes on meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 1
        self.pair = Pair(self.clock, replace(LIMITS, max_binary_bytes=10_000, ping_interval_s=600))
        self.sends = [SECOND, SECOND, close_frame(1001)]

    def append(
        self,
        _session: str,
        offset: int,
        data: bytes,
        *,
        follows: int,
        keep_from: int,
        epoch: int,
        fields: Mapping[str, str],
    ) -> int:
        self.clock.advance(IDLE_S + 1)
        if self.sends:
            self.pair.client.send(self.sends.pop(0))
        return offset + len(data)

    def enqueue(self, job: NewJob) -> Enqueued:
        if job.kind is Kind.FINAL:  # nobody else asked for an end: it was idle
            self.pair.client.send(close_frame(1001))
        return super().enqueue(job)


def refuse(_: Resume) -> Session:
    raise AssertionError


def test_a_long_message_is_no_long_step() -> None:
    stage, mailbox = SlowStage(), Mailbox()
    pair = Pair(stage.clock, replace(LIMITS, max_binary_bytes=200_000, ping_interval_s=600))
    session = Session("s", "front", SessionLimits(endpoint_s=None), now=stage.clock.monotonic(), started_ms=0)
    stream = Stream(session, pair.server, mailbox, stage.runner._ports, refuse, Turns(SystemClock()))
    stage.sends.clear()
    steps = stream._steps()
    next(steps)
    pair.client.send(frame(BINARY, bytes(range(1, 201)) * 300))
    wait = steps.send(READY[True, False])
    for _ in range(10):  # it is read in several parts
        wait = wait if session.summary.audio_s else steps.send(READY[True, False])
    assert (wait, session.summary.audio_s) == (Wait(0.0, reads=False), 1.0)
    steps.send(READY[False, False])
    assert session.summary.audio_s == 60_000 / 32_000
    mailbox.close()
    pair.close()
    stage.pair.close()


def test_a_client_whose_bytes_wait_while_a_step_is_held_up_is_not_idle() -> None:
    stage, mailbox = SlowStage(), Mailbox()
    limits = SessionLimits(idle_timeout_s=IDLE_S, endpoint_s=None)
    session = Session("s", "front", limits, now=stage.clock.monotonic(), started_ms=0)
    stage.pair.client.send(SECOND)
    Stream(session, stage.pair.server, mailbox, stage.runner._ports, refuse, Turns(SystemClock())).run()
    assert (session.summary.outcome, session.summary.audio_s) == ("disconnected", 3.0)
    mailbox.close()
    stage.pair.close()
