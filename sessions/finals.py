"""Finals that were asked for, until they can be said: in segment order, exactly once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from queueing.job import Delivery, NewJob


@dataclass(slots=True)
class DueFinal:
    """The final of a segment that covers ``covers_from`` to ``covers_to``, asked for at ``asked_at``.

    Its ``job`` has the part that is decoded; without one it is empty. A job that is not ``queued`` is held back.
    ``waits_since``: when its answer began to be waited for.
    """

    segment: int
    covers_from: int
    covers_to: int
    last: bool
    asked_at: float
    job: NewJob | None
    queued: bool = False
    waits_since: float = 0.0
    delivery: Delivery | None = None
    said_before: bool = False
    """On an earlier connection: its answer must be among the events."""

    @property
    def answered(self) -> bool:
        return self.job is None or self.delivery is not None

    @property
    def start_byte(self) -> int:
        """Where the audio begins that must be kept for it."""
        return self.covers_to if self.job is None else self.job.start_byte


class FinalOutbox:
    """Reorders answers by segment and ignores repeated and unknown ones."""

    def __init__(self) -> None:
        self._due: deque[DueFinal] = deque()

    def __len__(self) -> int:
        return len(self._due)

    def expect(self, final: DueFinal) -> None:
        """A final was asked for; segments come in ascending order."""
        if self._due and final.segment <= self._due[-1].segment:
            raise ValueError(f"segment {final.segment} after {self._due[-1].segment}")
        self._due.append(final)

    def newest(self, count: int) -> tuple[DueFinal, ...]:
        """The last ``count`` that were asked for and are not taken out yet, oldest first."""
        return tuple(self._due)[len(self._due) - count :]

    @property
    def forgotten(self) -> bool:
        """Once the events were read: whether the answer to a final that was said before is not kept any more."""
        return any(final.said_before and not final.answered for final in self._due)

    def answer(self, delivery: Delivery) -> bool:
        """Note the outcome of a final; False when it is not awaited (said already, answered already, unknown)."""
        for final in self._due:
            if final.job is not None and final.job.id == delivery.job and final.delivery is None:
                final.delivery = delivery
                return True
        return False

    def ready(self) -> Iterator[DueFinal]:
        """Take out, in order, what can be said now."""
        while self._due and self._due[0].answered:
            yield self._due.popleft()

    def held_back(self) -> tuple[DueFinal, ...]:
        """Those whose job is not queued yet, oldest first."""
        return tuple(final for final in self._due if not final.answered and not final.queued)

    def unanswered(self) -> tuple[NewJob, ...]:
        """The queued jobs still awaited, oldest first."""
        return tuple(final.job for final in self._due if final.job and final.queued and final.delivery is None)

    def waiting_since(self) -> float | None:
        """Since when the oldest queued final is waited for; None when nothing is awaited."""
        return next((final.waits_since for final in self._due if final.queued and not final.answered), None)

    def starts_at(self) -> int | None:
        """Where the oldest final's audio begins; None when none is due."""
        return self._due[0].start_byte if self._due else None

    @property
    def gap(self) -> bool:
        """A later segment is answered and an earlier is not: its answer may have been lost on the way."""
        seen_unanswered = False
        for final in self._due:
            if not final.answered:
                seen_unanswered = True
            elif seen_unanswered and final.job is not None:
                return True
        return False
