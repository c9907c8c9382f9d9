"""What can happen to a stream, whoever causes it: it opens, takes audio, asks for decodes, says what they gave, ends.

`sessions.session` turns inputs and time into calls of these; each returns the effects to carry out.
"""

from __future__ import annotations

from collections.abc import Sequence

from queueing.job import Delivery
from sessions.codes import ErrorCode, code_of_failure
from sessions.course import Course, Ending, Phase
from sessions.decodes import Decodes
from sessions.degraded import Degraded
from sessions.effects import AppendAudio, Effect, OpenBuffer, Send, TrimAudio
from sessions.endpointing import Segment
from sessions.errors import WrongAudio
from sessions.finals import DueFinal
from sessions.intake import Intake
from sessions.limits import KEEP_BUFFER_S, MAX_WAITING_AUDIO_S, MAX_WAITING_FINALS, SessionLimits, in_bytes
from sessions.options import StreamOptions
from sessions.results import DecodeResult
from sessions.wav import SEND_THIS
from sessions.wire import BYTES_PER_SECOND, Final, Ready, Start

_MAX_WAITING_BYTES = in_bytes(MAX_WAITING_AUDIO_S)


class Lifecycle(Course):
    """The state of one stream and its transitions."""

    def __init__(self, session: str, front: str, limits: SessionLimits, *, now: float, started_ms: int) -> None:
        super().__init__(session, limits, now=now)
        self.intake = Intake(limits)
        self.decodes = Decodes(session, front, limits)
        self._meta = {"front": front, "started_ms": str(started_ms)}
        self._stored_at = now
        self._first_audio_at: float | None = None
        self._options = StreamOptions()
        self._trimmed = 0
        self._no_worker = self._no_worker_told = False
        self._degraded = Degraded()

    @property
    def full(self) -> bool:
        """So much waits for its final that no more shall be taken."""
        outbox = self.decodes.outbox
        starts_at = outbox.starts_at()
        behind = 0 if starts_at is None else self.intake.accepted - starts_at
        return len(outbox) >= MAX_WAITING_FINALS or behind >= _MAX_WAITING_BYTES

    @property
    def lag_s(self) -> float:
        """How much of the newest audio has no text yet, not even a partial's; 0 where none will come."""
        waiting, spoken = self.decodes.outbox.starts_at(), self.intake.open
        if waiting is None and spoken is not None and self.decodes.partials_wanted:
            waiting = spoken.start_byte
        if waiting is None:
            return 0.0
        return max(0, self.intake.accepted - max(waiting, self.decodes.plan.shown)) / BYTES_PER_SECOND

    def tell_load(self, now: float) -> list[Effect]:
        """How the stream lags, when that has changed notably."""
        if self.phase in (Phase.WAITING, Phase.CLOSED):
            return []
        plan = self.decodes.plan
        stretched = plan.stretched if self.decodes.partials_wanted else 1.0
        status = self._degraded.look(now, lag_s=self.lag_s, interval_s=plan.interval_s, stretched=stretched)
        return [] if status is None else [Send(status)]

    # Opening.

    def open(self) -> list[Effect]:
        """The options are settled, by a start message or by doing without; nothing when that was so already."""
        if self.phase is not Phase.WAITING:
            return []
        self.phase = Phase.OPEN
        return [self._describe(), Send(Ready(session=self.session, limits=self.limits.wire(self.intake.endpoint_s)))]

    def start(self, now: float, message: Start) -> list[Effect]:
        """A start message: once, and before any audio."""
        if self._options.chosen or self.intake.raw or self.phase is Phase.ENDING:
            when = "a second time" if self._options.chosen else "after audio"
            return self.bad(now, ErrorCode.BAD_STATE, f"start came {when}; it is ignored")
        options = StreamOptions(message, chosen=True)
        wrong = options.wrong_format()
        if wrong is not None:
            return self.fatal(now, ErrorCode.UNSUPPORTED_FORMAT, f"start announces {wrong}; {SEND_THIS}")
        self._options = options
        self.summary.client_ref, self.summary.language = message.client_ref, message.language
        self.intake.endpoint_s = options.endpoint_s(self.limits)
        self.decodes.speech_known = self.intake.endpoint_s is not None
        self.decodes.options = options.decode()
        self.decodes.partials_wanted = message.partials
        self.out.words = message.words
        return self.open() or [self._describe()]

    def resume_late(self, now: float) -> list[Effect]:
        """A resume message: only the first message of a connection may be one, and only of a stream that waits."""
        if self.phase is Phase.WAITING:
            return self.fatal(now, ErrorCode.RESUME_REFUSED, "there is no such stream to resume; open a new one")
        return self.bad(now, ErrorCode.BAD_STATE, "resume came after the first message; it is ignored")

    def _describe(self) -> OpenBuffer:
        return OpenBuffer(self._meta | self._options.described(self.intake.endpoint_s))

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

    def keep_buffer(self, now: float) -> list[Effect]:
        """Renew the expiry of what is stored, now and then."""
        stored = self.intake.stored
        if not stored or now < self._stored_at + KEEP_BUFFER_S:
            return []
        self._stored_at = now
        return [AppendAudio(stored, b"", follows=stored, keep_from=self._needed_from())]

    def _store(self, now: float, parts: Sequence[Segment] = ()) -> list[Effect]:
        """Store what is not stored yet; ``parts``: segments that have ended in it and will be asked for."""
        needed_from = self._needed_from()
        pieces = self.intake.store(min(needed_from, parts[0].start_byte) if parts else needed_from)
        if pieces:
            self._stored_at = now
        return list(pieces)

    def _needed_from(self) -> int:
        return self.decodes.needed_from(self.intake.keep_from)

    def _cut(self, now: float, parts: Sequence[Segment], *, last: bool = False) -> list[Effect]:
        """These segments have ended: their audio is stored, their finals are asked for. ``last``: and no more come."""
        effects = self._store(now, parts) if parts else []
        for number, part in enumerate(parts, 1):
            effects += self.decodes.ask_final(now, part, last=last and number == len(parts))
        return effects + self._asked(now, len(parts))

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
        parts = self.intake.hear()
        part = self.intake.finish()
        if part is not None:
            parts.append(part)
            self.phase, self.ending = Phase.ENDING, why
            return effects + self._cut(now, parts, last=True)
        effects += self._cut(now, parts)
        self.phase, self.ending = Phase.ENDING, why
        accepted = self.intake.accepted
        if why in (Ending.CLIENT, Ending.AUDIO_LIMIT) or accepted > self.decodes.covered:
            return effects + self.decodes.ask_empty(now, accepted) + self._asked(now, 1)
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
        effects: list[Effect] = []
        for due in self.decodes.outbox.ready():
            if due.delivery is not None and due.delivery.outcome != "done":
                error = due.delivery.error or {}
                code = code_of_failure(error.get("code"))
                return effects + self.fatal(now, code, f"a final failed: {error.get('message') or error.get('code')}")
            try:
                effects.append(Send(self._final(now, due)))
            except ValueError as problem:
                return effects + self.fatal(now, ErrorCode.DECODE_FAILED, str(problem))
        if self.phase is Phase.ENDING and not self.decodes.outbox:
            return effects + self.finish(now, self.intake.accepted)
        return effects + self._trim() + self.decodes.ask_held_back(now)

    def _final(self, now: float, due: DueFinal) -> Final:
        result = None if due.delivery is None else DecodeResult.from_dict(due.delivery.result or {})
        message = self.out.final(due, result)
        if result is not None:
            self.decodes.learn_language(result)
        self.summary.note_final(now - due.asked_at, due.delivery.audio_s if due.delivery else 0.0)
        return message

    def _trim(self) -> list[Effect]:
        before = min(self._needed_from(), self.intake.stored)
        if before <= self._trimmed:
            return []
        self._trimmed = before
        return [TrimAudio(before)]

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
