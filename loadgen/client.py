"""The Python client of `/v1/stream`: one stream, from connecting to `done`, with an answer or an error, never a hang.

    caller's thread   connects, receives, calls back, watches the timeouts; comes back when a connection is lost
    two threads more  read the audio and send it (`loadgen.sender`)

    >>> from loadgen.client import stream
    >>> from loadgen.clips import read_clip
    >>> record = stream("ws://127.0.0.1:8000/v1/stream", read_clip(Path("talk.mp3"), print))
    >>> record.text

A connection that is lost is not the end: what was not acknowledged is kept, and the stream is resumed at any of the
URLs (`loadgen.resumption` decides how; docs/protocol.md, "Resume").
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from loadgen.connecting import (
    GOING_AWAY,
    LEAVE_S,
    Timeouts,
    abandon,
    open_connection,
    stream_failure,
    watch_closely,
)
from loadgen.errors import ClientError, NoAnswer, ProtocolBroken, ServerFailed
from loadgen.pacing import Pace
from loadgen.recorder import Recorder
from loadgen.resumption import Resuming, Resumption
from loadgen.sender import Sender
from loadgen.sources import samples_only
from queueing.clock import Clock, SystemClock
from sessions.wire import (
    Ack,
    BadMessage,
    Done,
    Error,
    ErrorCode,
    Ready,
    ServerMessage,
    Start,
    UnknownType,
    WireError,
    decode_server,
    encode,
)

TICK_S = 0.1

OnMessage = Callable[[float, ServerMessage], None]
"""Called with the time of arrival on the clock, in the caller's thread, in order; each partial and final once; no `ack`
and no fatal error that the stream survives."""

OnLost = Callable[[float, ClientError], None]
"""Called when a connection was lost and the client tries to come back; a `ready` with ``resumed`` says that it has."""


@dataclass(frozen=True, slots=True)
class Sending:
    """How audio leaves: ``speed`` 1 is real time, 0 as fast as the server takes it; bytes of one message."""

    speed: float = 1.0
    frame_bytes: int = 3_200


def stream(
    url: str | Sequence[str],
    audio: Iterable[bytes],
    start: Start | None = None,
    *,
    clock: Clock | None = None,
    sending: Sending | None = None,
    timeouts: Timeouts | None = None,
    resuming: Resuming | None = None,
    rng: random.Random | None = None,
    on_message: OnMessage = lambda _at, _message: None,
    on_lost: OnLost = lambda _at, _failure: None,
    stop: threading.Event | None = None,
    recorder: Recorder | None = None,
    api_key: str | None = None,
) -> Recorder:
    """Send ``audio`` (16 kHz mono PCM16LE, in blocks of any size) and return the record of the finished stream.

    ``url``: one front end, or several of the same service, tried in turn. ``stop`` ends the audio early, as if its
    source had ended. ``recorder`` is filled as things happen, so it also tells of a stream that failed. Raises a
    `ClientError` for a stream that did not reach `done`, `ClipError` for a file's bytes in place of its samples, and
    whatever ``audio`` raises.
    """
    record = recorder or Recorder()
    options = resuming or Resuming()
    course = Resumption(start or Start(), [url] if isinstance(url, str) else url, options, rng or random.Random())
    limits = timeouts or Timeouts()
    how = sending or Sending()
    _Stream(
        samples_only(audio),
        course,
        clock or SystemClock(),
        how,
        limits,
        options,
        on_message,
        on_lost,
        stop,
        record,
        api_key,
    ).run()
    return record


class _Stream:
    """One run of `stream`."""

    def __init__(
        self,
        audio: Iterator[bytes],
        course: Resumption,
        clock: Clock,
        sending: Sending,
        timeouts: Timeouts,
        resuming: Resuming,
        on_message: OnMessage,
        on_lost: OnLost,
        stop: threading.Event | None,
        recorder: Recorder,
        api_key: str | None,
    ) -> None:
        self._course = course
        self._clock = clock
        self._timeouts = timeouts
        self._on_message = on_message
        self._on_lost = on_lost
        self._stop = stop or threading.Event()
        self._recorder = recorder
        self._api_key = api_key
        self._pause = threading.Event().wait
        self._audio = audio
        self._sending = sending
        self._resuming = resuming
        self._sender: Sender | None = None
        self._opened_at = self._last_message_at = self._last_news_at = 0.0

    def run(self) -> None:
        try:
            while not self._once():
                pass
        finally:
            if self._sender is not None:
                self._sender.halt()

    def _once(self) -> bool:
        """One connection, or one attempt at it; True when the stream is done."""
        attempt = self._course.attempt(self._clock.monotonic())
        self._pause(attempt.delay_s)
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(
                    open_connection(attempt.url, self._timeouts, self._api_key, back=self._course.away)
                )
            except ClientError as failure:
                self._failed(failure)
                return False
            try:
                lost = self._converse(connection)
                if lost is None:
                    return True
                self._failed(lost)
            except BaseException:  # also an interrupt: nobody comes back for this stream
                connection.close_timeout = LEAVE_S
                self._hang_up(connection)
                raise
            abandon(connection)
        return False

    def _failed(self, failure: ClientError) -> None:
        """Raise where the stream cannot go on."""
        now = self._clock.monotonic()
        if self._course.failed(now, failure):
            self._recorder.lost(now)
            self._on_lost(now, failure)
        if self._sender is not None:
            self._sender.detach()

    def _converse(self, connection: ClientConnection) -> ClientError | None:
        """Talk until `done` (None), or until the connection is lost."""
        sender = self._sender = self._sender or self._begin()
        self._opened_at = self._last_message_at = self._clock.monotonic()
        try:
            connection.send(encode(self._course.opening))
            if not self._course.away:
                sender.attach(connection, 0)
            while True:
                message = self._next(connection, sender)
                self._take(message, connection, sender)
                if isinstance(message, Done):
                    self._wait_for_close(connection)
                    return None
        except ConnectionClosed as closed:
            if sender.error is not None:
                raise sender.error from None
            return stream_failure(self._course.fatal, closed, self._timeouts)
        except (NoAnswer, ServerFailed) as failure:
            return failure

    def _begin(self) -> Sender:
        pace = Pace(self._clock, self._sending.speed)
        self._recorder.begin(pace.start, pace.speed)
        sender = Sender(
            self._audio, self._sending.frame_bytes, pace, self._clock, self._recorder, self._course, self._resuming,
            self._timeouts.keepalive_s,
        )  # fmt: skip
        sender.start()
        return sender

    def _next(self, connection: ClientConnection, sender: Sender) -> ServerMessage:
        """The next message of a known type; runs the timeouts while it waits."""
        while True:
            self._check(sender)
            with suppress(TimeoutError, UnknownType):
                try:
                    return decode_server(connection.recv(timeout=TICK_S))
                except BadMessage as error:
                    raise ProtocolBroken(f"the server sent something that is not of protocol 1: {error}") from error

    def _take(self, message: ServerMessage, connection: ClientConnection, sender: Sender) -> None:
        now = self._last_message_at = self._clock.monotonic()
        away = self._course.away
        handed_on = self._course.take(now, message)
        sender.acknowledge(self._course.acked)
        if isinstance(message, Ready):
            if away:
                sender.attach(connection, self._course.acked)
            if self._course.keeps:
                watch_closely(connection)
        elif not isinstance(message, Ack):
            self._last_news_at = now
        if not handed_on:
            return
        self._recorder.received(now, message)
        if isinstance(message, Error) and (message.fatal or message.code == ErrorCode.AUDIO_LIMIT):
            sender.halt()
        self._on_message(now, message)

    def _check(self, sender: Sender) -> None:
        """Raise for whatever has taken too long; pass on the caller's stop."""
        now, timeouts, fatal = self._clock.monotonic(), self._timeouts, self._course.fatal
        if sender.error is not None:
            raise sender.error
        if self._stop.is_set():
            sender.stop()
        stuck_since = sender.stuck_since
        if stuck_since is not None and now - stuck_since > timeouts.send_s:
            raise NoAnswer("taking more audio", timeouts.send_s)
        if not self._course.streaming and now - self._opened_at > timeouts.ready_s:
            raise NoAnswer("ready", timeouts.ready_s)
        if fatal is not None and now - self._last_message_at > timeouts.close_s:
            raise stream_failure(fatal, None, timeouts)
        ended_at = self._recorder.ended_at
        if sender.ended and ended_at is not None:
            since = max(ended_at, self._opened_at, self._last_news_at)
            if now - since > timeouts.answer_s:
                raise NoAnswer("the last final", timeouts.answer_s)

    def _wait_for_close(self, connection: ClientConnection) -> None:
        """Let the server close after `done`, so that its close code is seen; whatever else comes is a fault."""
        try:
            while True:
                message = decode_server(connection.recv(timeout=self._timeouts.close_s))
                self._recorder.received(self._clock.monotonic(), message)
                self._on_message(self._clock.monotonic(), message)
        except ConnectionClosed as closed:
            self._recorder.close_code = closed.rcvd.code if closed.rcvd is not None else None
        except (TimeoutError, WireError):
            return
        finally:
            self._hang_up(connection)

    def _hang_up(self, connection: ClientConnection) -> None:
        """Leave for good; a send that is stuck holds the connection's lock, and only a dead socket frees it."""
        if self._sender is not None:
            self._sender.halt()
            if not self._sender.released.wait(TICK_S * 5) and self._sender.stuck_since is not None:
                abandon(connection)
        connection.close(GOING_AWAY)
