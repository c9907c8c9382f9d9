"""The client for many streams in one process: coroutines instead of threads, the same pace, record and errors."""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from loadgen.client import Sending
from loadgen.connecting import Timeouts, connect_error, connection_options, stream_failure
from loadgen.errors import NoAnswer, ProtocolBroken
from loadgen.pacing import Pace
from loadgen.recorder import Recorder
from queueing.clock import Clock
from sessions.wire import BadMessage, Done, End, Error, ErrorCode, Start, UnknownType, WireError, decode_server, encode


async def stream(
    url: str,
    audio: bytes,
    start: Start,
    *,
    clock: Clock,
    sending: Sending,
    timeouts: Timeouts,
    recorder: Recorder,
    api_key: str | None = None,
) -> None:
    """Send ``audio`` and fill ``recorder``; raises a `ClientError` for a stream that did not reach `done`."""
    try:
        connection = await connect(url, **connection_options(url, timeouts, api_key))
    except (WebSocketException, OSError) as error:
        raise connect_error(url, error) from error
    async with connection:
        try:
            await _Stream(connection, audio, start, clock, sending, timeouts, recorder).run()
        except NoAnswer:
            # Closing would wait behind audio that nobody reads.
            connection.transport.abort()
            raise


class _Stream:
    """One run of `stream`: a sending task beside the receiving loop, and one deadline that moves with progress."""

    def __init__(
        self,
        connection: ClientConnection,
        audio: bytes,
        start: Start,
        clock: Clock,
        sending: Sending,
        timeouts: Timeouts,
        recorder: Recorder,
    ) -> None:
        self._connection = connection
        self._audio = audio
        self._start = start
        self._clock = clock
        self._sending = sending
        self._timeouts = timeouts
        self._recorder = recorder
        self._pace = Pace(clock, sending.speed)
        self._deadline = asyncio.timeout(timeouts.ready_s)
        self._fatal: Error | None = None
        recorder.begin(self._pace.start, sending.speed)

    async def run(self) -> None:
        sender: asyncio.Task[None] | None = None
        try:
            async with self._deadline:
                await self._connection.send(encode(self._start))
                sender = asyncio.create_task(self._send())
                await self._receive(sender)
        except TimeoutError:
            raise self._overdue() from None
        except ConnectionClosed as closed:
            raise stream_failure(self._fatal, closed, self._timeouts) from closed
        finally:
            if sender is not None:
                await _stop(sender)
        await self._wait_for_close()

    async def _send(self) -> None:
        size = self._sending.frame_bytes
        for position in range(0, len(self._audio), size):
            frame = self._audio[position : position + size]
            delay = self._pace.delay_s(position + len(frame))
            if delay > 0:
                await asyncio.sleep(delay)
                delay = self._pace.delay_s(position + len(frame))
            await self._connection.send(frame)
            self._recorder.sent(self._clock.monotonic(), len(frame), -delay if self._pace.speed else 0.0)
            if self._recorder.session:
                self._extend(self._timeouts.send_s)
        await self._connection.send(encode(End()))
        self._recorder.ended(self._clock.monotonic())
        if self._recorder.session:
            self._extend(self._timeouts.answer_s)

    async def _receive(self, sender: asyncio.Task[None]) -> None:
        while True:
            try:
                message = decode_server(await self._connection.recv())
            except UnknownType:
                continue
            except BadMessage as error:
                raise ProtocolBroken(f"the server sent something that is not of protocol 1: {error}") from error
            self._recorder.received(self._clock.monotonic(), message)
            if isinstance(message, Done):
                return
            if isinstance(message, Error) and (message.fatal or message.code == ErrorCode.AUDIO_LIMIT):
                self._fatal = message if message.fatal else self._fatal
                sender.cancel()
                self._extend(self._timeouts.close_s if message.fatal else self._timeouts.answer_s)
            else:
                self._extend(self._timeouts.answer_s if self._recorder.ended_at is not None else self._timeouts.send_s)

    async def _wait_for_close(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.close_s):
                while True:
                    self._recorder.received(self._clock.monotonic(), decode_server(await self._connection.recv()))
        except ConnectionClosed as closed:
            self._recorder.close_code = closed.rcvd.code if closed.rcvd is not None else None
        except (TimeoutError, WireError):
            return

    def _extend(self, seconds: float) -> None:
        if not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time() + seconds)

    def _overdue(self) -> Exception:
        if self._fatal is not None:
            return stream_failure(self._fatal, None, self._timeouts)
        if not self._recorder.session:
            return NoAnswer("ready", self._timeouts.ready_s)
        if self._recorder.ended_at is None:
            return NoAnswer("taking more audio", self._timeouts.send_s)
        return NoAnswer("the last final", self._timeouts.answer_s)


async def _stop(sender: asyncio.Task[None]) -> None:
    """Cancel and wait (awaiting it would take an own cancellation for the sender's); a fault of its own is raised."""
    sender.cancel()
    await asyncio.wait({sender})
    fault = None if sender.cancelled() else sender.exception()
    if fault is not None and not isinstance(fault, ConnectionClosed):  # the receiver has seen that as well
        raise fault
