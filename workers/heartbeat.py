"""A worker's sign of life, in a thread of its own: neither a long decode nor an unreachable Redis holds anything up."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from queueing.errors import QueueUnavailable
from queueing.job_queue import JobQueue

HEARTBEAT_S = 2.0
"""A worker whose heartbeat is older than three of these counts as gone."""

log = structlog.get_logger()


class Heartbeat:
    """Tells Redis every `HEARTBEAT_S` who this worker is and what it does; `beat` does so at once.

    ``info`` gives the current description, ``after`` is called after each beat that Redis took (to look at
    what may have changed there).
    """

    def __init__(
        self, queue: JobQueue, worker_id: str, info: Callable[[], dict[str, object]], after: Callable[[], None]
    ) -> None:
        self._queue = queue
        self._worker_id = worker_id
        self._info = info
        self._after = after
        self._now = threading.Event()
        self._ended = False

    def nudge(self) -> None:
        """The state has changed: beat now rather than at the next turn."""
        self._now.set()

    def beat(self) -> bool:
        """One heartbeat; False when Redis is away."""
        try:
            self._queue.heartbeat(self._worker_id, self._info())
            self._after()
        except QueueUnavailable as error:
            log.debug("heartbeat_failed", reason=str(error))
            return False
        return True

    def run(self) -> None:
        """Beat until `end`."""
        while not self._ended:
            self._now.clear()
            self.beat()
            self._now.wait(HEARTBEAT_S)

    def end(self) -> None:
        """Let `run` return."""
        self._ended = True
        self._now.set()
