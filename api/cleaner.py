"""Takes out of Redis what a stream had there, or leaves it to be resumed: at once, or when Redis is back.

Everything would expire by itself, but jobs of streams that are gone would be decoded for nobody, and a stream
that ends must not wait for a Redis that hangs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import structlog

from api.metrics import StreamMetrics
from queueing.clock import Clock
from queueing.errors import QueueUnavailable
from queueing.job_queue import JobQueue
from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer
from sessions.errors import TakenOver
from sessions.parking import Parking

MOST_POSTPONED = 10_000
CATCH_UP = 50
"""Postponed steps at one pulse."""

REAP = 20
"""Sessions that are reaped at one pulse."""

CATCH_UP_S = 1.0
"""Nothing more is begun after this: who asks whether Redis answers is told by the same pulse, and must not wait."""

log = structlog.get_logger()

Step = tuple[str, str, Callable[[], object]]
"""What is done, of which session, and how; it may be repeated."""


class Cleaner:
    """One for all streams of a process. Thread-safe."""

    def __init__(
        self,
        queue: JobQueue,
        buffer: AudioBuffer,
        slots: StreamSlots,
        parking: Parking,
        metrics: StreamMetrics,
        redis_error: Callable[[], str],
        clock: Clock,
    ) -> None:
        self._queue = queue
        self._buffer = buffer
        self._slots = slots
        self._parking = parking
        self._metrics = metrics
        self._redis_error = redis_error
        self._clock = clock
        self._postponed: deque[Step] = deque(maxlen=MOST_POSTPONED)

    def end_session(self, session: str, epoch: int) -> None:
        """Remove the session's jobs, events, audio and slot, unless a newer connection than ``epoch`` has it."""

        def end() -> None:
            try:
                self._buffer.delete(session, epoch=epoch)
            except TakenOver:
                log.info("session_taken_over", session=session, step="end_session")
            else:
                self._forget(session)

        self._do("end_session", session, end)

    def cancel_jobs(self, session: str, epoch: int, fields: Mapping[str, str]) -> None:
        """The session has failed: note that, and remove its jobs, unless a newer connection than ``epoch`` has it. Of
        one that Redis forgot nothing is noted: that would stay there."""

        def cancel() -> None:
            try:
                known = self._buffer.epoch(session) > 0
                if known:
                    self._buffer.remember(session, fields, epoch=epoch)
            except TakenOver:
                log.info("session_taken_over", session=session, step="cancel_jobs")
            else:
                self._queue.cancel_session(session, keep_events=known)

        self._do("cancel_jobs", session, cancel)

    def park(self, session: str, epoch: int, fields: Mapping[str, str], *, keep_slot: bool) -> None:
        """Leave the session to be resumed, or reaped, with these fields of its description, unless a newer connection
        than ``epoch`` has it. One that is in Redis no more is not left: nobody could come back to it."""

        def park() -> None:
            try:
                if self._buffer.epoch(session):
                    self._buffer.remember(session, fields, epoch=epoch)
                else:  # a newer connection has brought it to its end, or Redis forgot it
                    self._buffer.delete(session, epoch=epoch)
                    self._forget(session)
                    return
            except TakenOver:
                log.info("session_taken_over", session=session, step="park")
            else:
                self._parking.park(session, keep_slot=keep_slot)
                self._metrics.parked.inc()

        self._do("park", session, park)

    def release_slot(self, session: str, *, unheard: bool = False) -> None:
        """Give the session's slot back. ``unheard``: it is open yet whether its client has heard of the end. Until that
        is known the session waits to be reaped, should this process be gone by then."""
        if unheard:
            self._do("release_slot", session, lambda: self._parking.park(session, keep_slot=False))
        else:
            self._do("release_slot", session, lambda: self._slots.release(session))

    def catch_up(self) -> None:
        """Redis answers: do some of what was postponed, and reap some of those who did not come back."""
        give_up_s = self._clock.monotonic() + CATCH_UP_S
        for _ in range(min(CATCH_UP, len(self._postponed))):
            if self._clock.monotonic() > give_up_s:
                return
            self._do(*self._postponed.popleft())
        try:
            # One by one: what is asked for and not reaped would wait for long until somebody gets it again.
            for _ in range(REAP):
                if self._clock.monotonic() > give_up_s or not (sessions := self._parking.due(1)):
                    return
                self._reap(*sessions)
        except QueueUnavailable as error:  # the next pulse, or another process, goes on
            log.info("reaping_postponed", reason=str(error))
            self._metrics.redis_failures.labels("reap").inc()

    def _reap(self, session: str) -> None:
        epoch = self._buffer.epoch(session)
        if not self._parking.waits(session):
            return  # it is being resumed
        try:
            self._buffer.delete(session, epoch=epoch)
        except TakenOver:
            return
        self._forget(session)
        self._metrics.reaped.inc()
        log.info("session_reaped", session=session)

    def _forget(self, session: str) -> None:
        """Its audio and description are gone: so goes the rest."""
        self._queue.cancel_session(session)
        self._parking.forget(session)

    def _do(self, step: str, session: str, call: Callable[[], object]) -> None:
        problem = self._redis_error()
        if not problem:
            try:
                call()
                return
            except QueueUnavailable as error:
                problem = str(error)
                self._metrics.redis_failures.labels(step).inc()
        log.info("cleanup_postponed", session=session, step=step, reason=problem)
        self._postponed.append((step, session, call))
