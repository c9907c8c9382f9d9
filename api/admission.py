"""Who may open a stream: decided before the upgrade, before any thread, memory or Redis key is spent on it."""

from __future__ import annotations

import base64
import binascii
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from flask import Response, request
from werkzeug.datastructures import Headers

from api.keys import ANYBODY, Principal
from api.mailbox import Mailbox
from api.metrics import StreamMetrics
from queueing.errors import QueueUnavailable, RedisFull
from sessions.admission import Slot, StreamSlots
from sessions.codes import ErrorCode
from sessions.wire import Error, encode

RETRY_AFTER_S = 5
ENDING = 2
"""Streams that may be about to leave their threads beyond those that run."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request gets no stream; ``status`` is HTTP's, ``reason`` the metric's label."""

    status: int
    reason: str
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)
    retry_after_s: int | None = None

    def response(self) -> Response:
        """The JSON answer, shaped as the protocol's error message."""
        body = Error(code=self.code, message=self.message, fatal=True, retry_after_s=self.retry_after_s)
        response = Response(encode(body) + "\n", status=self.status, mimetype="application/json")
        response.headers.update(dict(self.headers))
        if self.retry_after_s is not None:
            response.headers["Retry-After"] = str(self.retry_after_s)
        return response


class Ticket:
    """The right to run one stream, and where its mail goes. `give_back` ends the right early, so that a client
    may reconnect as soon as it sees its stream closed. ``principal`` is who may. ``only_resume``: there is no slot
    for a new stream, only for going on with one that has its slot still."""

    def __init__(
        self,
        session: str,
        give_back: Callable[[str, str | None, bool, bool], None],
        principal: Principal = ANYBODY,
        *,
        only_resume: bool = False,
    ) -> None:
        self.session = self.connection = session
        """``connection``: the name that it was admitted under, whichever session it has now."""
        self.only_resume = only_resume
        self.epoch = 1
        """Which connection of the session this is."""
        self.principal = principal
        self.mailbox = Mailbox()
        self._give_back = give_back
        self._held = True

    def give_back(self, *, keep_slot: bool = False, unheard: bool = False) -> None:
        """``keep_slot``: the session's slot outlives the stream; ``unheard``: as for `Cleaner.release_slot`.
        Idempotent."""
        if self._held:
            self._held = False
            session = None if keep_slot or self.only_resume else self.session
            self._give_back(self.connection, session, keep_slot, unheard)


class Admission:
    """Counts this process's streams and asks for slots of the global cap. Thread-safe."""

    def __init__(
        self,
        slots: StreamSlots,
        metrics: StreamMetrics,
        *,
        max_streams: int,
        process_streams: int,
        new_session: Callable[[], str],
        redis_error: Callable[[], str],
        release_slot: Callable[[str, bool], None],
        overload: Callable[[], Refusal | None] = lambda: None,
        limit: Callable[[str, Principal, bool], Refusal | None] = lambda _session, _principal, _back: None,
        unlimit: Callable[[str, bool], None] = lambda _session, _keep: None,
        identify: Callable[[], Principal | Refusal] = lambda: ANYBODY,
    ) -> None:
        """``overload``: why no new stream is taken now, None when one is. ``limit`` counts a stream for its client, or
        says why the client may not have it; ``unlimit`` stops counting. ``identify`` says who the current request is
        from, or why it may not be."""
        self._slots = slots
        self._identify = identify
        self._metrics = metrics
        self._max_streams = max_streams
        self._process_streams = process_streams
        self._new_session = new_session
        self._redis_error = redis_error
        self._release_slot = release_slot
        self._overload = overload
        self._limit = limit
        self._unlimit = unlimit
        self._lock = threading.Lock()
        self._running = 0
        self._open = 0
        self.draining = False
        """Set once, when the process ends."""

    @property
    def overload(self) -> Refusal | None:
        """Why no new stream is taken now, whoever asks; None when one is."""
        return self._overload()

    @property
    def running(self) -> int:
        """Streams that run in this process."""
        return self._running

    @contextmanager
    def admit(self) -> Iterator[Ticket | Response]:
        """The gate of the stream's route: a ticket, or the response that says why not."""
        protocol = request.environ.get("SERVER_PROTOCOL", "")
        principal: Principal = ANYBODY
        refusal = handshake_problem(request.method, request.headers, protocol)
        if refusal is None:
            found = self._identify()
            if isinstance(found, Refusal):
                refusal = found
            else:
                # Who comes back brings no new work; the rest is for the first message to show.
                new = "resume" not in request.args
                principal, refusal = found, (self._overload() if new else None) or self._take_thread()
        if refusal is not None:
            yield self._refuse(refusal)
            return
        session = self._new_session()
        try:
            slot = self._take_slot(session, principal)
            if isinstance(slot, Refusal):
                self._unlimit(session, False)
                yield self._refuse(slot)
                return
            with self._lock:
                self._running += 1
            self._metrics.active.inc()
            ticket = Ticket(session, self._give_back, principal, only_resume=slot is Slot.HELD)
            try:
                yield ticket
            finally:
                ticket.give_back()
                ticket.mailbox.close()
        finally:
            with self._lock:
                self._open -= 1

    def _take_thread(self) -> Refusal | None:
        if self.draining:
            return _busy("shutting_down", ErrorCode.SHUTTING_DOWN, "this server process ends; connect again")
        with self._lock:
            full = self._running >= self._process_streams or self._open >= self._process_streams + ENDING
            if not full:
                self._open += 1
        if full:
            return _busy(
                "process_full",
                ErrorCode.OVERLOADED,
                f"this server process has all its {self._process_streams} streams in use "
                "(HEARLINE_PROCESS_STREAMS); try again later",
            )
        return None

    def _take_slot(self, session: str, principal: Principal) -> Slot | Refusal:
        problem = self._redis_error()
        back = "resume" in request.args  # to go on with a stream, that is, whose slot is its own
        try:
            if not problem and (over := self._limit(session, principal, back)) is not None:
                return over
            slot = Slot.FULL if problem else Slot.HELD if back else self._slots.ask(session)
        except RedisFull as error:
            return _busy("redis_memory", ErrorCode.OVERLOADED, str(error))
        except QueueUnavailable as error:
            problem = str(error)
        if problem:
            return _busy("unavailable", ErrorCode.UNAVAILABLE, problem)
        if slot is not Slot.FULL:
            return slot
        return _busy(
            "cap",
            ErrorCode.OVERLOADED,
            f"all {self._max_streams} streams are in use (HEARLINE_MAX_STREAMS); try again later",
        )

    def _give_back(self, connection: str, session: str | None, keep: bool, unheard: bool) -> None:
        with self._lock:
            self._running -= 1
        self._metrics.active.dec()
        self._unlimit(connection, keep)
        if session is not None:
            self._release_slot(session, unheard)

    def _refuse(self, refusal: Refusal) -> Response:
        self._metrics.rejected.labels(refusal.reason).inc()
        return refusal.response()


def handshake_problem(method: str, headers: Headers, protocol: str = "HTTP/1.1") -> Refusal | None:
    """What is wrong with an upgrade request (RFC 6455, 4.2.1); None when nothing is."""
    if method != "GET":
        return Refusal(405, "bad_handshake", "bad_handshake", f"{method} cannot be upgraded; use GET", {"Allow": "GET"})
    if protocol == "HTTP/1.0":
        return bad_handshake("HTTP/1.0 has no upgrade; use HTTP/1.1 (nginx: proxy_http_version 1.1)")
    if headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in headers:
        return bad_handshake("an upgrade request has no body; leave out Content-Length and Transfer-Encoding")
    version = headers.get("Sec-WebSocket-Version")
    if version != "13":
        return Refusal(
            426,
            "bad_handshake",
            "bad_handshake",
            f"Sec-WebSocket-Version is {version!r}; this server speaks 13",
            {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"},
        )
    key = headers.get("Sec-WebSocket-Key", "")
    try:
        valid = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        valid = False
    if not valid:
        return bad_handshake("Sec-WebSocket-Key is not 16 bytes in base64")
    return None


def bad_handshake(message: str) -> Refusal:
    """The answer to an upgrade request that is malformed."""
    return Refusal(400, "bad_handshake", "bad_handshake", message)


def upgrade_required() -> Refusal:
    """The answer to a plain HTTP request for the stream's address."""
    return Refusal(
        426,
        "not_websocket",
        "upgrade_required",
        "this address speaks WebSocket; connect with ws:// and send 16 kHz mono PCM16, or try `hearline stream FILE`",
        {"Upgrade": "websocket", "Connection": "Upgrade"},
    )


def _busy(reason: str, code: ErrorCode, message: str) -> Refusal:
    return Refusal(503, reason, code, message, retry_after_s=RETRY_AFTER_S)
