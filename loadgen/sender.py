"""The threads that bring a stream's audio to its server: over as many connections as it takes, at its pace.

    reader thread   takes audio from its source (which may block: a microphone, a pipe) to the backlog while it has room
    sender thread   takes it from there when it is due, sends it on the connection that is attached, then `end`

Without a connection the reader reads on, so that live sound is not lost; with a full backlog it stops reading.
Both are daemons: a reader may stay blocked in a silent source, and touches nothing once the stream is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from loadgen.backlog import Backlog
from loadgen.pacing import CatchUp, Pace
from loadgen.recorder import Recorder
from loadgen.resumption import Resuming, Resumption
from queueing.clock import Clock
from sessions.wire import BYTES_PER_SAMPLE, End, Keepalive, encode


class Sender:
    """``released`` is set while no connection is being used; ``error`` is what the source raised, when all before it is
    sent."""

    def __init__(
        self,
        audio: Iterator[bytes],
        frame_bytes: int,
        pace: Pace,
        clock: Clock,
        recorder: Recorder,
        course: Resumption,
        resuming: Resuming,
        keepalive_s: float,
        wait: Callable[[float | None], object] | None = None,
    ) -> None:
        """``wait``: sleeps for some seconds (None: until something changes); for tests that move time by hand."""
        self._audio = audio
        self._frame_bytes = frame_bytes
        self._pace = pace
        self._clock = clock
        self._recorder = recorder
        self._course = course
        self._catch_up = resuming.catch_up
        self._keepalive_s = keepalive_s
        self._changed = threading.Condition()
        self._wait = wait or self._changed.wait
        self._backlog = Backlog(resuming.max_held_bytes)
        self._limit: int | None = None
        """Where the audio ends; None while nobody knows."""
        self._source_error: Exception | None = None
        self._connection: ClientConnection | None = None
        self._position = 0
        self._counted = 0
        self._ended = self._over = False
        self._behind: CatchUp | None = None
        """Behind a loss."""
        self._last_send = clock.monotonic()
        self._sending_since: float | None = None
        self._full_since: float | None = None
        self.released = threading.Event()
        self.released.set()
        self.error: Exception | None = None

    def start(self) -> None:
        """Start both threads."""
        threading.Thread(target=self.read, name="reader", daemon=True).start()
        threading.Thread(target=self.run, name="sender", daemon=True).start()

    @property
    def stuck_since(self) -> float | None:
        """Since when the server has taken nothing, or acknowledged nothing, although there is more to send."""
        sending = self._sending_since
        return self._full_since if sending is None else sending

    @property
    def ended(self) -> bool:
        """Whether `end` was sent on this connection."""
        return self._ended

    def attach(self, connection: ClientConnection, position: int) -> None:
        """Send on this connection, from ``position`` on."""
        with self._changed:
            self._connection = connection
            self._position = position
            self._ended = False
            self._last_send = self._clock.monotonic()
            self._behind = CatchUp(self._pace, self._last_send, self._catch_up) if self._counted else None
            self._changed.notify_all()

    def detach(self) -> None:
        """The connection is lost; what it did not bring is sent on the next one."""
        with self._changed:
            self._connection = self._full_since = None
            self._changed.notify_all()

    def acknowledge(self, position: int) -> None:
        """What lies before is the server's."""
        with self._changed:
            self._backlog.acknowledge(position if self._course.keeps else self._position)
            if self._backlog.room:
                self._full_since = None
            self._changed.notify_all()

    def stop(self) -> None:
        """The caller wants no more audio: what was recorded until now is sent, then `end`."""
        with self._changed:
            if self._limit is None:
                due = min(self._pace.position(), self._backlog.end)
                self._limit = max(self._course.sent, int(due) // BYTES_PER_SAMPLE * BYTES_PER_SAMPLE)
            self._changed.notify_all()

    def halt(self) -> None:
        """Send nothing any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    # The reader thread

    def read(self) -> None:
        """Fill the backlog until the source ends."""
        try:
            for block in self._audio:
                if not self._keep(memoryview(block)):
                    return
        except Exception as error:  # noqa: BLE001  # whatever the source raises belongs to the caller
            self._source_error = error
        with self._changed:
            if self._limit is None:
                self._limit = self._backlog.end
            self._changed.notify_all()

    def _keep(self, block: memoryview) -> bool:
        """Wait for room and add the block; False when no more is wanted."""
        while block:
            with self._changed:
                while not self._backlog.room and not self._over and self._limit is None:
                    self._wait(None)
                if self._over or self._limit is not None:
                    return False
                piece = block[: self._backlog.room]
                self._backlog.append(piece)
                self._changed.notify_all()
            block = block[len(piece) :]
        return True

    # The sender thread

    def run(self) -> None:
        """Send until `halt`, or until the source fails."""
        while (task := self._task()) is not None:
            connection, data, lag_s = task
            try:
                connection.send(data)
            except ConnectionClosed:  # the receiver sees it too, with the reason
                with self._changed:
                    if self._connection is connection:
                        self._connection = None
            else:
                self._sent(data, lag_s)
            finally:
                self._sending_since = None
                self.released.set()

    def _task(self) -> tuple[ClientConnection, str | bytes, float] | None:
        """Wait for what is to be sent next, and how late it is; None when nothing is any more."""
        with self._changed:
            while not self._over:
                now = self._clock.monotonic()
                connection, until_keepalive_s = self._connection, self._last_send + self._keepalive_s - now
                if connection is None or self._ended:
                    self._wait(None)
                    continue
                frame = self._frame()
                delay, late = self._delay_s(len(frame), now)
                if frame and delay <= 0:
                    self._position += len(frame)
                    self._course.sent = max(self._course.sent, self._position)
                    return self._begin(now, connection, frame, 0.0 if late or not self._pace.speed else -delay)
                if not frame and self._position == self._limit:
                    if self._source_error is not None:
                        self.error, self._over = self._source_error, True
                        return None
                    self._ended = self._course.ended = True
                    return self._begin(now, connection, encode(End()), 0.0)
                if until_keepalive_s <= 0:
                    return self._begin(now, connection, encode(Keepalive()), 0.0)
                if not frame and not self._backlog.room and self._full_since is None:
                    self._full_since = now
                self._wait(min(delay, until_keepalive_s) if frame else until_keepalive_s)
        return None

    def _begin(
        self, now: float, connection: ClientConnection, data: str | bytes, lag_s: float
    ) -> tuple[ClientConnection, str | bytes, float]:
        self.released.clear()
        self._sending_since = now
        return connection, data, lag_s

    def _frame(self) -> bytes:
        """The next frame, empty while it is not whole. Frames keep their borders over all connections."""
        size = self._frame_bytes - self._position % self._frame_bytes
        end = self._backlog.end if self._limit is None else self._limit
        if end - self._position < size:
            size = 0 if self._limit is None else end - self._position
        return self._backlog.piece(self._position, size) if size > 0 else b""

    def _delay_s(self, size: int, now: float) -> tuple[float, bool]:
        """How long the next frame has to wait, and whether that is a matter of catching up."""
        if self._behind is None or not size:
            return self._pace.delay_s(self._position + size), False
        delay = self._behind.delay_s(self._position + size, size, now)
        return delay, self._behind.late

    def _sent(self, data: str | bytes, lag_s: float) -> None:
        now = self._clock.monotonic()
        with self._changed:
            self._last_send = now
            if isinstance(data, bytes):
                if self._behind is not None:
                    self._behind.sent(now)
                fresh = max(0, self._position - self._counted)
                self._counted += fresh
                self._recorder.sent(now, fresh, lag_s, again=len(data) - fresh)
                if not self._course.keeps:
                    self._backlog.acknowledge(self._position)
                    self._changed.notify_all()
            elif self._ended and self._recorder.ended_at is None:
                self._recorder.ended(now)
