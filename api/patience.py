"""How long a stream tries while Redis is away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from api.metrics import StreamMetrics
from queueing.clock import Clock
from queueing.errors import QueueUnavailable

PATIENCE_S = 10.0
"""How long a stream keeps trying while Redis is away: longer than a restart takes, or the failover of a Cluster (six
seconds were measured). The client is held back meanwhile, and so nothing grows."""
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 0.5

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Attempts:
    """Calls of Redis, each failure counted. ``pause`` waits the given seconds; True: less, as the process ends."""

    clock: Clock
    metrics: StreamMetrics
    pause: Callable[[float], object]

    def once(self, operation: str, call: Callable[[], Answer]) -> Answer:
        """Raises `QueueUnavailable`."""
        try:
            return call()
        except QueueUnavailable:
            self.metrics.redis_failures.labels(operation).inc()
            raise

    def patiently(self, operation: str, call: Callable[[], Answer]) -> Answer:
        """Again and again for `PATIENCE_S`, or once more when the process ends; then raises `QueueUnavailable`."""
        ends = False
        give_up_s = self.clock.monotonic() + PATIENCE_S
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return self.once(operation, call)
            except QueueUnavailable:
                if ends or self.clock.monotonic() + pause_s > give_up_s:
                    raise
                ends = bool(self.pause(pause_s))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
