"""The decodes that one stream asks for: which audio, when, under which job id, and which answers still count."""

from __future__ import annotations

from queueing.job import Delivery, NewJob
from queueing.lane import Kind
from sessions.effects import CancelPartial, Effect, Enqueue
from sessions.finals import DueFinal, FinalOutbox
from sessions.keys import final_job_id, partial_job_id
from sessions.limits import MIN_DECODE_S, SessionLimits, in_bytes
from sessions.partials import PartialPlan
from sessions.results import DecodeOptions
from sessions.wire import BYTES_PER_SECOND

_MIN_DECODE_BYTES = in_bytes(MIN_DECODE_S)


class Decodes:
    """Segments are numbered from 0; the open one begins at ``final_from``. Positions are bytes."""

    def __init__(self, session: str, front: str, limits: SessionLimits) -> None:
        self._session = session
        self._front = front
        self._requests = 0
        self._last_partial: tuple[str, int] | None = None
        self.options = DecodeOptions()
        self.partials_wanted = True
        self.segment = 0
        self.final_from = 0
        self.outbox = FinalOutbox()
        self.plan = PartialPlan(interval_s=limits.partial_interval_s, minimum_s=limits.min_partial_audio_s)

    def partial_due(self, accepted: int) -> bool:
        """Whether to ask for a partial, now that this much audio is accepted."""
        return self.partials_wanted and self.plan.due(accepted)

    def ask_partial(self, now: float, accepted: int) -> Enqueue:
        """A partial of the open segment up to ``accepted``, which must be stored before."""
        self._requests += 1
        start, end = self.plan.request(accepted, now)
        return Enqueue(self._job(partial_job_id(self._session, self._requests), Kind.PARTIAL, start, end))

    def ask_final(self, now: float, accepted: int, *, last: bool) -> list[Effect]:
        """The final of the open segment; the next begins at ``accepted``, which must be stored before."""
        start, effects = self.final_from, list[Effect]()
        job = None
        if accepted - start >= _MIN_DECODE_BYTES:
            job = self._job(final_job_id(self._session, self.segment), Kind.FINAL, start, accepted)
            effects.append(Enqueue(job))
        elif self.plan.outstanding:
            effects.append(CancelPartial())
        self.outbox.expect(DueFinal(self.segment, start, accepted, last, now, job))
        self.segment += 1
        self.final_from = accepted
        self.plan.next_segment(accepted)
        return effects

    def fresh_partial(self, delivery: Delivery) -> bool:
        """Whether this partial's result is not a repetition of the latest."""
        seen, self._last_partial = self._last_partial, (delivery.job, delivery.end_byte)
        return seen != self._last_partial

    def _job(self, job_id: str, kind: Kind, start: int, end: int) -> NewJob:
        return NewJob(
            id=job_id,
            session=self._session,
            kind=kind,
            segment=self.segment,
            start_byte=start,
            end_byte=end,
            audio_s=(end - start) / BYTES_PER_SECOND,
            front=self._front,
            options=self.options.to_dict(),
        )
