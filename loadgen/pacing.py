"""When to send which byte: audio leaves as a microphone would deliver it, whatever the sender's own delays."""

from __future__ import annotations

import math

from loadgen.clips import BYTES_PER_SECOND
from queueing.clock import Clock


class Pace:
    """A schedule for a stream's audio.

    A frame is due when its last sample would have been recorded: ``start + end_of_frame / speed``. Every due time is
    computed from the start, so lateness of one frame is made up by the next and never adds up. ``speed`` 0 means
    that everything is due at once.
    """

    def __init__(self, clock: Clock, speed: float = 1.0) -> None:
        if not (math.isfinite(speed) and speed >= 0):
            raise ValueError(f"speed must be 0 (as fast as possible) or more, got {speed}")
        self.speed = speed
        self._clock = clock
        self._start = clock.monotonic()

    @property
    def start(self) -> float:
        """When recording began, on the clock."""
        return self._start

    def due(self, position_bytes: int) -> float:
        """When the sample that ends at this position is due, on the clock."""
        return self._start if self.speed == 0 else self._start + position_bytes / BYTES_PER_SECOND / self.speed

    def delay_s(self, position_bytes: int) -> float:
        """How long to wait until then; 0 or less: send now (by so much too late)."""
        return self.due(position_bytes) - self._clock.monotonic()
