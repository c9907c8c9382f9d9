"""A token bucket: so much at once, and then so much a second."""

from __future__ import annotations

from queueing.clock import Clock


class TokenBucket:
    """Holds ``burst`` tokens at most and gets ``per_s`` a second; may be overdrawn. Used by one thread."""

    def __init__(self, clock: Clock, burst: float, per_s: float) -> None:
        self._clock = clock
        self._burst = burst
        self.per_s = per_s
        self._tokens = float(burst)
        self._filled_s = clock.monotonic()

    def set_rate(self, per_s: float) -> None:
        """From now on it gets so much a second."""
        self.tokens()
        self.per_s = per_s

    def spend(self, count: int = 1) -> bool:
        """Take so many tokens; False when there were fewer."""
        self._tokens = self.tokens() - count
        return self._tokens >= 0

    def tokens(self) -> float:
        """How many there are now; negative when overdrawn."""
        now_s = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now_s - self._filled_s) * self.per_s)
        self._filled_s = now_s
        return self._tokens

    def wait_s(self) -> float:
        """Seconds until there is a whole token; 0 when there is one."""
        return max(0.0, (1 - self.tokens()) / self.per_s)
