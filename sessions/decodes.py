"""The decodes that one stream asks for: which audio, when, in which language, and which answers still count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from queueing.job import Delivery, Enqueued, NewJob
from queueing.lane import MAX_JOB_AUDIO_S, Kind
from sessions.effects import CancelPartial, Effect, Enqueue
from sessions.finals import DueFinal, FinalOutbox
from sessions.keys import final_job_id, partial_job_id
from sessions.ledger import NotedFinal
from sessions.limits import MIN_DECODE_S, SessionLimits, in_bytes
from sessions.partials import PartialPlan
from sessions.results import DecodeOptions, DecodeResult
from sessions.segments import OpenSegment, Segment
from sessions.wire import BYTES_PER_SECOND

SURE = 0.5
"""A language detected with at least this probability is kept for the rest of the stream."""

MIN_QUEUED_FINALS = 2
"""Finals that a stream may have in the queue, and in workers' hands, in any case."""

REQUESTS_PER_CONNECTION = 1_000_000
"""Partials of one connection are numbered from its epoch times this: no id comes twice."""

MIN_DECODE_BYTES = in_bytes(MIN_DECODE_S)
_MAX_DECODE_BYTES = in_bytes(MAX_JOB_AUDIO_S)


class Decodes:
    """Segments are numbered from 0. Positions are bytes.

    While nobody has said which language is spoken, finals are asked for one at a time, until one is sure of it: so
    which language a final is decoded in depends on the audio before it, not on what happened to be queued when.

    And at most `most_queued` finals are asked for at once: as many as keep every worker busy and one ready behind them.
    More would make this stream no faster, but others' finals would wait behind them.
    """

    def __init__(self, session: str, front: str, limits: SessionLimits) -> None:
        self._session = session
        self._front = front
        self._requests = 0
        self._last_partial: tuple[str, int] | None = None
        self.options = DecodeOptions()
        self.partials_wanted = True
        self.speech_known = limits.endpoint_s is not None
        """Whether segments tell truly how much of them is speech."""
        self.segment = 0
        self.covered = 0
        """Up to where finals were asked for."""
        self.outbox = FinalOutbox()
        self.most_queued = MIN_QUEUED_FINALS
        self.plan = PartialPlan(interval_s=limits.partial_interval_s, minimum_s=limits.min_partial_audio_s)

    def partial_due(self, spoken: OpenSegment | None, received: int) -> bool:
        """Whether to ask for a partial of the open segment, now that this much audio is here."""
        return self.partials_wanted and spoken is not None and self.plan.due(spoken, received)

    def ask_partial(self, now: float, spoken: OpenSegment, received: int) -> Enqueue:
        """A partial of the open segment, up to ``received``, which must be stored before."""
        self._requests += 1
        self.plan.request(received, now)
        end = min(received, spoken.start_byte + _MAX_DECODE_BYTES)
        job_id = partial_job_id(self._session, self._requests)
        return Enqueue(self._job(job_id, Kind.PARTIAL, spoken.start_byte, end, spoken.speech_s))

    def ask_final(self, now: float, part: Segment, *, last: bool) -> list[Effect]:
        """The final of a segment, whose audio must be stored before. One too short for a word needs no decode."""
        job = None
        if part.end_byte - part.start_byte >= MIN_DECODE_BYTES:
            job_id = final_job_id(self._session, self.segment)
            job = self._job(job_id, Kind.FINAL, part.start_byte, part.end_byte, part.speech_s)
        return self._expect(now, part.covers_to, job, last=last)

    def ask_empty(self, now: float, covers_to: int) -> list[Effect]:
        """The last final of a stream in which nobody spoke since the final before."""
        return self._expect(now, covers_to, None, last=True)

    def ask_held_back(self, now: float) -> list[Effect]:
        """The finals that need not be held back any longer: once the language is known up to `most_queued`, else one
        at a time."""
        effects = list[Effect]()
        under_way = len(self.outbox.unanswered())
        for due in self.outbox.held_back():
            if under_way >= (1 if self.options.language is None else self.most_queued):
                break
            if due.job is not None:
                under_way += 1
                due.queued, due.waits_since = True, now
                due.job = replace(due.job, options=self.options.to_dict())
                effects.append(Enqueue(due.job))
        return effects

    def learn_language(self, result: DecodeResult) -> None:
        """A final's result: what it is sure to have heard is the language of the stream."""
        sure = (result.language_probability or 0.0) >= SURE and bool(result.text.strip())
        if self.options.language is None and sure and result.language:
            self.options = replace(self.options, language=result.language)

    def final_queued(self, answer: Enqueued) -> None:
        """A final was queued. One that had been held back took the partial of a later segment with it."""
        if answer.superseded:
            self.plan.result()

    def fresh_partial(self, delivery: Delivery) -> bool:
        """Whether this partial's result is not a repetition of the latest."""
        seen, self._last_partial = self._last_partial, (delivery.job, delivery.end_byte)
        return seen != self._last_partial

    def needed_from(self, keep_from: int) -> int:
        """What lies before will not be read again; ``keep_from``: as `Intake.keep_from`."""
        starts_at = self.outbox.starts_at()
        return keep_from if starts_at is None else min(starts_at, keep_from)

    def _expect(self, now: float, covers_to: int, job: NewJob | None, *, last: bool) -> list[Effect]:
        outstanding = self.plan.outstanding
        self.outbox.expect(DueFinal(self.segment, self.covered, covers_to, last, now, job))
        self.segment += 1
        self.covered = covers_to
        self.plan.next_segment()
        # A final takes its session's partial out of the queue; without one that is to be asked for.
        return self.ask_held_back(now) or ([CancelPartial()] if outstanding else [])

    def go_on(self, epoch: int, segment: int, covered: int, finals: Iterable[NotedFinal], now: float) -> None:
        """Take up a stream whose finals up to ``covered`` were asked for; of these ``finals`` the client has none.
        ``segment``: the next one. Call once, first."""
        self._requests = epoch * REQUESTS_PER_CONNECTION
        for noted in finals:
            self.segment = noted.segment
            job = None
            if noted.part is not None:
                start, end, speech_s = noted.part
                job_id = final_job_id(self._session, noted.segment)
                job = self._job(job_id, Kind.FINAL, start, end, end - start if speech_s is None else speech_s)
            due = DueFinal(noted.segment, noted.covers_from, noted.covers_to, noted.last, now, job)
            due.said_before = noted.seq is not None
            self.outbox.expect(due)
        self.segment, self.covered = segment, covered

    def _job(self, job_id: str, kind: Kind, start: int, end: int, speech_s: float) -> NewJob:
        audio_s = (end - start) / BYTES_PER_SECOND
        return NewJob(
            id=job_id,
            session=self._session,
            kind=kind,
            segment=self.segment,
            start_byte=start,
            end_byte=end,
            audio_s=audio_s,
            front=self._front,
            options=self.options.to_dict(),
            speech_s=min(speech_s, audio_s) if self.speech_known else None,
        )
