"""What became of the effects that a session asked for."""

from __future__ import annotations

from queueing.job import Enqueued, EnqueueStatus, NewJob
from queueing.lane import Kind
from sessions.codes import ErrorCode
from sessions.effects import Effect
from sessions.lifecycle import Lifecycle


class Outcomes:
    """The part of `sessions.session.Session` that those who carry out effects answer to."""

    def __init__(self, stream: Lifecycle) -> None:
        self._stream = stream

    @property
    def id(self) -> str:
        return self._stream.session

    @property
    def epoch(self) -> int:
        """Which connection of the session this is, from 1."""
        return self._stream.ledger.epoch

    @property
    def keeps_slot(self) -> bool:
        """Whether the session's slot outlives this connection: it is parked, or another one's."""
        return self._stream.keeps_slot

    @property
    def unheard(self) -> bool:
        """Whether a Close waits for `on_closed` to say what becomes of the session."""
        return self._stream.unheard

    def on_stored(self, now: float, position: int) -> list[Effect]:
        """AppendAudio succeeded: the buffer holds the audio up to here."""
        return self._stream.stored(now, position)

    def on_append_failed(self, now: float, *, lost: bool, detail: str, full: bool = False) -> list[Effect]:
        """AppendAudio failed for good: ``lost`` when the buffer is gone (`AudioLost`), ``full`` when Redis has no room
        for more, else it stays away."""
        return self._stream.fatal(now, ErrorCode.STATE_LOST if lost else _without_redis(full), detail)

    def on_remember_failed(self, now: float, detail: str, *, full: bool = False) -> list[Effect]:
        """Redis stays away, or is out of memory (``full``): what depends on being noted cannot happen."""
        return self._stream.fatal(now, _without_redis(full), detail)

    def on_taken_over(self, now: float) -> list[Effect]:
        """A newer connection has resumed the session: this one is told, and touches nothing of it any more."""
        return self._stream.taken_over(now)

    def on_resume_refused(self, now: float) -> list[Effect]:
        """TakeUp found no such session for this client."""
        return self._stream.fatal(now, ErrorCode.RESUME_REFUSED, REFUSED)

    def on_closed(self, now: float, *, answered: bool) -> list[Effect]:  # noqa: ARG002 (every input has the time)
        """The connection is closed after a Close; ``answered``: by the client too, in time."""
        return self._stream.closed(answered=answered)

    def on_enqueued(self, now: float, job: NewJob, answer: Enqueued) -> list[Effect]:
        """The queue's answer to an Enqueue."""
        summary = self._stream.summary
        if answer.superseded or answer.status is EnqueueStatus.EXTENDED:
            summary.partials_superseded += 1
        if job.kind is Kind.FINAL:
            if answer.status is EnqueueStatus.FULL:
                return self._stream.fatal(now, ErrorCode.OVERLOADED, "the queue is full: the final cannot be decoded")
            self._stream.decodes.final_queued(answer)
        if job.kind is Kind.PARTIAL:
            if job.segment == self._stream.decodes.segment:
                self._stream.decodes.plan.answered(answer.status)
            if answer.status not in (EnqueueStatus.QUEUED, EnqueueStatus.EXTENDED):
                summary.partials_refused += 1
        return []

    def on_enqueue_failed(self, now: float, job: NewJob, detail: str, *, full: bool = False) -> list[Effect]:
        """The queue could not be reached, or is out of memory (``full``): a partial is given up, a final is the end of
        the stream."""
        return [] if job.kind is Kind.PARTIAL else self._stream.fatal(now, _without_redis(full), detail)


REFUSED = "there is no such stream to resume; open a new one"


def _without_redis(full: bool) -> ErrorCode:
    return ErrorCode.OVERLOADED if full else ErrorCode.UNAVAILABLE
