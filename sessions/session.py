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

from queueing.job import Delivery, Enqueued, EnqueueStatus, NewJob
from queueing.lane import Kind
from sessions.codes import ErrorCode
from sessions.course import Ending, Phase
from sessions.decodes import MIN_QUEUED_FINALS
from sessions.effects import Effect, Enqueue, ReadEvents
from sessions.errors import WireError
from sessions.keys import check_session_id
from sessions.lifecycle import Lifecycle
from sessions.limits import SessionLimits
from sessions.sniff import is_control_message
from sessions.summary import StreamSummary
from sessions.wire import End, Flush, Resume, Start, decode_client


class Session:
    """One stream. ``now`` is monotonic seconds and never goes back; every method returns effects to carry out.

    The caller handles what has arrived before it calls `on_tick`, or a timer would end what is not late.
    """

    def __init__(self, session: str, front: str, limits: SessionLimits, *, now: float, started_ms: int = 0) -> None:
        """``session``: its id (see `sessions.keys`); ``front``: where deliveries go; ``started_ms``: wall clock,
        for the buffer's description only."""
        self._stream = Lifecycle(check_session_id(session), front, limits, now=now, started_ms=started_ms)
        self._limits = limits
        self._connected_at = self._heard_at = self._read_at = now
        self._drain_deadline: float | None = None
        self._read_until: str | None = None
        self._ask_again = False
        self._late_audio_told = False

    @property
    def closed(self) -> bool:
        """Nothing more will be sent; every further input returns no effects."""
        return self._stream.phase is Phase.CLOSED

    @property
    def waiting_for_finals(self) -> bool:
        """A final was asked for and is not sent yet."""
        return len(self._stream.decodes.outbox) > 0

    @property
    def accepts(self) -> bool:
        """Whether the client's next message may be handed in. Else it is held back, unread, until a final is said:
        what is handed in all the same is taken, but beyond the bounds of `sessions.limits`."""
        return self._stream.phase is Phase.ENDING or not self._stream.full

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
            return stream.bad(now, ErrorCode.BAD_STATE, f"{message.type} after end; it is ignored") if late else []
        if isinstance(message, Start):
            return stream.start(now, message)
        if isinstance(message, Resume):
            return stream.resume_late(now)
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
        return stream.open() + stream.take(now, data) + stream.tell_load(now)

    def on_held_back(self, now: float) -> None:
        """The server does not read from the client for now: its silence is not the client's."""
        self._heard_at = now

    def on_too_big(self, now: float, size: int | None = None) -> list[Effect]:
        """The socket refused a message above ``max_frame_bytes`` (size where it is known)."""
        what = "a message" if size is None else f"a message of {size} bytes"
        limit = self._limits.max_frame_bytes
        problem = f"{what} came, at most {limit} bytes are allowed; send smaller ones"
        return self._stream.fatal(now, ErrorCode.FRAME_TOO_BIG, problem)

    def on_disconnect(self, now: float, outcome: str = "disconnected") -> list[Effect]:
        """The client is gone, or does not read (``outcome="slow_client"``): CancelSession, if not said before, and
        nothing more. Safe to call always when the stream's thread ends."""
        return self._stream.disconnect(now, outcome)

    # What became of effects.

    def on_append_failed(self, now: float, *, lost: bool, detail: str, full: bool = False) -> list[Effect]:
        """AppendAudio failed for good: ``lost`` when the buffer is gone (`AudioLost`), ``full`` when Redis has no room
        for more, else it stays away."""
        return self._stream.fatal(now, ErrorCode.STATE_LOST if lost else _without_redis(full), detail)

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

    def on_reconnected(self, now: float) -> list[Effect]:
        """The subscription was interrupted: reads the events, then asks again for finals that are due (their ids
        make that harmless; a Redis that forgot a job learns of it again)."""
        if self.closed or not self.waiting_for_finals:
            return []
        self._ask_again = True
        return [self._read(now)]

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

    def _read(self, now: float) -> ReadEvents:
        self._read_at = now
        return ReadEvents(self._read_until)

    # Time and the server's own end.

    def next_tick(self) -> float | None:
        """When `on_tick` is due, None when no timer runs."""
        return min(self._timers().values(), default=None)

    def on_tick(self, now: float) -> list[Effect]:
        """Time has passed; harmless when nothing is due."""
        due = {name for name, at in self._timers().items() if at <= now}
        if "drain" in due:
            problem = "this server process ends before a final was decoded"
            return self._stream.fatal(now, ErrorCode.SHUTTING_DOWN, problem)
        if "inference" in due:
            limit = f"{self._limits.inference_timeout_s:g} s"
            return self._stream.fatal(now, ErrorCode.INFERENCE_TIMEOUT, f"a final was not decoded within {limit}")
        effects = self._stream.open() if "handshake" in due else []
        if "idle" in due:
            effects += self._stream.end(now, Ending.IDLE)
        elif "repair" in due:
            effects.append(self._read(now))
        return effects

    def on_drain(self, now: float, deadline: float) -> list[Effect]:
        """This process ends at ``deadline``: no more audio is taken, what was received gets its final, then the
        client is told `shutting_down` (a stream that has ended itself finishes as usual)."""
        if self.closed:
            return []
        self._drain_deadline = deadline
        return [] if self._stream.phase is Phase.ENDING else self._stream.end(now, Ending.DRAIN)

    def on_fault(self, now: float, detail: str) -> list[Effect]:
        """The stream's thread met a fault of its own: the client is told `internal`."""
        return self._stream.fatal(now, ErrorCode.INTERNAL, detail)

    def _timers(self) -> dict[str, float]:
        timers: dict[str, float] = {}
        phase, limits = self._stream.phase, self._limits
        if phase is Phase.CLOSED:
            return timers
        if phase is Phase.WAITING:
            timers["handshake"] = self._connected_at + limits.handshake_timeout_s
        if phase is not Phase.ENDING and self.accepts:
            timers["idle"] = self._heard_at + limits.idle_timeout_s
        since = self._stream.decodes.outbox.waiting_since()
        if since is not None:
            timers["inference"] = since + limits.inference_timeout_s
            # Several looks before the client is told that it took too long.
            pause = min(limits.repair_after_s, limits.inference_timeout_s / 4)
            timers["repair"] = max(since, self._read_at) + pause
        if self._drain_deadline is not None:
            timers["drain"] = self._drain_deadline
        return timers


def _without_redis(full: bool) -> ErrorCode:
    return ErrorCode.OVERLOADED if full else ErrorCode.UNAVAILABLE
