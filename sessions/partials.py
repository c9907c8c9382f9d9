"""When to ask for a partial of the segment being spoken."""

from __future__ import annotations

from queueing.job import EnqueueStatus
from sessions.endpointing import OpenSegment
from sessions.limits import in_bytes

_KEPT_TIMES = 64


class PartialPlan:
    """The cadence of one stream's partials: pure arithmetic on byte positions.

    The queue holds at most one partial of a session: while it waits, the next request extends it; while it is
    being decoded, a request is answered BUSY and made again when the result is in, or, should that never come,
    after another interval of audio.
    """

    def __init__(self, *, interval_s: float, minimum_s: float) -> None:
        self._interval = in_bytes(interval_s)
        self._minimum_s = minimum_s
        self._covered: int | None = None
        self._before: int | None = None
        self._blocked_until: int | None = None
        self._shown = 0
        self._received_at: dict[int, float] = {}
        self.outstanding = False
        """A request was taken and neither answered nor overtaken by its final."""

    def next_segment(self) -> None:
        """The segment has ended; all its partials are obsolete."""
        self._covered = self._before = self._blocked_until = None
        self._received_at.clear()
        self.outstanding = False

    def due(self, spoken: OpenSegment, received: int) -> bool:
        """Whether to ask now that ``received`` bytes of the stream are here and this segment is open."""
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
