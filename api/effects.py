"""Carries out what a session asks for: the only place where a stream meets Redis and its socket."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from api.cleaner import Cleaner
from api.keys import Principal
from api.metrics import StreamMetrics
from api.overload import Load
from api.pace import Pace
from api.patience import Attempts
from api.pulse import Pulse
from api.socket import StreamSocket
from api.socket_types import EndCause, SocketEnded
from queueing.clock import Clock
from queueing.errors import QueueUnavailable, RedisFull
from queueing.job import Delivery
from queueing.job_queue import JobQueue
from queueing.lane import Kind
from sessions.audio_buffer import AudioBuffer
from sessions.codes import CloseCode
from sessions.effects import (
    AppendAudio,
    CancelJobs,
    CancelPartial,
    CancelSession,
    Close,
    Effect,
    Enqueue,
    OpenBuffer,
    Park,
    ReadEvents,
    Remember,
    Send,
    TakeUp,
    TrimAudio,
)
from sessions.errors import AudioLost, ResumeRefused, TakenOver
from sessions.session import Session
from sessions.wire import BYTES_PER_SECOND, Final, Partial, Resume, encode

BUILT_ON_WRITES: frozenset[type[Effect]] = frozenset({AppendAudio, Remember, TrimAudio, Enqueue, Send})
"""What may not happen any more once a write before it was given up. Who resumes the stream knows nothing of that write:
audio would be gone that is needed again, the client would have what is said once more, or a token for nothing."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What every stream of a process shares. ``pause``: as of `Attempts`."""

    queue: JobQueue
    buffer: AudioBuffer
    clock: Clock
    metrics: StreamMetrics
    pulse: Pulse
    cleaner: Cleaner
    pause: Callable[[float], object]
    load: Callable[[], Load] = Load
    pace: Callable[[Principal], Pace] | None = None
    """How fast a stream of this principal is read; None: as fast as it comes."""


class EffectRunner:
    """Carries out effects of one session, in order, and tells it what became of them."""

    def __init__(
        self, session: Session, socket: StreamSocket, ports: Ports, take_up: Callable[[Resume], Session]
    ) -> None:
        """``take_up`` gives the session with which the connection goes on instead (see `api.taking_up`)."""
        self._session = session
        self._socket = socket
        self._ports = ports
        self._attempts = Attempts(ports.clock, ports.metrics, ports.pause)
        self._take_up_session = take_up
        self._skip: set[type[Effect]] = set()
        self._todo: deque[Sequence[Effect]] = deque()
        self._delivery: Delivery | None = None
        self._finals_seen = 0
        self._received = 0
        self.close: tuple[CloseCode, str] | None = None
        """Set when the session asked for its end: code and reason."""
        self.lost = False
        """Set when the client could not be reached."""

    @property
    def session(self) -> Session:
        """The connection's: that which it began with, until it has taken up another."""
        return self._session

    @property
    def _id(self) -> str:
        return self._session.id

    def run(self, effects: Sequence[Effect], delivery: Delivery | None = None) -> None:
        """Carry out ``effects`` and whatever follows from them; ``delivery`` is what caused them, for metrics."""
        if not effects:
            return
        self._delivery = delivery
        self._todo.append(effects)
        while self._todo:
            self._skip.clear()
            for effect in self._todo.popleft():
                if type(effect) not in self._skip:
                    self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect)
            case AppendAudio():
                self._append(effect)
            case TrimAudio():
                self._trim(effect)
            case Enqueue():
                self._enqueue(effect)
            case ReadEvents():
                self._read_events(effect)
            case CancelPartial():
                self._cancel_partial()
            case CancelSession():
                self._ports.cleaner.end_session(self._id, self._session.epoch)
            case CancelJobs():
                self._ports.cleaner.cancel_jobs(self._id, self._session.epoch, effect.fields)
            case Park():
                self._ports.cleaner.park(self._id, self._session.epoch, effect.fields, keep_slot=effect.keep_slot)
            case Remember():
                self._remember(effect)
            case TakeUp():
                self._take_up(effect)
            case OpenBuffer():
                self._open_buffer(effect)
            case Close():
                self.close = (effect.code, effect.reason)

    def _open_buffer(self, effect: OpenBuffer) -> None:
        try:
            epoch = self._session.epoch
            self._attempts.patiently(
                "open_buffer", lambda: self._ports.buffer.create(self._id, effect.meta, epoch=epoch)
            )
        except TakenOver:
            self._taken_over()
        except QueueUnavailable as error:
            self._skip |= BUILT_ON_WRITES
            full = isinstance(error, RedisFull)
            self._follow(self._session.on_append_failed(self._now(), lost=False, full=full, detail=str(error)))

    def _append(self, effect: AppendAudio) -> None:
        def append() -> int:
            return self._ports.buffer.append(
                self._id,
                effect.offset,
                effect.data,
                follows=effect.follows,
                keep_from=effect.keep_from,
                epoch=self._session.epoch,
                fields=effect.fields,
            )

        try:
            self._attempts.patiently("append", append)
        except TakenOver:
            self._taken_over()
        except (QueueUnavailable, AudioLost) as error:
            self._skip |= BUILT_ON_WRITES
            lost, full = isinstance(error, AudioLost), isinstance(error, RedisFull)
            self._follow(self._session.on_append_failed(self._now(), lost=lost, full=full, detail=str(error)))
        else:
            self.count_received()
            self._follow(self._session.on_stored(self._now(), effect.offset + len(effect.data)))

    def _remember(self, effect: Remember) -> None:
        def remember() -> int:
            return self._ports.buffer.remember(
                self._id, effect.fields, effect.gone, before=effect.before, epoch=self._session.epoch
            )

        try:
            self._attempts.patiently("remember", remember)
        except TakenOver:
            self._taken_over()
        except QueueUnavailable as error:
            self._skip |= BUILT_ON_WRITES
            full = isinstance(error, RedisFull)
            self._follow(self._session.on_remember_failed(self._now(), str(error), full=full))

    def _taken_over(self) -> None:
        self._skip |= BUILT_ON_WRITES | {Park, CancelSession, CancelJobs}
        self._follow(self._session.on_taken_over(self._now()))

    def _take_up(self, effect: TakeUp) -> None:
        try:
            # Repeated it finds what it did before, and the client's token still good.
            session = self._attempts.patiently("take_up", lambda: self._take_up_session(effect.message))
        except ResumeRefused:
            self._follow(self._session.on_resume_refused(self._now()))
        except (QueueUnavailable, AudioLost) as error:
            lost = isinstance(error, AudioLost)
            self._follow(self._session.on_append_failed(self._now(), lost=lost, detail=str(error)))
        else:
            self._session = session
            self._received = session.summary.audio_bytes
            self._follow(session.on_resumed(self._now()))

    def _enqueue(self, effect: Enqueue) -> None:
        job, partial = effect.job, effect.job.kind is Kind.PARTIAL
        attempt = self._attempts.once if partial else self._attempts.patiently  # the next partial is due soon
        try:
            answer = attempt("enqueue", lambda: self._ports.queue.enqueue(job))
        except QueueUnavailable as error:
            self._skip |= {Enqueue} if partial else BUILT_ON_WRITES
            full = isinstance(error, RedisFull)
            self._follow(self._session.on_enqueue_failed(self._now(), job, str(error), full=full))
        else:
            self._follow(self._session.on_enqueued(self._now(), job, answer))

    def _read_events(self, effect: ReadEvents) -> None:
        try:
            deliveries = self._attempts.once(
                "read_events", lambda: self._ports.queue.events(self._id, after=effect.after)
            )
        except QueueUnavailable:
            self._skip.add(ReadEvents)
        else:
            for delivery in deliveries:
                self.count_decode(delivery)
            self._follow(self._session.on_events(self._now(), deliveries))

    def _send(self, effect: Send) -> None:
        try:
            self._socket.send(encode(effect.message))
        except SocketEnded as ended:
            self._skip.add(Send)
            self.lost = True
            if ended.cause is EndCause.SEND_TIMEOUT:
                self._ports.metrics.send_timeouts.inc()
            self._follow(self._session.on_disconnect(self._now(), outcome_of(ended), left=ended.left))
            return
        if isinstance(effect.message, Partial | Final):
            self._count_transcript(effect.message)

    def _count_transcript(self, message: Partial | Final) -> None:
        metrics, policy, summary = self._ports.metrics, self._ports.pulse.policy, self._session.summary
        metrics.messages.labels(message.type, policy).inc()
        if self._delivery is not None:
            delay_s = (self._ports.pulse.redis_now_ms() - self._delivery.completed_ms) / 1000
            metrics.delivery_delay_s.labels(message.type, policy).observe(max(0.0, delay_s))
        if isinstance(message, Partial):
            if summary.partial_staleness_s:
                metrics.partial_staleness_s.labels(policy).observe(summary.partial_staleness_s[-1])
            return
        # The session has counted every final of this list already; the newest values are at the list's end.
        self._finals_seen += 1
        index = self._finals_seen - summary.finals_sent - 1
        if -len(summary.final_latencies_s) <= index < 0:
            metrics.final_latency_s.labels(policy).observe(summary.final_latencies_s[index])

    def count_received(self) -> None:
        """Account for the audio that was accepted since the last call."""
        received = self._session.summary.audio_bytes
        self._ports.metrics.received_s.inc((received - self._received) / BYTES_PER_SECOND)
        self._received = received

    def count_decode(self, delivery: Delivery) -> None:
        """Account for a decode that came back."""
        if delivery.outcome == "done":
            self._ports.metrics.decoded_s.labels(delivery.kind.value, self._ports.pulse.policy).inc(delivery.audio_s)

    def _follow(self, effects: Sequence[Effect]) -> None:
        if effects:
            self._todo.append(effects)

    def _cancel_partial(self) -> None:
        # Best effort: the session drops the result of a partial that is not wanted any more.
        with contextlib.suppress(QueueUnavailable):
            self._attempts.once("cancel_partial", lambda: self._ports.queue.cancel_partial(self._id))

    def _trim(self, effect: TrimAudio) -> None:
        # Best effort: the next one forgets this much too, and the end of the stream everything.
        epoch = self._session.epoch
        try:
            self._attempts.once("trim", lambda: self._ports.buffer.trim(self._id, effect.before, epoch=epoch))
        except QueueUnavailable:
            return
        except TakenOver:
            self._taken_over()

    def _now(self) -> float:
        return self._ports.clock.monotonic()


def outcome_of(ended: SocketEnded) -> str:
    """The outcome of a stream whose connection ended so."""
    return "slow_client" if ended.cause is EndCause.SEND_TIMEOUT else "disconnected"
