"""The state machine of one stream: inputs are method calls, outputs are effects. No I/O, no clock, no threads.

Who is authoritative: the session alone decides what the client hears. It numbers what it sends, sends finals in
segment order exactly once, and trusts neither the order nor the number of deliveries, nor that pub/sub delivers
at all: what is due and does not come is read from the durable events.

    waiting for options --first message or handshake timeout--> open --end, audio limit, idle, drain--> ending
    any state --fatal error, disconnect--> closed        ending --last final sent--> closed

Every accepted sample is covered by exactly one final, or an error message says that it is not. A final comes for every
segment that ends, by a pause, by its length, by a flush or by the end; partials belong to the segment being spoken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from queueing.job import Delivery
from queueing.lane import Kind
from sessions.codes import ErrorCode
from sessions.course import Ending, Phase
from sessions.decodes import MIN_QUEUED_FINALS
from sessions.effects import Effect, Enqueue, TakeUp
from sessions.errors import WireError
from sessions.keys import check_session_id
from sessions.ledger import ResumeTerms
from sessions.lifecycle import Lifecycle
from sessions.limits import SessionLimits
from sessions.outcomes import REFUSED
from sessions.resumption import Resumption
from sessions.sniff import is_control_message
from sessions.summary import StreamSummary
from sessions.timers import Timers
from sessions.wire import End, Flush, Resume, Start, decode_client


class Session(Timers):
    """One stream. ``now`` is monotonic seconds and never goes back; every method returns effects to carry out.

    The caller handles what has arrived before it calls `on_tick`, or a timer would end what is not late.
    """

    def __init__(
        self,
        session: str,
        front: str,
        limits: SessionLimits,
        *,
        now: float,
        started_ms: int = 0,
        resume: ResumeTerms | None = None,
        only_resume: bool = False,
    ) -> None:
        """``session``: its id (see `sessions.keys`); ``front``: where deliveries go; ``started_ms``: wall clock,
        for the buffer's description only; ``resume``: how the stream may be resumed, None: it may not;
        ``only_resume``: there is no room for a new stream, only for going on with one."""
        stream = Lifecycle(check_session_id(session), front, limits, resume, now=now, started_ms=started_ms)
        super().__init__(stream, limits, now=now, only_resume=only_resume)
        self._ask_again = False
        self._late_audio_told = False

    @classmethod
    def resumed(
        cls,
        past: Resumption,
        audio: bytes,
        last_seq: int,
        front: str,
        limits: SessionLimits,
        terms: ResumeTerms,
        *,
        now: float,
    ) -> Self:
        """A session that goes on from what is stored of it, for a client that has everything up to ``last_seq``;
        ``audio``: what is stored from ``past.anchor.hear_from`` on. `on_resumed` is its first input."""
        session = cls(past.session, front, limits, now=now, started_ms=past.started_ms, resume=terms)
        session._stream.go_on(past, audio, last_seq, now)
        session._past = past
        return session

    def on_resumed(self, now: float) -> list[Effect]:
        """The client is told where to go on; what it lacks is read from the durable events."""
        if self._past is None:
            return []
        effects = self._stream.gone_on(now, self._past)
        return effects if self.closed else [*effects, self._read(now)]

    @property
    def waiting_for_finals(self) -> bool:
        """A final was asked for and is not sent yet."""
        return len(self._stream.decodes.outbox) > 0

    @property
    def buffered_bytes(self) -> int:
        """Received bytes that are in memory, not yet in Redis (a second of audio at most, and what is unrecognised)."""
        return self._stream.intake.held

    @property
    def summary(self) -> StreamSummary:
        """What the stream was like so far."""
        summary, intake = self._stream.summary, self._stream.intake
        summary.audio_bytes = intake.accepted
        summary.discarded_bytes = intake.raw - intake.accepted
        return summary

    # What the client does.

    def on_text(self, now: float, text: str) -> list[Effect]:
        """A text message, not yet decoded."""
        if self.closed:
            return []
        self._heard_at = now
        stream = self._stream
        try:
            message = decode_client(text)
        except WireError as error:
            return stream.bad(now, error.code, str(error))
        if stream.phase is Phase.ENDING:
            # After an end of the server's making these are messages that crossed it on the way: no fault.
            late = stream.ending is Ending.CLIENT and isinstance(message, Start | Resume | End | Flush)
            if isinstance(message, End) and self.epoch > 1:  # a client cannot know whether its end arrived before
                late = False
            return stream.bad(now, ErrorCode.BAD_STATE, f"{message.type} after end; it is ignored") if late else []
        if isinstance(message, Resume):
            if stream.phase is not Phase.WAITING:
                return stream.bad(now, ErrorCode.BAD_STATE, "resume is not the first message; it is ignored")
            return [TakeUp(message)] if stream.ledger.on else stream.fatal(now, ErrorCode.RESUME_REFUSED, REFUSED)
        if self._only_resume and stream.phase is Phase.WAITING:
            return self._no_room(now)
        if isinstance(message, Start):
            return stream.start(now, message)
        opening = stream.open()
        if isinstance(message, End):
            return opening + stream.end(now, Ending.CLIENT)
        if isinstance(message, Flush):
            return opening + stream.flush(now)
        return opening + stream.keep_buffer(now)

    def on_audio(self, now: float, data: bytes) -> list[Effect]:
        """A binary message of any length."""
        if self.closed:
            return []
        self._heard_at = now
        stream = self._stream
        stream.summary.frames += 1
        if len(data) > self._limits.max_frame_bytes:
            return self.on_too_big(now, len(data))
        if stream.phase is Phase.ENDING:
            stream.intake.raw += len(data)
            told, self._late_audio_told = self._late_audio_told, True
            if told or stream.ending is not Ending.CLIENT:
                return []
            return stream.bad(now, ErrorCode.BAD_STATE, "audio after end; it is discarded")
        if is_control_message(data):
            problem = "this binary message is JSON; send control messages as text"
            if stream.intake.raw:
                return stream.bad(now, ErrorCode.BAD_MESSAGE, problem)
            return stream.fatal(now, ErrorCode.NOT_PCM16, problem)
        if self._only_resume and stream.phase is Phase.WAITING:
            return self._no_room(now)
        return stream.open() + stream.take(now, data) + stream.tell_load(now)

    def on_held_back(self, now: float) -> None:
        """The server does not read from the client for now: its silence is not the client's."""
        self._heard_at = now

    def on_too_big(self, now: float, size: int | None = None) -> list[Effect]:
        """The socket refused a message above ``max_frame_bytes`` (size where it is known)."""
        what = "too big a message" if size is None else f"a message of {size} bytes"
        limit = self._limits.max_frame_bytes
        problem = f"{what} came, at most {limit} bytes are allowed; send smaller ones"
        return self._stream.fatal(now, ErrorCode.FRAME_TOO_BIG, problem)

    def on_disconnect(self, now: float, outcome: str = "disconnected", *, left: bool = False) -> list[Effect]:
        """The client is gone, or does not read (``outcome="slow_client"``): Park where it may come back, CancelSession
        where not or where it ``left`` by a close of its own, if not said before, and nothing more. Safe to call always
        when the stream ends."""
        return self._stream.disconnect(now, outcome, left=left)

    # What comes back.

    def on_delivery(self, now: float, delivery: Delivery) -> list[Effect]:
        """A result by pub/sub: in any order, any number of times."""
        if self.closed or delivery.session != self._stream.session:
            return []
        if delivery.kind is Kind.PARTIAL:
            return self._stream.partial(now, delivery)
        effects = self._final(now, delivery, repaired=False)
        outbox = self._stream.decodes.outbox
        if not self.closed and outbox.gap:
            effects.append(self._read(now))
        if not outbox.unanswered():
            # Everything asked for is answered: no event up to this one can be news.
            self._read_until = delivery.event_id or self._read_until
        return effects + self._stream.tell_load(now)

    def on_events(self, now: float, deliveries: Sequence[Delivery]) -> list[Effect]:
        """The answer to ReadEvents, oldest first."""
        if self._past is not None and not self.closed:
            return self._go_on(now, deliveries, self._past)
        effects: list[Effect] = []
        for delivery in deliveries:
            # While answers are missing only what was read moves the position: an event heard by pub/sub may have
            # overtaken a lost one.
            self._read_until = delivery.event_id or self._read_until
            if not self.closed:
                effects += self._final(now, delivery, repaired=True)
        if self._ask_again and not self.closed:
            self._ask_again = False
            effects += [Enqueue(job) for job in self._stream.decodes.outbox.unanswered()]
        return effects

    def _go_on(self, now: float, deliveries: Sequence[Delivery], past: Resumption) -> list[Effect]:
        """The events of a session that was taken up: what its client lacks is said or asked for, then how it ended."""
        self._past = None
        stream, outbox = self._stream, self._stream.decodes.outbox
        for delivery in deliveries:
            self._read_until = delivery.event_id or self._read_until
            outbox.answer(delivery)
        if outbox.forgotten:
            return stream.forgotten(now)
        effects = stream.release(now)
        return effects if self.closed or past.error is None else effects + stream.fatal(now, *past.error)

    def on_reconnected(self, now: float) -> list[Effect]:
        """The subscription was interrupted: asks whether the stream went on elsewhere meanwhile; reads the events, then
        asks again for finals that are due (their ids make that harmless; a Redis that forgot a job learns of it
        again)."""
        if self.closed:
            return []
        effects = self._stream.confirm()
        if not self.waiting_for_finals:
            return effects
        self._ask_again = True
        return [*effects, self._read(now)]

    def set_load(self, partial_wait_s: float, workers: int) -> None:
        """How long a partial that is asked for now would wait, and how many workers there are. The client is told with
        the next input."""
        decodes = self._stream.decodes
        decodes.plan.wait_s = partial_wait_s
        decodes.most_queued = max(MIN_QUEUED_FINALS, workers + 1)

    def on_workers(self, now: float, *, alive: bool) -> list[Effect]:  # noqa: ARG002 (every input has the time)
        """Whether any worker with a loaded model is alive; a waiting client is told, once, when there is none."""
        return self._stream.workers(alive=alive)

    def _final(self, now: float, delivery: Delivery, *, repaired: bool) -> list[Effect]:
        if not self._stream.decodes.outbox.answer(delivery):
            # What was said already is read again as a matter of course: only pub/sub repeating itself is news.
            self._stream.summary.duplicates += not repaired
            return []
        self._stream.summary.gap_repairs += repaired
        if not self.accepts:
            self._heard_at = now  # the client's silence until now was of our making
        return self._stream.release(now)
