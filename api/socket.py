"""A WebSocket that is bounded on every side, on top of Flask-Sock and simple-websocket.

What those two leave open, and how it is closed here:

- Their reader thread appends to a list without end. Here nobody reads ahead: the stream waits, reads at most 64 KiB,
  handles what came, and only then reads again. One that falls behind stops reading, which is TCP backpressure.
- Their ``send`` may write a part of a frame, and writes from two threads. Here the stream alone writes, one step at a
  time; a frame is written whole within a deadline or the connection is over.
- A message may be of any size, in any number of fragments; pings may come at any rate. Here each has a limit, and
  what is too long is refused when its length is announced.
- Frames of any kind may come at any rate, also those that mean nothing. Here they are read at a limited rate.
- Compression is accepted unasked. Here it is never negotiated: audio does not shrink, but a few bytes may
  inflate to gigabytes.
- The socket is closed under gunicorn, whose count of open connections then drops twice. Here it is only shut
  down, and `api.server` closes it.
- An exception in the handler becomes an HTTP 500 written into the open WebSocket. `api.upgrade` lets none out.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from typing import Any, NoReturn

import simple_websocket
from wsproto.events import AcceptConnection, CloseConnection, Ping, Request, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from api.credentials import answered_protocol
from api.frames import PlainFrames, between_messages
from api.gathering import Gathering
from api.messages import Assembly
from api.rates import TokenBucket
from api.socket_types import (
    EARLY_BYTES,
    LEAVING,
    BadHandshake,
    EndCause,
    NoThread,
    SocketEnded,
    SocketLimits,
    Violation,
)
from api.steps import Steps, Wait, waited_out
from queueing.clock import Clock

RECEIVE_BYTES = 65_536
SEND_BUFFER_BYTES = 65_536
"""The kernel's send buffer: small, so that a client that does not read is noticed after a few hundred
messages and not after megabytes of stale partials."""
RECEIVE_BUFFER_BYTES = 131_072
"""The kernel's receive buffer (it takes twice as much for its own books): what a client sends too fast waits at the
client. Left to itself the kernel keeps megabytes for each."""
CLOSE_TIMEOUT_S = 2.0
FRAME_BURST = 2_000
FRAMES_PER_S = 500.0
"""Frames of any kind that are taken at once, and then a second. Beyond that the connection is read more slowly:
100 ms of audio a frame is ten a second, so this is 50 times real time after 200 s at once."""
SMALLEST_FRAME_BYTES = 6
SLOW_READ_BYTES = 4_096
"""Read at once when frames come too fast, so that the pause after one read stays below two seconds."""
PING_BURST = 100
PINGS_PER_S = 20.0


class StreamSocket(simple_websocket.Server):  # type: ignore[misc]
    """The server's end of one WebSocket; used by one thread at a time.

    ``wake_fd`` becomes readable when `messages` shall return early. Raises `BadHandshake` when the upgrade
    cannot be done.
    """

    def __init__(
        self,
        environ: Mapping[str, Any],
        limits: SocketLimits,
        clock: Clock,
        wake_fd: int,
        gathering: Gathering | None = None,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._violation: Violation | None = None
        self._plain = PlainFrames(limits.max_binary_bytes)
        self._gathering = gathering or Gathering(float)
        self._frames = TokenBucket(clock, FRAME_BURST, FRAMES_PER_S)
        self._assembly = Assembly(limits, self._frames, TokenBucket(clock, PING_BURST, PINGS_PER_S))
        self._heard_s = self._quiet_s = clock.monotonic()
        self._input_over = self._shut = self._closing = False
        self._wake_fd: int | None = wake_fd
        try:
            super().__init__(environ, receive_bytes=RECEIVE_BYTES, thread_class=NoThread)
        except (RemoteProtocolError, LocalProtocolError, simple_websocket.ConnectionError, ValueError) as error:
            raise BadHandshake(str(error) or "not a WebSocket upgrade") from error
        self._early: bytes = environ.get(EARLY_BYTES, bytes)()

    def receive(self, timeout: float, *, answer_awaited: bool = False) -> list[str | bytes]:
        """As `messages`, waiting in the calling thread."""
        steps = self.messages(timeout, answer_awaited=answer_awaited)
        return waited_out(steps, self.sock.fileno(), self._wake_fd)

    def messages(self, timeout: float, *, answer_awaited: bool = False) -> Steps[list[str | bytes]]:
        """The messages that arrive with the next read, within ``timeout`` seconds; empty when woken or idle.

        A client that sends no more (TCP half-close) is gone, except while ``answer_awaited``: it may still read.

        Raises `SocketEnded` when the connection is over and `Violation` when the client broke a rule; what
        came before either is returned first.
        """
        if self._violation is not None:
            raise self._violation
        if self._assembly.peer_close is not None:
            raise SocketEnded(EndCause.CLIENT_CLOSED, self._assembly.peer_close)
        if self._input_over and not answer_awaited:
            self._end(EndCause.LOST)
        tokens = self._frames.tokens()
        if tokens < 1:
            yield from self.pause(min(timeout, self._frames.wait_s()))
            return []
        few = min(RECEIVE_BYTES, max(SLOW_READ_BYTES, int(tokens) * SMALLEST_FRAME_BYTES))
        if self._early:
            data, self._early = self._early[:few], self._early[few:]
            return self._take_bytes(data)
        left_s = self._gathering.left_s(self._clock.monotonic())
        if left_s and not self._input_over:
            if (yield from self._woken(min(timeout, left_s))) or timeout < left_s:
                return []
            return self._read(few, answer_awaited)
        due_s = self._quiet_s + self._limits.ping_interval_s - self._clock.monotonic()
        # Whose input is over has nothing to read: a reset is reported nevertheless.
        ready = yield Wait(max(0.0, min(timeout, due_s)), reads=not self._input_over)
        if not ready.socket:
            if not ready.mail:
                self._ping_when_quiet()
            return []
        return self._read(few, answer_awaited)

    def _read(self, few: int, answer_awaited: bool) -> list[str | bytes]:
        try:
            data = self.sock.recv(few)
        except BlockingIOError:
            return []
        except OSError:
            self._end(EndCause.LOST)
        if data:
            self._gathering.read(self._clock.monotonic(), len(data))
            return self._take_bytes(data)
        if self._input_over or not answer_awaited:
            self._end(EndCause.LOST)
        self._input_over = True
        self._write(self.ws.send(Ping()), self._limits.send_timeout_s)  # tells who has closed both ways
        return []

    def pause(self, timeout: float) -> Steps[None]:
        """Wait ``timeout`` seconds, or until woken, without reading: TCP holds the client back, and its silence is of
        our making. Raises `SocketEnded` when the connection is broken."""
        yield from self._woken(timeout)
        self._heard_s = self._quiet_s = self._clock.monotonic()

    def _woken(self, timeout: float) -> Steps[bool]:
        """Wait without reading; whether that ended early."""
        ready = yield Wait(max(0.0, timeout), reads=False)
        if ready.socket:
            self._end(EndCause.LOST)
        return ready.mail

    def send(self, data: str) -> None:
        """Send one text message whole, within the send timeout. Raises `SocketEnded` when that fails."""
        if self._assembly.peer_close is not None:
            raise SocketEnded(EndCause.CLIENT_CLOSED, self._assembly.peer_close)
        if self._shut:
            raise SocketEnded(EndCause.LOST)
        self._write(self.ws.send(TextMessage(data=data)), self._limits.send_timeout_s)

    def close(self, reason: int | None = None, message: str | None = None) -> None:
        """Send a close frame (code ``reason``, default 1000, with ``message``) and nothing more. Idempotent; never
        raises `SocketEnded`. The web server takes in what the client still sends, and closes (`api.server`).
        """
        if self._shut:
            return
        with contextlib.suppress(SocketEnded, LocalProtocolError):
            # A client's close is answered with its own code (RFC 6455, 5.5.1).
            code = self._assembly.peer_close or reason or CloseReason.NORMAL_CLOSURE
            frame = self.ws.send(CloseConnection(code=code, reason=None if self._assembly.peer_close else message))
            self._write(frame, min(self._limits.send_timeout_s, CLOSE_TIMEOUT_S))
        self._shut_down(socket.SHUT_WR)

    def finish(self, reason: int, message: str) -> bool:
        """As `close`, and wait for the client's own close frame for `CLOSE_TIMEOUT_S`: whether it came as an answer, so
        that the client has everything that was sent before, or says that it leaves. One with a code of its own does
        not: the client has given this connection up, and may come back. What else it sends is thrown away."""
        if self._shut or self._assembly.peer_close is not None:
            self.close(reason, message)
            return self._assembly.peer_close in LEAVING
        self._closing, self._violation = True, None
        self._wake_fd = None  # nobody takes its mail any more
        give_up_s = self._clock.monotonic() + CLOSE_TIMEOUT_S
        with contextlib.suppress(SocketEnded, LocalProtocolError, Violation):
            self._write(self.ws.send(CloseConnection(code=reason, reason=message)), CLOSE_TIMEOUT_S)
            while self._assembly.peer_close is None and (left_s := give_up_s - self._clock.monotonic()) > 0:
                self.receive(left_s)
        self._shut_down(socket.SHUT_WR)
        return self._assembly.peer_close in (reason, *LEAVING)

    def abort(self) -> None:
        """Shut the connection down at once, without a close frame. Idempotent."""
        self._shut_down(socket.SHUT_RDWR)

    def _shut_down(self, how: int) -> None:
        self._shut = True
        self._violation = None  # once raised it has a traceback, which has everything
        self.connected = False
        with contextlib.suppress(OSError):
            self.sock.shutdown(how)

    def _handle_events(self) -> bool:
        """The opening handshake (called by the base class): accept, without extensions."""
        for event in self.ws.events():
            if isinstance(event, Request):
                self.sock.setblocking(False)
                with contextlib.suppress(OSError):
                    self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                    self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
                    self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with contextlib.suppress(SocketEnded):  # the first `receive` says so
                    accept = AcceptConnection(subprotocol=answered_protocol(event.subprotocols))
                    self._write(self.ws.send(accept), self._limits.send_timeout_s)
                return True
        return False

    def _take_bytes(self, data: bytes) -> list[str | bytes]:
        self._heard_s = self._quiet_s = self._clock.monotonic()
        messages: list[str | bytes] = []
        if self._plain.begun or between_messages(self.ws):
            messages, data = self._plain.feed(data)
            self._frames.spend(len(messages))
            if not data:
                return messages
        self.ws.receive_data(data)
        return messages + self._take_messages()

    def _take_messages(self) -> list[str | bytes]:
        messages: list[str | bytes] = []
        try:
            self._assembly.take(self.ws, messages)
        except Violation as violation:
            self._violation = violation
        ping = self._assembly.last_ping()
        quiet = self._closing or self._violation is not None or self._assembly.peer_close is not None
        if ping is not None and not quiet:
            self._write(self.ws.send(ping.response()), self._limits.send_timeout_s)
        return messages

    def _ping_when_quiet(self) -> None:
        now_s = self._clock.monotonic()
        interval_s = self._limits.ping_interval_s
        if now_s - self._quiet_s < interval_s:
            return
        if self._closing:
            self._quiet_s = now_s
            return
        # Without a ping since then it is this server that was held up.
        pinged = self._quiet_s > self._heard_s
        if pinged and now_s - self._heard_s >= 2 * interval_s and not self._input_over:
            self._end(EndCause.DEAD_PEER)
        self._quiet_s = now_s
        self._write(self.ws.send(Ping()), self._limits.send_timeout_s)

    def _write(self, data: bytes, timeout_s: float) -> None:
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._end(EndCause.LOST)
        if sent == len(data):
            return
        try:
            # sendall's timeout is for the whole of its data, not for each part.
            self.sock.settimeout(timeout_s)
            self.sock.sendall(memoryview(data)[sent:])
            self.sock.settimeout(0)
        except TimeoutError:
            self._end(EndCause.SEND_TIMEOUT)
        except OSError:
            self._end(EndCause.LOST)

    def _end(self, cause: EndCause) -> NoReturn:
        self.abort()
        raise SocketEnded(cause)
