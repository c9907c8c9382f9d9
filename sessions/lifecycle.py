"""What can happen to a stream, whoever causes it: it opens, takes audio, asks for decodes, says what they gave, ends.

`sessions.session` turns inputs and time into calls of these; each returns the effects to carry out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from queueing.job import Delivery
from sessions.codes import ErrorCode, code_of_failure
from sessions.course import Ending, Phase
from sessions.effects import Effect, OpenBuffer, Remember, Send
from sessions.errors import WrongAudio
from sessions.finals import DueFinal
from sessions.ledger import ResumeTerms, ended, seq_field
from sessions.limits import SessionLimits
from sessions.options import StreamOptions
from sessions.results import DecodeResult
from sessions.resumption import Resumption
from sessions.segments import Segment
from sessions.storing import Storing
from sessions.wav import SEND_THIS
from sessions.wire import BYTES_PER_SECOND, Final, Ready, Start, encode


class Lifecycle(Storing):
    """The state of one stream and its transitions."""

    def __init__(
        self,
        session: str,
        front: str,
        limits: SessionLimits,
        terms: ResumeTerms | None,
        *,
        now: float,
        started_ms: int,
    ) -> None:
        super().__init__(session, front, limits, terms, now=now)
        self._meta = {"front": front, "started_ms": str(started_ms)}
        self._first_audio_at: float | None = None
        self._options = StreamOptions()
        self._again: list[Segment] = []
        self._no_worker = self._no_worker_told = False

    # Opening.

    def open(self) -> list[Effect]:
        """The options are settled, by a start message or by doing without; nothing when that was so already."""
        if self.phase is not Phase.WAITING:
            return []
        self.phase = Phase.OPEN
        return [self._describe(), Send(self.ready(0))]

    def ready(self, received: int, *, resumed: bool = False) -> Ready:
        """The message that begins a connection; ``received``: the byte at which the client goes on."""
        terms = self.ledger.terms
        return Ready(
            session=self.session,
            limits=self.limits.wire(self.intake.endpoint_s),
            token=None if terms is None else terms.token,
            resume_s=0.0 if terms is None else terms.grace_s,
            received_s=received / BYTES_PER_SECOND,
            resumed=resumed,
        )

    def start(self, now: float, message: Start) -> list[Effect]:
        """A start message: once, and before any audio."""
        if self._options.chosen or self.intake.raw or self.phase is Phase.ENDING:
            when = "a second time" if self._options.chosen else "after audio"
            return self.bad(now, ErrorCode.BAD_STATE, f"start came {when}; it is ignored")
        options = StreamOptions(message, chosen=True)
        wrong = options.wrong_format()
        if wrong is not None:
            return self.fatal(now, ErrorCode.UNSUPPORTED_FORMAT, f"start announces {wrong}; {SEND_THIS}")
        self._choose(options, options.endpoint_s(self.limits))
        if message.resume is False:
            self.ledger.terms = None
        return self.open() or [self._describe()]

    def go_on(self, past: Resumption, audio: bytes, last_seq: int, now: float) -> None:
        """Take up a stream where another connection lost it. ``audio``: what is stored from its anchor on. Call once,
        first."""
        self._choose(past.options, past.endpoint_s)
        if past.language is not None:
            self.decodes.options = replace(self.decodes.options, language=past.language)
        self.ledger.go_on(past.epoch, past.said)
        self.intake.resumable = True
        self.decodes.go_on(past.epoch, past.segment, past.covered, past.lacking, now)
        self.out.go_on(last_seq, past.lacking[0].segment if past.lacking else past.segment)
        self.phase = Phase.OPEN if past.ending is None else Phase.ENDING
        self.ending = past.ending or Ending.CLIENT
        self._again = self.intake.go_on(past.received, past.anchor, past.covered, audio)
        self._trimmed, self._acked = past.base, past.received

    def gone_on(self, now: float, past: Resumption) -> list[Effect]:
        """The first that a client hears that is back. Numbers of finals that it lacks count no more before anything
        else gets them."""
        void = tuple(seq_field(final.segment) for final in past.lacking if final.seq is not None)
        effects: list[Effect] = [Remember({}, (*void, "over")), Send(self.ready(past.received, resumed=True))]
        if past.forgotten:
            return effects + self.forgotten(now)
        if self.phase is Phase.ENDING and self.ending is Ending.AUDIO_LIMIT:
            effects.append(self.limit_error())
        again, self._again = self._again, []
        return effects + self._cut(now, again)

    def forgotten(self, now: float) -> list[Effect]:
        """The client cannot be told all that it lacks."""
        return self.fatal(now, ErrorCode.STATE_LOST, "finals that the client lacks are not kept any more")

    @property
    def comes_back(self) -> bool:
        """The client has promised to resume the stream when the connection is closed."""
        return self.ledger.held and self._options.message.resume is True

    def _choose(self, options: StreamOptions, endpoint_s: float | None) -> None:
        message, self._options = options.message, options
        self.summary.client_ref, self.summary.language = message.client_ref, message.language
        self.intake.endpoint_s = endpoint_s
        self.decodes.speech_known = endpoint_s is not None
        self.decodes.options = options.decode()
        self.decodes.partials_wanted = message.partials
        self.out.words = message.words

    def _describe(self) -> OpenBuffer:
        described = self._options.described(self.intake.endpoint_s)
        fields = self._meta | described | self.ledger.opening(encode(self._options.message))
        self.ledger.opened, self.intake.resumable = True, self.ledger.on
        return OpenBuffer(fields)

    # Audio.

    def take(self, now: float, data: bytes) -> list[Effect]:
        """Audio of an open stream."""
        try:
            over = self.intake.take(data)
        except WrongAudio as error:
            return self.fatal(now, error.code, str(error))
        if self._first_audio_at is None and self.intake.accepted:
            self._first_audio_at = now
        if over:
            return self._reach_limit(now)
        effects = self._cut(now, self.intake.hear())
        if partial := self.ask_partial(now):
            return effects + partial
        return effects + (self._store(now) if self.intake.worth_storing() else self.keep_buffer(now))

    def ask_partial(self, now: float) -> list[Effect]:
        """A partial, if one is due; what it covers is stored first."""
        spoken = self.intake.open
        if spoken is None or not self.decodes.partial_due(spoken, self.intake.accepted):
            return []
        self.summary.partials_requested += 1
        return [*self._store(now), self.decodes.ask_partial(now, spoken, self.intake.accepted)]

    def flush(self, now: float) -> list[Effect]:
        """A final over what was said since the last one, if anything was; the stream stays open."""
        try:
            over = self.intake.settle(end=False)
        except WrongAudio as error:
            return self.fatal(now, error.code, str(error))
        if over:
            return self._reach_limit(now)
        parts = self.intake.hear()
        part = self.intake.finish()
        if part is not None:
            self.summary.flushes += 1
            parts.append(part)
        return self._cut(now, parts)

    def _cut(
        self, now: float, parts: Sequence[Segment], *, last: bool = False, fields: Mapping[str, str] | None = None
    ) -> list[Effect]:
        """These segments have ended: their audio is stored, their finals are asked for. ``last``: and no more come."""
        if not parts:
            return []
        stored, jobs = self._store(now, parts), list[Effect]()
        for number, part in enumerate(parts, 1):
            jobs += self.decodes.ask_final(now, part, last=last and number == len(parts))
        return self._noted(stored, len(parts), fields or {}) + jobs + self._asked(now, len(parts))

    def _asked(self, now: float, finals: int) -> list[Effect]:
        if not finals:
            return []
        self.summary.finals_requested += finals
        self.out.next_segment()
        return self.release(now) + self.tell_no_worker()

    # Ending.

    def end(self, now: float, why: Ending) -> list[Effect]:
        """Take no more audio; what was received gets its final. A client that said end, or reached the limit,
        gets a last final in any case."""
        effects: list[Effect] = []
        try:
            over = self.intake.settle(end=True)
        except WrongAudio as error:
            return self.fatal(now, error.code, str(error))
        if over and why is not Ending.AUDIO_LIMIT:
            why, effects = Ending.AUDIO_LIMIT, [self.limit_error()]
        # Who may come back goes on after this: then it is neither the end nor noted as such.
        goes_on = why is Ending.DRAIN and self.ledger.held
        fields = {} if goes_on else ended(why.value)
        parts = self.intake.hear()
        part = self.intake.finish()
        if part is not None:
            parts.append(part)
            self.phase, self.ending = Phase.ENDING, why
            return effects + self._cut(now, parts, last=not goes_on, fields=fields)
        effects += self._cut(now, parts)
        self.phase, self.ending = Phase.ENDING, why
        accepted = self.intake.accepted
        if why in (Ending.CLIENT, Ending.AUDIO_LIMIT) or (accepted > self.decodes.covered and not goes_on):
            jobs = self.decodes.ask_empty(now, accepted)
            return effects + self._noted([], 1, fields) + jobs + self._asked(now, 1)
        return effects + self.release(now)

    def _reach_limit(self, now: float) -> list[Effect]:
        return [self.limit_error(), *self.end(now, Ending.AUDIO_LIMIT)]

    # Answers.

    def partial(self, now: float, delivery: Delivery) -> list[Effect]:
        """A partial's outcome: said when it is news about the open segment; then the next may be asked for."""
        if not self.decodes.fresh_partial(delivery):
            self.summary.duplicates += 1
            return []
        plan, effects, summary = self.decodes.plan, list[Effect](), self.summary
        current = delivery.segment == self.decodes.segment
        if current:
            plan.result()
        done = delivery.outcome == "done"
        if done:
            summary.decoded_s += delivery.audio_s
        if done and current and plan.show(delivery.end_byte):
            try:
                effects.append(Send(self.out.partial(delivery)))
            except ValueError as error:
                return self.fatal(now, ErrorCode.INTERNAL, str(error))
            since_first = None if self._first_audio_at is None else now - self._first_audio_at
            summary.note_partial(since_first, plan.age(delivery.end_byte, now))
        else:
            summary.partials_dropped += 1
        return effects + self.ask_partial(now)

    def release(self, now: float) -> list[Effect]:
        """Say, in order, the finals that are answered, and ask for those that waited for them; after the last the
        stream is finished."""
        said: list[tuple[DueFinal, Final]] = []
        for due in self.decodes.outbox.ready():
            if due.delivery is not None and due.delivery.outcome != "done":
                error = due.delivery.error or {}
                code = code_of_failure(error.get("code"))
                problem = f"a final failed: {error.get('message') or error.get('code')}"
                return self._say(said) + self.fatal(now, code, problem)
            try:
                said.append((due, self._final(now, due)))
            except ValueError as problem:
                return self._say(said) + self.fatal(now, ErrorCode.DECODE_FAILED, str(problem))
        if self.phase is Phase.ENDING and not self.decodes.outbox:
            return self._say(said) + self.finish(now, self.intake.accepted)
        return self._say(said) + self._trim() + self.decodes.ask_held_back(now)

    def _final(self, now: float, due: DueFinal) -> Final:
        result = None if due.delivery is None else DecodeResult.from_dict(due.delivery.result or {})
        message = self.out.final(due, result)
        if result is not None:
            self.decodes.learn_language(result)
        self.summary.note_final(now - due.asked_at, due.delivery.audio_s if due.delivery else 0.0)
        return message

    def workers(self, *, alive: bool) -> list[Effect]:
        """Whether any worker lives."""
        self._no_worker = not alive
        self._no_worker_told = self._no_worker_told and not alive
        return self.tell_no_worker()

    def tell_no_worker(self) -> list[Effect]:
        """Once per outage, to a client that waits for something."""
        waits = self.decodes.outbox or self.intake.open is not None
        if not self._no_worker or self._no_worker_told or not waits or self.phase is Phase.CLOSED:
            return []
        self._no_worker_told = True
        return [Send(self.out.error(ErrorCode.NO_WORKER, "no worker is alive; the stream waits for one"))]
