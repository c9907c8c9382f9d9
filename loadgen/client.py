"""The Python client of `/v1/stream`: one stream, from connecting to `done`, with an answer or an error, never a hang.

    caller's thread   connects, receives, calls `on_message`, watches the timeouts
    sender thread     takes audio from its source (which may block: a microphone, a pipe), keeps the pace, sends

The sender never outlives the connection in the socket: where it is stuck in a send, the socket is shut down.
It may stay blocked in its source (a silent pipe); it is a daemon, and touches nothing once the stream is over.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from loadgen.connecting import Timeouts, open_connection, stream_failure
from loadgen.errors import NoAnswer, ProtocolBroken
from loadgen.pacing import Pace
from loadgen.recorder import Recorder
from loadgen.sender import Sender
from loadgen.sources import in_frames
from queueing.clock import Clock
from sessions.wire import (
    BadMessage,
    Done,
    Error,
    ErrorCode,
    ServerMessage,
    Start,
    UnknownType,
    WireError,
    decode_server,
    encode,
)

GOING_AWAY = 1001
TICK_S = 0.1

OnMessage = Callable[[float, ServerMessage], None]
"""Called with the time of arrival on the clock, in the caller's thread, in order."""


@dataclass(frozen=True, slots=True)
class Sending:
    """How audio leaves: ``speed`` 1 is real time, 0 as fast as the server takes it; bytes of one message."""

    speed: float = 1.0
    frame_bytes: int = 3_200


def stream(
    url: str,
    audio: Iterator[bytes],
    start: Start,
    *,
    clock: Clock,
    sending: Sending | None = None,
    timeouts: Timeouts | None = None,
    on_message: OnMessage = lambda _at, _message: None,
    stop: threading.Event | None = None,
    recorder: Recorder | None = None,
    api_key: str | None = None,
) -> Recorder:
    """Send ``audio`` (PCM16LE blocks) and return the record of the finished stream.

    ``stop`` ends the audio early, as if its source had ended. ``recorder`` is filled as things happen, so it also
    tells of a stream that failed. Raises a `ClientError` for a stream that did not reach `done`, and whatever
    ``audio`` raises.
    """
    limits = timeouts or Timeouts()
    record = recorder or Recorder()
    with open_connection(url, limits, api_key) as connection:
        _Stream(connection, audio, start, clock, sending or Sending(), limits, on_message, stop, record).run()
    return record


class _Stream:
    """One run of `stream`."""

    def __init__(
        self,
        connection: ClientConnection,
        audio: Iterator[bytes],
        start: Start,
        clock: Clock,
        sending: Sending,
        timeouts: Timeouts,
        on_message: OnMessage,
        stop: threading.Event | None,
        recorder: Recorder,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._timeouts = timeouts
        self._on_message = on_message
        self._start = start
        self._pace = Pace(clock, sending.speed)
        self.recorder = recorder
        recorder.begin(self._pace.start, sending.speed)
        self._stop = stop or threading.Event()
        self._sender = Sender(connection, in_frames(audio, sending.frame_bytes), self._pace, clock, self.recorder)
        self._last_message_at = clock.monotonic()
        self._fatal: Error | None = None

    def run(self) -> None:
        try:
            self._connection.send(encode(self._start))
            self._sender.start()
            while (message := self._next()) is not None:
                self._take(message)
                if isinstance(message, Done):
                    self._wait_for_close()
                    break
        except ConnectionClosed as closed:
            self._sender.halt()
            if self._sender.error is not None:
                raise self._sender.error from None
            raise stream_failure(self._fatal, closed, self._timeouts) from closed
        finally:
            self._hang_up()

    def _next(self) -> ServerMessage | None:
        """The next message of a known type; runs the timeouts while it waits."""
        while True:
            self._check()
            with suppress(TimeoutError, UnknownType):
                try:
                    return decode_server(self._connection.recv(timeout=TICK_S))
                except BadMessage as error:
                    raise ProtocolBroken(f"the server sent something that is not of protocol 1: {error}") from error

    def _take(self, message: ServerMessage) -> None:
        now = self._clock.monotonic()
        self._last_message_at = now
        self.recorder.received(now, message)
        if isinstance(message, Error):
            if message.fatal:
                self._fatal = message
            if message.fatal or message.code == ErrorCode.AUDIO_LIMIT:
                self._sender.halt()
        self._on_message(now, message)

    def _check(self) -> None:
        """Raise for whatever has taken too long; keep a silent source's stream alive; pass on the caller's stop."""
        now = self._clock.monotonic()
        sender, timeouts = self._sender, self._timeouts
        if sender.error is not None:
            raise sender.error
        if self._stop.is_set():
            sender.finish()
        stuck_since = sender.sending_since
        if stuck_since is not None and now - stuck_since > timeouts.send_s:
            raise NoAnswer("taking more audio", timeouts.send_s)
        ended_at = self.recorder.ended_at
        if not self.recorder.session and now - self._pace.start > timeouts.ready_s:
            raise NoAnswer("ready", timeouts.ready_s)
        if self._fatal is not None and now - self._last_message_at > timeouts.close_s:
            raise stream_failure(self._fatal, None, timeouts)
        if ended_at is not None and now - max(ended_at, self._last_message_at) > timeouts.answer_s:
            raise NoAnswer("the last final", timeouts.answer_s)
        if ended_at is None and stuck_since is None and now - sender.last_send > timeouts.keepalive_s:
            sender.keep_alive()

    def _wait_for_close(self) -> None:
        """Let the server close after `done`, so that its close code is seen; whatever else comes is a fault."""
        try:
            while True:
                self._take(decode_server(self._connection.recv(timeout=self._timeouts.close_s)))
        except ConnectionClosed as closed:
            self.recorder.close_code = closed.rcvd.code if closed.rcvd is not None else None
        except (TimeoutError, WireError):
            return

    def _hang_up(self) -> None:
        """Stop the sender; a send that is stuck holds the connection's lock, and only a dead socket frees it."""
        self._sender.halt()
        if not self._sender.released.wait(TICK_S * 5) and self._sender.sending_since is not None:
            with suppress(OSError):
                self._connection.socket.shutdown(socket.SHUT_RDWR)
        self._connection.close(GOING_AWAY)
