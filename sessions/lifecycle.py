"""What can happen to a stream, whoever causes it: it opens, takes audio, asks for decodes, says what they gave, ends.

`sessions.session` turns inputs and time into calls of these; each returns the effects to carry out.
"""

from __future__ import annotations

from enum import StrEnum

from queueing.job import Delivery
from sessions.codes import CODES, CloseCode, ErrorCode, code_of_failure
from sessions.decodes import Decodes
from sessions.effects import AppendAudio, CancelSession, Close, Effect, OpenBuffer, Send
from sessions.errors import WrongAudio
from sessions.finals import DueFinal
from sessions.intake import Intake
from sessions.limits import KEEP_BUFFER_S, MAX_WAITING_FINALS, SessionLimits
from sessions.outgoing import Outgoing
from sessions.results import DecodeOptions
from sessions.summary import StreamSummary
from sessions.wav import SEND_THIS
from sessions.wire import CHANNELS, ENCODING, MAX_BAD_MESSAGES, SAMPLE_RATE, Ready, Start


class Phase(StrEnum):
    """Where a stream is."""

    WAITING = "waiting"
    """For its options."""
    OPEN = "open"
    ENDING = "ending"
    """No more audio is taken; finals are due."""
    CLOSED = "closed"


class Ending(StrEnum):
    """Why no more audio is taken; the value is the stream's outcome."""

    CLIENT = "done"
    AUDIO_LIMIT = "audio_limit"
    IDLE = "idle_timeout"
    DRAIN = "shutting_down"


class Lifecycle:
    """The state of one stream and its transitions."""

    def __init__(self, session: str, front: str, limits: SessionLimits, *, now: float, started_ms: int) -> None:
        self.session = session
        self.limits = limits
        self.phase = Phase.WAITING
        self.ending = Ending.CLIENT
        self.intake = Intake(limits)
        self.decodes = Decodes(session, front, limits)
        self.out = Outgoing(retry_after_s=limits.retry_after_s, event_timing=limits.event_timing)
        self.summary = StreamSummary(session)
        self._meta = {"front": front, "started_ms": str(started_ms)}
        self._connected_at = self._stored_at = now
        self._first_audio_at: float | None = None
        self._start: Start | None = None
        self._no_worker = self._no_worker_told = self._cancelled = False

    # Opening.

    def open(self) -> list[Effect]:
        """The options are settled, by a start message or by doing without; nothing when that was so already."""
        if self.phase is not Phase.WAITING:
            return []
        self.phase = Phase.OPEN
        return [self._describe(), Send(Ready(session=self.session, limits=self.limits.wire()))]

    def start(self, now: float, message: Start) -> list[Effect]:
        """A start message: once, and before any audio."""
        if self._start is not None or self.intake.raw or self.phase is Phase.ENDING:
            when = "a second time" if self._start is not None else "after audio"
            return self.bad(now, ErrorCode.BAD_STATE, f"start came {when}; it is ignored")
        got = (message.encoding, message.sample_rate, message.channels)
        if got != (ENCODING, SAMPLE_RATE, CHANNELS):
            what = f"{message.encoding}, {message.sample_rate} Hz, {message.channels} channel(s)"
            return self.fatal(now, ErrorCode.UNSUPPORTED_FORMAT, f"start announces {what}; {SEND_THIS}")
        self._start = message
        self.summary.client_ref, self.summary.language = message.client_ref, message.language
        self.decodes.options = DecodeOptions(language=message.language, words=message.words)
        self.decodes.partials_wanted = message.partials
        self.out.words = message.words
        return self.open() or [self._describe()]

    def _describe(self) -> OpenBuffer:
        start = self._start or Start()
        return OpenBuffer(
            self._meta
            | {
                "client_ref": start.client_ref or "",
                "language": start.language or "",
                "partials": str(int(start.partials)),
                "words": str(int(start.words)),
            }
        )

    # Audio.

    def take(self, now: float, data: bytes) -> list[Effect]:
        """Audio of an open stream."""
        try:
            over = self.intake.take(data)
        except WrongAudio as error:
            return self.fatal(now, error.code, str(error))
        if self._first_audio_at is None and self.intake.accepted:
            self._first_audio_at = now
        return self._reach_limit(now) if over else self.ask_partial(now) or self._store(now)

    def ask_partial(self, now: float) -> list[Effect]:
        """A partial, if one is due; what it covers is stored first."""
        if not self.decodes.partial_due(self.intake.accepted):
            return []
        self.summary.partials_requested += 1
        return [*self._store(now, everything=True), self.decodes.ask_partial(now, self.intake.accepted)]

    def flush(self, now: float) -> list[Effect]:
        """A final over everything not yet final, if there is anything; the stream stays open."""
        if len(self.decodes.outbox) >= MAX_WAITING_FINALS:
            problem = f"{MAX_WAITING_FINALS} finals are waiting for their decode; this flush is ignored, try later"
            return self.bad(now, ErrorCode.BAD_STATE, problem)
        try:
            over = self.intake.settle(end=False)
        except WrongAudio as error:
            return self.fatal(now, error.code, str(error))
        if over:
            return self._reach_limit(now)
        if self.intake.accepted == self.decodes.final_from:
            return []
        self.summary.flushes += 1
        return self._cut(now, last=False)

    def keep_buffer(self, now: float) -> list[Effect]:
        """Renew the expiry of what is stored, now and then."""
        if not self.intake.stored or now < self._stored_at + KEEP_BUFFER_S:
            return []
        self._stored_at = now
        return [AppendAudio(self.intake.stored, b"")]

    def _store(self, now: float, *, everything: bool = False) -> list[Effect]:
        pieces = self.intake.pieces(everything=everything)
        if pieces:
            self._stored_at = now
        return list(pieces)

    def _cut(self, now: float, *, last: bool) -> list[Effect]:
        effects = self._store(now, everything=True)
        effects += self.decodes.ask_final(now, self.intake.accepted, last=last)
        self.summary.finals_requested += 1
        effects += self.release(now)
        return effects + self.tell_no_worker()

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
            why, effects = Ending.AUDIO_LIMIT, [self._limit_error()]
        self.phase, self.ending = Phase.ENDING, why
        if why in (Ending.CLIENT, Ending.AUDIO_LIMIT) or self.intake.accepted > self.decodes.final_from:
            return effects + self._cut(now, last=True)
        return effects + self.release(now)

    def _reach_limit(self, now: float) -> list[Effect]:
        return [self._limit_error(), *self.end(now, Ending.AUDIO_LIMIT)]

    def _limit_error(self) -> Send:
        limit = f"{self.limits.max_audio_s:g} s"
        return Send(
            self.out.error(
                ErrorCode.AUDIO_LIMIT, f"the stream has reached its limit of {limit} of audio; the rest is discarded"
            )
        )

    def _finish(self, now: float) -> list[Effect]:
        if self.ending is Ending.IDLE:
            limit = f"{self.limits.idle_timeout_s:g} s"
            return self.fatal(
                now, ErrorCode.IDLE_TIMEOUT, f"no message for {limit}; send audio or keepalive, or end the stream"
            )
        if self.ending is Ending.DRAIN:
            return self.fatal(now, ErrorCode.SHUTTING_DOWN, "this server process ends; reconnect")
        code = CloseCode.NORMAL if self.ending is Ending.CLIENT else CloseCode.TOO_BIG
        return [Send(self.out.done(self.intake.accepted)), *self._close(now, code, self.ending.value)]

    # Answers.

    def partial(self, now: float, delivery: Delivery) -> list[Effect]:
        """A partial's outcome: said when it is news about the open segment; then the next may be asked for."""
        if not self.decodes.fresh_partial(delivery):
            self.summary.duplicates += 1
            return []
        plan, effects = self.decodes.plan, list[Effect]()
        current = delivery.segment == self.decodes.segment
        if current:
            plan.result()
        done = delivery.outcome == "done"
        if done:
            self.summary.decoded_s += delivery.audio_s
        if done and current and plan.show(delivery.end_byte):
            try:
                effects.append(Send(self.out.partial(delivery)))
            except ValueError as error:
                return self.fatal(now, ErrorCode.INTERNAL, str(error))
            self._note_partial(now, plan.age(delivery.end_byte, now))
        else:
            self.summary.partials_dropped += 1
        return effects + self.ask_partial(now)

    def release(self, now: float) -> list[Effect]:
        """Say, in order, the finals that are answered; after the last the stream is finished."""
        effects: list[Effect] = []
        for due in self.decodes.outbox.ready():
            if due.delivery is not None and due.delivery.outcome != "done":
                error = due.delivery.error or {}
                code = code_of_failure(error.get("code"))
                return effects + self.fatal(now, code, f"a final failed: {error.get('message') or error.get('code')}")
            try:
                effects.append(Send(self.out.final(due)))
            except ValueError as problem:
                return effects + self.fatal(now, ErrorCode.DECODE_FAILED, str(problem))
            self._note_final(now, due)
        if self.phase is Phase.ENDING and not self.decodes.outbox:
            effects += self._finish(now)
        return effects

    def workers(self, *, alive: bool) -> list[Effect]:
        """Whether any worker lives."""
        self._no_worker = not alive
        self._no_worker_told = self._no_worker_told and not alive
        return self.tell_no_worker()

    def tell_no_worker(self) -> list[Effect]:
        """Once per outage, to a client that waits for something."""
        waits = self.decodes.outbox or self.intake.accepted > self.decodes.final_from
        if not self._no_worker or self._no_worker_told or not waits or self.phase is Phase.CLOSED:
            return []
        self._no_worker_told = True
        return [Send(self.out.error(ErrorCode.NO_WORKER, "no worker is alive; the stream waits for one"))]

    # Errors and the end.

    def bad(self, now: float, code: ErrorCode, problem: str) -> list[Effect]:
        """A wrong message: the stream goes on, unless there were too many."""
        self.summary.bad_messages += 1
        if self.summary.bad_messages >= MAX_BAD_MESSAGES:
            problem = f"{MAX_BAD_MESSAGES} messages were wrong, the latest: {problem}"
            return self.fatal(now, ErrorCode.TOO_MANY_ERRORS, problem)
        return [Send(self.out.error(code, problem))]

    def fatal(self, now: float, code: ErrorCode, problem: str) -> list[Effect]:
        """The stream ends here, with this error."""
        if self.phase is Phase.CLOSED:
            return []
        close = CODES[code].close or CloseCode.INTERNAL
        return [Send(self.out.error(code, problem)), *self._close(now, close, code.value)]

    def disconnect(self, now: float, outcome: str) -> list[Effect]:
        """The client is gone."""
        if self.phase is not Phase.CLOSED:
            self._note_end(now, outcome, None)
        return self._cancel()

    def _close(self, now: float, code: CloseCode, outcome: str) -> list[Effect]:
        self._note_end(now, outcome, code)
        return [Close(code, outcome), *self._cancel()]

    def _cancel(self) -> list[Effect]:
        first, self._cancelled = not self._cancelled, True
        return [CancelSession()] if first else []

    # For the summary.

    def _note_end(self, now: float, outcome: str, code: CloseCode | None) -> None:
        self.phase = Phase.CLOSED
        self.summary.outcome = outcome
        self.summary.close_code = None if code is None else int(code)
        self.summary.duration_s = now - self._connected_at

    def _note_partial(self, now: float, age: float | None) -> None:
        if self.summary.first_partial_s is None and self._first_audio_at is not None:
            self.summary.first_partial_s = now - self._first_audio_at
        self.summary.partials_sent += 1
        if age is not None:
            self.summary.note_staleness(age)

    def _note_final(self, now: float, due: DueFinal) -> None:
        self.summary.finals_sent += 1
        self.summary.note_final_latency(now - due.asked_at)
        if due.delivery is not None:
            self.summary.decoded_s += due.delivery.audio_s
