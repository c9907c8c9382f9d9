"""When to ask for a partial of the open segment, and over which audio."""

from __future__ import annotations

from queueing.job import EnqueueStatus
from queueing.lane import MAX_PARTIAL_AUDIO_S
from sessions.limits import in_bytes
from sessions.wire import BYTES_PER_SECOND

MAX_PARTIAL_BYTES = int(MAX_PARTIAL_AUDIO_S) * BYTES_PER_SECOND
STEP_BYTES = MAX_PARTIAL_BYTES // 2
"""A long segment's partials begin later in steps of this: a start that moved with every request would change the
model's context, and so the text, each time."""

_KEPT_TIMES = 64


class PartialPlan:
    """The cadence of one stream's partials: pure arithmetic on byte positions.

    The queue holds at most one partial of a session: while it waits, the next request extends it; while it is
    being decoded, a request is answered BUSY and made again when the result is in, or, should that never come,
    after another interval of audio.
    """

    def __init__(self, *, interval_s: float, minimum_s: float) -> None:
        self._interval = in_bytes(interval_s)
        self._minimum = in_bytes(minimum_s)
        self._segment_start = 0
        self._covered: int | None = None
        self._before: int | None = None
        self._blocked_until: int | None = None
        self._shown = 0
        self._received_at: dict[int, float] = {}
        self.outstanding = False
        """A request was taken and neither answered nor overtaken by its final."""

    def next_segment(self, start: int) -> None:
        """The segment before ``start`` has its final asked for; all its partials are obsolete."""
        self._segment_start = self._shown = start
        self._covered = self._before = self._blocked_until = None
        self._received_at.clear()
        self.outstanding = False

    def due(self, received: int) -> bool:
        """Whether to ask now that ``received`` bytes of the stream are here."""
        if self._blocked_until is not None:
            return received >= self._blocked_until
        if self._covered is None:
            return received - self._segment_start >= self._minimum
        return received - self._covered >= self._interval

    def request(self, received: int, now: float) -> tuple[int, int]:
        """The byte range to ask for; the answer goes to `answered`."""
        start = self._segment_start
        excess = received - start - MAX_PARTIAL_BYTES
        if excess > 0:
            start += -(-excess // STEP_BYTES) * STEP_BYTES
        self._before, self._covered = self._covered, received
        self._blocked_until = None
        self._received_at[received] = now
        while len(self._received_at) > _KEPT_TIMES:
            del self._received_at[next(iter(self._received_at))]
        return start, received

    def answered(self, status: EnqueueStatus) -> None:
        """What the queue said to the latest request."""
        if status is EnqueueStatus.BUSY and self._covered is not None:
            self._blocked_until = self._covered + self._interval
            self._covered = self._before
        elif status in (EnqueueStatus.QUEUED, EnqueueStatus.EXTENDED):
            self.outstanding = True

    def result(self) -> None:
        """A result, good or bad, is in: the queue is free again."""
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
