"""The thread that sends a stream's audio: it takes frames from their source, keeps the pace, and sends `end`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from loadgen.pacing import Pace
from loadgen.recorder import Recorder
from queueing.clock import Clock
from sessions.wire import End, Keepalive, encode

LOCK_WAIT_S = 0.1


class Sender(threading.Thread):
    """Sends frames at their time, then `end`. ``released`` is set while it does not use the connection."""

    def __init__(
        self,
        connection: ClientConnection,
        frames: Iterator[bytes],
        pace: Pace,
        clock: Clock,
        recorder: Recorder,
        wait: Callable[[float], bool] | None = None,
    ) -> None:
        """``wait``: sleeps for some seconds, true when the stream is over; for tests that move time by hand."""
        super().__init__(name="sender", daemon=True)
        self._connection = connection
        self._frames = frames
        self._pace = pace
        self._clock = clock
        self._recorder = recorder
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._wait = wait or self._over.wait
        self.released = threading.Event()
        self.released.set()
        self.sending_since: float | None = None
        self.last_send = clock.monotonic()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            position = 0
            for frame in self._frames:
                position += len(frame)
                while (delay := self._pace.delay_s(position)) > 0:
                    if self._wait(delay):
                        return
                if not self._send(frame):
                    return
                self._recorder.sent(self.last_send, len(frame), -delay if self._pace.speed else 0.0)
            self.finish()
        except ConnectionClosed:
            return  # the receiver sees it too, with the reason
        except Exception as error:  # noqa: BLE001  # whatever the source raises belongs to the caller
            self.error = error

    def finish(self) -> None:
        """Send `end`, once; nothing is sent after it."""
        if self._send(encode(End()), last=True):
            self._recorder.ended(self._clock.monotonic())

    def keep_alive(self) -> None:
        """Send a keepalive; only for a sender that waits for its source."""
        self._send(encode(Keepalive()))

    def halt(self) -> None:
        """Send nothing any more."""
        self._over.set()

    def _send(self, data: str | bytes, *, last: bool = False) -> bool:
        # The receiver's thread must not wait behind a send that is stuck: it watches for just that.
        if not self._lock.acquire(timeout=LOCK_WAIT_S if last and threading.current_thread() is not self else -1):
            return False
        try:
            if self._over.is_set():
                return False
            if last:
                self._over.set()
            self.released.clear()
            self.sending_since = self._clock.monotonic()
            self._connection.send(data)
            self.last_send = self._clock.monotonic()
            return True
        finally:
            self.sending_since = None
            self.released.set()
            self._lock.release()
