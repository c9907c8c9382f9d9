"""Takes out of Redis what a stream had there: at once, or when Redis is back.

Everything would expire by itself, but jobs of streams that are gone would be decoded for nobody, and a stream
that ends must not wait for a Redis that hangs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog

from api.metrics import StreamMetrics
from queueing.errors import QueueUnavailable
from queueing.job_queue import JobQueue
from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer

MOST_POSTPONED = 10_000
CATCH_UP = 50
"""Postponed steps at one pulse."""

log = structlog.get_logger()


class Cleaner:
    """One for all streams of a process. Thread-safe."""

    def __init__(
        self,
        queue: JobQueue,
        buffer: AudioBuffer,
        slots: StreamSlots,
        metrics: StreamMetrics,
        redis_error: Callable[[], str],
    ) -> None:
        self._steps: dict[str, Callable[[str], object]] = {
            "cancel_session": queue.cancel_session,
            "delete_audio": buffer.delete,
            "release_slot": slots.release,
        }
        self._metrics = metrics
        self._redis_error = redis_error
        self._postponed: deque[tuple[str, str]] = deque(maxlen=MOST_POSTPONED)

    def end_session(self, session: str) -> None:
        """Remove the session's jobs, events and audio."""
        self._do("cancel_session", session)
        self._do("delete_audio", session)

    def release_slot(self, session: str) -> None:
        """Give the session's slot back."""
        self._do("release_slot", session)

    def catch_up(self) -> None:
        """Redis answers: do some of what was postponed."""
        for _ in range(min(CATCH_UP, len(self._postponed))):
            self._do(*self._postponed.popleft())

    def _do(self, step: str, session: str) -> None:
        problem = self._redis_error()
        if not problem:
            try:
                self._steps[step](session)
                return
            except QueueUnavailable as error:
                problem = str(error)
                self._metrics.redis_failures.labels(step).inc()
        log.info("cleanup_postponed", session=session, step=step, reason=problem)
        self._postponed.append((step, session))
