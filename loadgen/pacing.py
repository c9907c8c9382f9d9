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

    def position(self) -> float:
        """How many bytes are due by now; infinite for speed 0."""
        return math.inf if self.speed == 0 else (self._clock.monotonic() - self._start) * BYTES_PER_SECOND * self.speed


class CatchUp:
    """The pace behind a loss: audio that is overdue goes at most ``factor`` times as fast as usual, until none is."""

    def __init__(self, pace: Pace, now: float, factor: float) -> None:
        if not factor > 1:
            raise ValueError(f"audio that is late is caught up with only at more than its pace, got {factor} times")
        self._pace = pace
        self._factor = factor
        self._newest_at = now
        self.late = pace.speed > 0
        """Whether there is anything to catch up with."""

    def delay_s(self, position_bytes: int, size: int, now: float) -> float:
        """How long the frame of ``size`` bytes that ends at ``position_bytes`` has to wait."""
        delay = self._pace.delay_s(position_bytes)
        if not self.late:
            return delay
        allowed = self._newest_at + size / BYTES_PER_SECOND / self._pace.speed / self._factor - now
        self.late = delay < allowed
        return max(delay, allowed)

    def sent(self, now: float) -> None:
        """A frame has left."""
        self._newest_at = now
