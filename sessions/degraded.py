"""When a client is told that its transcript lags, or that partials come more rarely than they should. Pure."""

from __future__ import annotations

from sessions.wire import Status

TELL_STRETCH, OVER_STRETCH = 1.5, 1.2
"""Partials' interval over what it is without load: from the first on it is worth a message, below the second it is
over."""

TELL_LAG_S, OVER_LAG_S = 10.0, 5.0
"""Seconds of audio without text. A long segment without load stays below the first: its partials come every 6 s."""

NOTABLE = 1.5
"""Told again when either has changed by this factor."""

PAUSE_S = 1.0
"""Between two messages, at least; so a load that changes all the time does not become a load of its own."""


class Degraded:
    """What the client was told last. `look` whenever something has changed."""

    def __init__(self) -> None:
        self._told: Status | None = None
        self._next_at = float("-inf")

    def look(self, now: float, *, lag_s: float, interval_s: float, stretched: float) -> Status | None:
        """The message that is due: degraded, degraded notably more or less, or (once) not any more.

        ``lag_s``: how far the newest text is behind the newest audio. ``interval_s``: between partials of a short
        segment, ``stretched`` times what it is without load.
        """
        if now < self._next_at:
            return None
        if self._told is None:
            due = stretched >= TELL_STRETCH or lag_s >= TELL_LAG_S
        else:
            due = (
                self._over(lag_s, stretched)
                or _differ(self._told.partial_interval_s, interval_s)
                or _differ(max(self._told.lag_s, TELL_LAG_S), max(lag_s, TELL_LAG_S))
            )
        if not due:
            return None
        self._next_at = now + PAUSE_S
        status = Status(lag_s=round(lag_s, 2), partial_interval_s=round(interval_s, 2))
        self._told = None if self._over(lag_s, stretched) else status
        return status

    @staticmethod
    def _over(lag_s: float, stretched: float) -> bool:
        return stretched < OVER_STRETCH and lag_s < OVER_LAG_S


def _differ(told: float, now: float) -> bool:
    return max(told, now) >= NOTABLE * min(told, now)
