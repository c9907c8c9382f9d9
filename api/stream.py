"""A stream as an actor: one thread owns the session, its effects and its socket.

The thread waits for three things at once: bytes of the client, mail (deliveries from the subscriber, news from
the process), and the session's own timer. It handles one at a time, so there is nothing to lock; while it is
busy, or Redis or the client is slow, it does not read, and TCP slows the client down.

    upgrade -> loop { mail, timer, messages } -> cleanup (jobs, audio, slot) -> close handshake -> thread is free
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from api.effects import EffectRunner, Ports
from api.mailbox import Drain, Mailbox, Reconnected, WorkersChanged
from api.socket import StreamSocket
from api.socket_types import EndCause, SocketEnded, TooBig, Violation
from queueing.job import Delivery
from sessions.codes import CloseCode, ErrorCode
from sessions.effects import Effect, Send
from sessions.session import Session
from sessions.wire import Error

LONGEST_WAIT_S = 30.0

log = structlog.get_logger()


class Stream:
    """One open stream. `run` is its life; afterwards the caller closes the socket."""

    def __init__(self, session_id: str, session: Session, socket: StreamSocket, mailbox: Mailbox, ports: Ports) -> None:
        self._id = session_id
        self._session = session
        self._socket = socket
        self._mailbox = mailbox
        self._ports = ports
        self._runner = EffectRunner(session, session_id, socket, ports)
        self._delivered = False

    @property
    def buffered_bytes(self) -> int:
        """Accepted audio that is not in Redis yet."""
        return self._session.buffered_bytes

    def run(self) -> tuple[int, str]:
        """Serve the stream to its end; returns the code and reason to close the socket with.

        Everything the stream had in Redis is cleaned up when this returns. Does not raise.
        """
        close: tuple[int, str] = (CloseCode.NORMAL, "")
        outcome = "disconnected"
        try:
            self._loop()
        except SocketEnded as ended:
            outcome = _outcome(ended)
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
            log.exception("stream_failed", session=self._id)
            name = type(fault).__name__
            self._ports.metrics.handler_faults.inc()
            close = (CloseCode.INTERNAL, "internal error")
            self._guarded(lambda: self._session.on_fault(self._now(), name))
        self._guarded(lambda: self._session.on_disconnect(self._now(), outcome))
        summary = self._session.summary
        log.info("stream_summary", **summary.log_fields())
        self._ports.metrics.stream_ended(summary, delivered=self._delivered)
        return self._runner.close or close

    def _loop(self) -> None:
        session, clock = self._session, self._ports.clock
        while not self._over():
            tick_s = session.next_tick()
            wait_s = LONGEST_WAIT_S if tick_s is None else min(tick_s - clock.monotonic(), LONGEST_WAIT_S)
            messages = self._receive(max(0.0, wait_s))
            self._take_mail()
            for message in messages:
                if self._over():
                    return
                now = clock.monotonic()
                effects = session.on_text(now, message) if isinstance(message, str) else session.on_audio(now, message)
                self._runner.run(effects)
            # Only after what has arrived: this thread may have been held up, and the client is not late for that.
            tick_s, now = session.next_tick(), clock.monotonic()
            if tick_s is not None and tick_s <= now and not self._over():
                self._runner.run(session.on_tick(now))

    def _over(self) -> bool:
        return self._runner.close is not None or self._runner.lost is not None

    def _receive(self, wait_s: float) -> list[str | bytes]:
        try:
            return self._socket.receive(wait_s, answer_awaited=self._session.waiting_for_finals)
        except Violation as violation:
            if isinstance(violation, TooBig) and violation.kind == "binary":
                self._runner.run(self._session.on_too_big(self._now()))
            if not self._over():
                raise
            return []

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
                    self._runner.run(self._session.on_drain(now, deadline_s))
        if dropped:
            self._ports.metrics.mailbox_overflows.inc()
            self._runner.run(self._session.on_reconnected(self._now()))

    def _guarded(self, step: Callable[[], list[Effect]]) -> None:
        """A step of the cleanup: a fault in it must not keep the rest from running."""
        try:
            self._runner.run(step())
        except Exception:
            log.exception("stream_cleanup_failed", session=self._id)
            self._ports.metrics.handler_faults.inc()

    def _now(self) -> float:
        return self._ports.clock.monotonic()


def _outcome(ended: SocketEnded) -> str:
    return "slow_client" if ended.cause is EndCause.SEND_TIMEOUT else "disconnected"
