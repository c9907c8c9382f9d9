"""A stream as an actor: it owns the session, its effects and its socket, and takes one step at a time (`api.turns`).

It waits for three things at once: bytes of the client, mail (deliveries from the subscriber, news from the process),
and the session's own timer. It handles one at a time, so there is nothing to lock; while it is busy, or Redis or the
client is slow, or the session has enough finals waiting, it does not read, and TCP slows the client down.

    upgrade -> steps { mail, timer, messages } -> cleanup (jobs, audio, slot) -> close handshake -> thread is free

A stream that may be resumed is parked instead of cleaned up when its connection is lost. When it has come to its end,
that is settled after the close handshake: a client that does not answer may have missed the end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog

from api.effects import EffectRunner, Ports, outcome_of
from api.mailbox import Drain, Mailbox, Reconnected, TakenOver, WorkersChanged
from api.pace import Pace
from api.socket import StreamSocket
from api.socket_types import EndCause, SocketEnded, TooBig, Violation
from api.steps import Steps, Wait
from api.turns import Turns
from queueing.job import Delivery
from sessions.codes import CloseCode, ErrorCode
from sessions.effects import Effect, Send
from sessions.session import Session
from sessions.wire import Error, Resume

LONGEST_WAIT_S = 30.0
PIECE_BYTES = 32_000
"""A long message is handed to the session by the second, so that mail and the session's bounds come in between."""

HANDLED_AT_ONCE_S = 0.005
"""When what came together takes longer than this, other streams get their turn in between."""

HEARD_OUT_S = 0.25
HEARD_OUT_AT_MOST_S = 1.0
"""A process that ends still takes what its clients have sent by then: so long it reads on, and until all of that is
handled, at most so long."""

log = structlog.get_logger()


class Stream:
    """One open stream. `run` is its life; afterwards the caller closes the socket."""

    def __init__(
        self,
        session: Session,
        socket: StreamSocket,
        mailbox: Mailbox,
        ports: Ports,
        take_up: Callable[[Resume], Session],
        turns: Turns,
        *,
        label: str = "",
        pace: Pace | None = None,
    ) -> None:
        """``take_up``: as for `EffectRunner`; ``label`` names the API key in log lines."""
        self._label = label
        self._socket = socket
        self._mailbox = mailbox
        self._ports = ports
        self._turns = turns
        self._runner = EffectRunner(session, socket, ports, take_up)
        self._delivered = False
        self._pace = pace or Pace(ports.clock, 0)
        self._unhandled: deque[str | bytes] = deque()
        self._begun_s = 0.0
        """Since when it handles without letting others in."""
        self._notice: Drain | None = None
        self._heed_s = self._heed_at_last_s = 0.0
        """When the notice is heeded: once nothing is unhandled, and in any case."""

    @property
    def _session(self) -> Session:
        return self._runner.session

    @property
    def _who(self) -> dict[str, str]:
        return {"session": self._session.id, **({"key": self._label} if self._label else {})}

    @property
    def over(self) -> bool:
        """Whether the session has ended or left this connection, though the connection may still close."""
        return self._session.closed

    @property
    def keeps_slot(self) -> bool:
        """Whether the session's slot outlives the connection."""
        return self._session.keeps_slot

    @property
    def unheard(self) -> bool:
        """Whether it depends on the client's close frame what becomes of the session: `closed` wants to know."""
        return self._session.unheard

    def closed(self, *, answered: bool) -> None:
        """The connection is closed; ``answered``: by the client too. Does not raise."""
        self._guarded(lambda: self._session.on_closed(self._now(), answered=answered))

    @property
    def buffered_bytes(self) -> int:
        """Received audio that is not in Redis yet."""
        held_back = sum(len(message) for message in tuple(self._unhandled))
        return self._session.buffered_bytes + held_back

    def run(self) -> tuple[int, str]:
        """Serve the stream to its end; returns the code and reason to close the socket with.

        Everything the stream had in Redis is cleaned up or parked when this returns, unless it is `unheard` of the
        client. Does not raise.
        """
        close: tuple[int, str] = (CloseCode.NORMAL, "")
        outcome, left = "disconnected", True
        try:
            self._turns.take(self._steps(), self._socket.sock.fileno(), self._mailbox.fileno())
        except SocketEnded as ended:
            outcome, left = outcome_of(ended), ended.left
            if ended.cause is EndCause.DEAD_PEER:
                self._ports.metrics.dead_peers.inc()
        except Violation as violation:
            close = (violation.code, violation.reason)
            outcome = "protocol_error"
            if isinstance(violation, TooBig):
                outcome = ErrorCode.FRAME_TOO_BIG.value
                close, told = (violation.code, outcome), Error(code=outcome, message=violation.reason, fatal=True)
                self._guarded(lambda: [Send(told)])
        except Exception as fault:  # the boundary of a stream: its fault ends it, with a reason, and nobody else
            log.exception("stream_failed", **self._who)
            name = type(fault).__name__
            self._ports.metrics.handler_faults.inc()
            close = (CloseCode.INTERNAL, "internal error")
            self._guarded(lambda: self._session.on_fault(self._now(), name))
        self._guarded(lambda: self._session.on_disconnect(self._now(), outcome, left=left))
        self._runner.count_received()
        summary = self._session.summary
        log.info("stream_summary", **{**self._who, **summary.log_fields()})
        self._ports.metrics.stream_ended(summary, delivered=self._delivered)
        return self._runner.close or close

    def _steps(self) -> Steps[None]:
        clock = self._ports.clock
        tick_s, load, session = self._session.next_tick(), None, None
        while not self._over():
            if session is not (session := self._session):  # at first, and when another was taken up
                load = None
            if load is not (load := self._ports.load()):
                session.set_load(load.partial_wait_s, load.workers)
            wait_s = LONGEST_WAIT_S if tick_s is None else min(tick_s - clock.monotonic(), LONGEST_WAIT_S)
            if self._notice is not None:
                wait_s = min(wait_s, self._heed_s - clock.monotonic())
            yield from self._receive(max(0.0, wait_s))
            looked_s = clock.monotonic()
            self._take_mail()
            self._heed()
            if self._unhandled and session.accepts and not self._over():
                message, now = self._unhandled.popleft(), clock.monotonic()
                effects = session.on_text(now, message) if isinstance(message, str) else session.on_audio(now, message)
                self._runner.run(effects)
                session = self._session
            # Only what was due when client and mail were looked at: what comes while a step is held up is not late.
            tick_s = session.next_tick()
            waits = not self._unhandled or not session.accepts
            if tick_s is not None and tick_s <= looked_s and waits and not self._over():
                self._runner.run(session.on_tick(looked_s))
                tick_s = session.next_tick()

    def _over(self) -> bool:
        return self._runner.close is not None or self._runner.lost

    def _receive(self, wait_s: float) -> Steps[None]:
        """Wait for the client, mail or the time; while the session takes no more, for mail and the time only."""
        session = self._session
        if not session.accepts:
            yield from self._socket.pause(wait_s)
        elif not self._unhandled and (held_back_s := self._pace.wait_s()) > 0:
            yield from self._socket.pause(min(wait_s, held_back_s))
            session.on_held_back(self._now())
        elif not self._unhandled:
            try:
                messages = yield from self._socket.messages(wait_s, answer_awaited=session.waiting_for_finals)
            except Violation as violation:
                if isinstance(violation, TooBig) and violation.kind == "binary":
                    self._runner.run(session.on_too_big(self._now(), violation.size))
                if not self._over():
                    raise
            else:
                self._begun_s = self._now()
                self._pace.spend(sum(map(len, messages)))
                for message in self._joined(messages):
                    self._unhandled += [message] if isinstance(message, str) else _pieces(message)
        elif self._now() - self._begun_s > HANDLED_AT_ONCE_S:
            yield Wait(0.0, reads=False)
            self._begun_s = self._now()

    def _joined(self, messages: list[str | bytes]) -> list[str | bytes]:
        """Audio that came at once is handed on at once; what may be a control message stays by itself."""
        joined: list[str | bytes] = []
        for message in messages:
            before = joined[-1] if joined else ""
            if isinstance(message, bytes) and isinstance(before, bytes) and _are_audio(before, message):
                joined[-1] = before + message
                self._session.summary.frames += 1
            else:
                joined.append(message)
        return joined

    def _take_mail(self) -> None:
        items, dropped = self._mailbox.take()
        for item in items:
            now = self._now()
            match item:
                case Delivery():
                    self._delivered = True
                    self._runner.count_decode(item)
                    self._runner.run(self._session.on_delivery(now, item), item)
                case Reconnected():
                    self._runner.run(self._session.on_reconnected(now))
                case WorkersChanged(alive):
                    self._runner.run(self._session.on_workers(now, alive=alive))
                case Drain(deadline_s):
                    self._notice, left_s = item, max(0.0, deadline_s - now)
                    self._heed_s = now + min(HEARD_OUT_S, left_s / 4)
                    self._heed_at_last_s = now + min(HEARD_OUT_AT_MOST_S, left_s / 4)
                case TakenOver():
                    self._runner.run(self._session.on_taken_over(now))
        if dropped:
            self._ports.metrics.mailbox_overflows.inc()
            self._runner.run(self._session.on_reconnected(self._now()))

    def _heed(self) -> None:
        """The end of this process, once what had come before is taken."""
        now, notice = self._now(), self._notice
        if notice is not None and (now >= self._heed_at_last_s or (now >= self._heed_s and not self._unhandled)):
            self._notice = None
            self._runner.run(self._session.on_drain(now, notice.deadline_s, notice.leave_s, for_good=notice.for_good))

    def _guarded(self, step: Callable[[], list[Effect]]) -> None:
        """A step of the cleanup: a fault in it must not keep the rest from running."""
        try:
            self._runner.run(step())
        except Exception:
            log.exception("stream_cleanup_failed", **self._who)
            self._ports.metrics.handler_faults.inc()

    def _now(self) -> float:
        return self._ports.clock.monotonic()


def _are_audio(before: bytes, message: bytes) -> bool:
    return b"{" not in (before[:1], message[:1]) and len(before) + len(message) <= PIECE_BYTES


def _pieces(message: bytes) -> list[bytes]:
    return [message[start : start + PIECE_BYTES] for start in range(0, max(1, len(message)), PIECE_BYTES)]
