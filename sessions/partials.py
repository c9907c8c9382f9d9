"""When to ask for a partial of the segment being spoken."""

from __future__ import annotations

from queueing.job import EnqueueStatus
from sessions.limits import in_bytes
from sessions.segments import OpenSegment
from sessions.wire import BYTES_PER_SECOND

_KEPT_TIMES = 64

GROWTH = 0.2
"""Between two partials a segment grows by this share at least. Each decodes the whole segment, so at a fixed interval
they would cost as the square of its length; so all partials of a segment decode 1 + 1/GROWTH times its audio at most,
and what the first five seconds take at an interval of a second."""

FREE_WAIT_S = 0.25
STRETCH = 1.5
LONGEST_INTERVAL_S = 10.0
"""Where a partial would wait for longer than `FREE_WAIT_S`, the interval grows by `STRETCH` seconds for each second of
wait, up to this: so partials ask for less as soon as the workers fall behind, and finals find one free."""


def loaded_interval_s(base_s: float, wait_s: float) -> float:
    """Seconds of new audio between two partials of a short segment, where one that comes now would wait ``wait_s``.

    Never decreases with ``wait_s``; between ``base_s`` and the greater of that and `LONGEST_INTERVAL_S`.
    """
    return min(base_s + STRETCH * max(0.0, wait_s - FREE_WAIT_S), max(base_s, LONGEST_INTERVAL_S))


def partial_interval_s(base_s: float, wait_s: float, segment_s: float) -> float:
    """As `loaded_interval_s`, after a partial that covers ``segment_s`` seconds: at least `GROWTH` of that."""
    return max(loaded_interval_s(base_s, wait_s), GROWTH * segment_s)


class PartialPlan:
    """The cadence of one stream's partials: pure arithmetic on byte positions.

    The queue holds at most one partial of a session: while it waits, the next request extends it; while it is
    being decoded, a request is answered BUSY and made again when the result is in, or, should that never come,
    after another interval of audio.
    """

    def __init__(self, *, interval_s: float, minimum_s: float) -> None:
        self._base_s = interval_s
        self._interval = in_bytes(interval_s)
        self._minimum_s = minimum_s
        self.wait_s = 0.0
        """How long a partial that is asked for now would wait for a worker."""
        self._covered: int | None = None
        self._before: int | None = None
        self._blocked_until: int | None = None
        self._shown = 0
        self._received_at: dict[int, float] = {}
        self.outstanding = False
        """A request was taken and neither answered nor overtaken by its final."""

    @property
    def interval_s(self) -> float:
        """New audio between two partials of a short segment, as the load is now."""
        return loaded_interval_s(self._base_s, self.wait_s)

    @property
    def stretched(self) -> float:
        """How many times that is longer than without load."""
        return self.interval_s / self._base_s

    @property
    def shown(self) -> int:
        """Up to where partials were shown."""
        return self._shown

    def next_segment(self) -> None:
        """The segment has ended; all its partials are obsolete."""
        self._covered = self._before = self._blocked_until = None
        self._received_at.clear()
        self.outstanding = False

    def due(self, spoken: OpenSegment, received: int) -> bool:
        """Whether to ask now that ``received`` bytes of the stream are here and this segment is open."""
        covered_s = max(0, (self._covered or 0) - spoken.start_byte) / BYTES_PER_SECOND
        self._interval = in_bytes(partial_interval_s(self._base_s, self.wait_s, covered_s))
        if self._blocked_until is not None:
            return received >= self._blocked_until
        if self._covered is None:
            return spoken.speech_s >= self._minimum_s
        return received - self._covered >= self._interval

    def request(self, end: int, now: float) -> None:
        """A partial up to ``end`` is asked for; the answer goes to `answered`."""
        self._before, self._covered = self._covered, end
        self._blocked_until = None
        self._received_at[end] = now
        while len(self._received_at) > _KEPT_TIMES:
            del self._received_at[next(iter(self._received_at))]

    def answered(self, status: EnqueueStatus) -> None:
        """What the queue said to the latest request."""
        if status is EnqueueStatus.BUSY and self._covered is not None:
            self._blocked_until = self._covered + self._interval
            self._covered = self._before
        elif status in (EnqueueStatus.QUEUED, EnqueueStatus.EXTENDED):
            self.outstanding = True

    def result(self) -> None:
        """A result, good or bad, is in, or none will come: the queue is free again."""
        self._blocked_until = None
        self.outstanding = False

    def show(self, end: int) -> bool:
        """Whether a result up to ``end`` is newer than what was shown; it counts as shown then."""
        if end <= self._shown:
            return False
        self._shown = end
        return True

    def age(self, end: int, now: float) -> float | None:
        """Seconds since the audio up to ``end`` was received; None when that was never asked for. Call once."""
        received_at = self._received_at.get(end)
        self._received_at = {at: time for at, time in self._received_at.items() if at > end}
        return None if received_at is None else now - received_at
