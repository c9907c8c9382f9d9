"""The client for many streams in one process: coroutines instead of threads; same pace, record, errors and resuming.

It sends recordings that are in memory anyway, so what the server has not acknowledged needs no keeping.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from loadgen.client import Sending
from loadgen.connect_errors import connect_error
from loadgen.connecting import (
    Timeouts,
    address,
    connection_options,
    leave,
    stream_failure,
    watch_closely,
)
from loadgen.errors import ClientError, NoAnswer, ProtocolBroken
from loadgen.pacing import CatchUp, Pace
from loadgen.recorder import Recorder
from loadgen.resumption import Resuming, Resumption
from queueing.clock import Clock
from sessions.wire import (
    Ack,
    BadMessage,
    Done,
    End,
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


async def stream(
    url: str | Sequence[str],
    audio: bytes,
    start: Start,
    *,
    clock: Clock,
    sending: Sending,
    timeouts: Timeouts,
    recorder: Recorder,
    resuming: Resuming | None = None,
    rng: random.Random | None = None,
    api_key: str | None = None,
) -> None:
    """Send ``audio`` and fill ``recorder``; raises a `ClientError` for a stream that did not reach `done`."""
    urls = [url] if isinstance(url, str) else url
    options = resuming or Resuming()
    course = Resumption(start, urls, options, rng or random.Random())
    run = _Stream(course, audio, clock, sending, timeouts, options, recorder, api_key)
    while not await run.once():
        pass


class _Stream:
    """One run of `stream`: on each connection a sending task beside the receiving loop, and one deadline that moves
    with progress."""

    def __init__(
        self,
        course: Resumption,
        audio: bytes,
        clock: Clock,
        sending: Sending,
        timeouts: Timeouts,
        resuming: Resuming,
        recorder: Recorder,
        api_key: str | None,
    ) -> None:
        self._course = course
        self._audio = audio
        self._clock = clock
        self._sending = sending
        self._timeouts = timeouts
        self._resuming = resuming
        self._recorder = recorder
        self._api_key = api_key
        self._pace: Pace | None = None
        self._deadline = asyncio.timeout(None)
        self._ended = False
        """`end` was sent on this connection."""
        self._counted = 0
        """Bytes counted as sent."""

    async def once(self) -> bool:
        """One connection, or one attempt at it; True when the stream is done."""
        attempt = self._course.attempt(self._clock.monotonic())
        await asyncio.sleep(attempt.delay_s)
        try:
            options = connection_options(attempt.url, self._timeouts, self._api_key)
            connection = await connect(address(attempt.url, back=self._course.away), **options)
        except (WebSocketException, OSError) as error:
            self._failed(connect_error(attempt.url, error))
            return False
        try:
            failure = await self._converse(connection)
            if failure is None:
                await self._wait_for_close(connection)
                await connection.close()
                return True
            if isinstance(failure, NoAnswer):
                connection.transport.abort()  # closing would wait behind audio that nobody reads
            self._failed(failure)
        except BaseException:  # also an interrupt: nobody comes back for this stream
            await leave(connection)
            raise
        connection.transport.abort()  # no close frame, which would end the stream as well
        await connection.wait_closed()
        return False

    def _failed(self, failure: ClientError) -> None:
        now = self._clock.monotonic()
        if self._course.failed(now, failure):
            self._recorder.lost(now)

    async def _converse(self, connection: ClientConnection) -> ClientError | None:
        """Talk until `done` (None), or until the connection is lost."""
        if self._pace is None:
            self._pace = Pace(self._clock, self._sending.speed)
            self._recorder.begin(self._pace.start, self._sending.speed)
        self._ended = False
        self._deadline = asyncio.timeout(self._timeouts.ready_s)
        sender: asyncio.Task[None] | None = None
        try:
            async with self._deadline:
                await connection.send(encode(self._course.opening))
                if not self._course.away:
                    sender = asyncio.create_task(self._send(connection, 0, self._pace))
                while True:
                    message = await self._next(connection)
                    sender = self._take(message, connection, sender, self._pace)
                    if isinstance(message, Done):
                        return None
        except TimeoutError:
            return self._overdue()
        except ConnectionClosed as closed:
            return stream_failure(self._course.fatal, closed, self._timeouts)
        finally:
            if sender is not None:
                await _stop(sender)

    async def _send(self, connection: ClientConnection, position: int, pace: Pace) -> None:
        behind = CatchUp(pace, self._clock.monotonic(), self._resuming.catch_up) if self._counted else None
        while position < len(self._audio):
            size = self._sending.frame_bytes - position % self._sending.frame_bytes
            frame = self._audio[position : position + size]
            end = position + len(frame)
            delay = pace.delay_s(end)
            if behind is not None:
                delay = behind.delay_s(end, len(frame), self._clock.monotonic())
            if delay > 0:
                await asyncio.sleep(delay)
                delay = pace.delay_s(end)
            late = behind is not None and behind.late
            self._course.sent = max(self._course.sent, end)
            await connection.send(frame)
            now = self._clock.monotonic()
            if behind is not None:
                behind.sent(now)
            fresh = max(0, end - self._counted)
            self._counted += fresh
            lag_s = 0.0 if late or not pace.speed else -delay
            self._recorder.sent(now, fresh, lag_s, again=len(frame) - fresh)
            position = end
            if self._course.streaming:
                self._extend(self._timeouts.send_s)
        self._course.ended = self._ended = True
        await connection.send(encode(End()))
        if self._recorder.ended_at is None:
            self._recorder.ended(self._clock.monotonic())
        if self._course.streaming:
            self._extend(self._timeouts.answer_s)

    async def _next(self, connection: ClientConnection) -> ServerMessage:
        while True:
            try:
                return decode_server(await connection.recv())
            except UnknownType:
                continue
            except BadMessage as error:
                raise ProtocolBroken(f"the server sent something that is not of protocol 1: {error}") from error

    def _take(
        self, message: ServerMessage, connection: ClientConnection, sender: asyncio.Task[None] | None, pace: Pace
    ) -> asyncio.Task[None] | None:
        now = self._clock.monotonic()
        away = self._course.away
        if self._course.take(now, message):
            self._recorder.received(now, message)
        if isinstance(message, Ready):
            if self._course.keeps:
                watch_closely(connection)
            if away:
                sender = asyncio.create_task(self._send(connection, self._course.acked, pace))
        if isinstance(message, Error) and (message.fatal or message.code == ErrorCode.AUDIO_LIMIT):
            if sender is not None:
                sender.cancel()
            self._extend(self._timeouts.close_s if message.fatal else self._timeouts.answer_s)
        elif not self._ended:
            self._extend(self._timeouts.send_s)
        elif not isinstance(message, Ack):
            self._extend(self._timeouts.answer_s)
        return sender

    async def _wait_for_close(self, connection: ClientConnection) -> None:
        try:
            async with asyncio.timeout(self._timeouts.close_s):
                while True:
                    self._recorder.received(self._clock.monotonic(), decode_server(await connection.recv()))
        except ConnectionClosed as closed:
            self._recorder.close_code = closed.rcvd.code if closed.rcvd is not None else None
        except (TimeoutError, WireError):
            return

    def _extend(self, seconds: float) -> None:
        if not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time() + seconds)

    def _overdue(self) -> ClientError:
        if self._course.fatal is not None:
            return stream_failure(self._course.fatal, None, self._timeouts)
        if not self._course.streaming:
            return NoAnswer("ready", self._timeouts.ready_s)
        if not self._ended:
            return NoAnswer("taking more audio", self._timeouts.send_s)
        return NoAnswer("the last final", self._timeouts.answer_s)


async def _stop(sender: asyncio.Task[None]) -> None:
    """Cancel and wait (awaiting it would take an own cancellation for the sender's); a fault of its own is raised."""
    sender.cancel()
    await asyncio.wait({sender})
    fault = None if sender.cancelled() else sender.exception()
    if fault is not None and not isinstance(fault, ConnectionClosed):  # the receiver has seen that as well
        raise fault
