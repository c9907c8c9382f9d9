"""Connections whose request is not whole yet: they wait in the poller, so that none of them costs a thread.

A request head is gathered here without blocking; only a whole one goes on to a thread, with all that came behind
it. Half a head, and silence, cost a file descriptor and a few KiB until their deadline, or until there are so many
that the oldest must make room.
"""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from socket import socket

from gunicorn.workers.gthread import TConn

from queueing.clock import Clock

HEAD_BYTES = 32_768
"""Largest request head; gunicorn's own limits for its parts are lower."""
HEAD_S = 3.0
"""Longest time from the first byte of a request head to its last."""
READ_BYTES = 16_384
END = b"\r\n\r\n"

_TOO_LARGE_BODY = (
    b'{"type":"error","code":"request_header_fields_too_large",'
    b'"message":"the request head has more than %d bytes; send fewer or shorter headers","fatal":true}\n' % HEAD_BYTES
)
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(_TOO_LARGE_BODY)
) + _TOO_LARGE_BODY


@dataclass(slots=True)
class _Gathered:
    deadline_s: float
    data: bytearray = field(default_factory=bytearray)


class Heads:
    """Used by the thread of the main loop only. ``whole(connection, data)`` takes a connection on with its head and
    what came behind it; ``drop`` closes one at once; ``refuse`` closes one that was told why.
    """

    def __init__(
        self,
        poller: selectors.BaseSelector,
        clock: Clock,
        *,
        whole: Callable[[TConn, bytes], None],
        drop: Callable[[TConn], None],
        refuse: Callable[[TConn], None],
    ) -> None:
        self._poller = poller
        self._clock = clock
        self._whole = whole
        self._drop = drop
        self._refuse = refuse
        self._waiting: dict[TConn, _Gathered] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, conn: TConn, silence_s: float, data: bytes = b"") -> None:
        """Wait for a request on a connection, ``silence_s`` seconds for its first byte; ``data`` of it is there."""
        gathered = _Gathered(self._clock.monotonic() + silence_s)
        conn.sock.setblocking(False)
        self._poller.register(conn.sock, selectors.EVENT_READ, partial(self._readable, conn))
        self._waiting[conn] = gathered
        if data:
            self._add(conn, gathered, data)

    def drop_late(self) -> None:
        """Close the connections whose deadline is over."""
        now_s = self._clock.monotonic()
        for conn in [conn for conn, gathered in self._waiting.items() if gathered.deadline_s < now_s]:
            self._forget(conn)
            self._drop(conn)

    def drop_oldest(self) -> bool:
        """Close the connection that has waited longest; False when none waits."""
        conn = next(iter(self._waiting), None)
        if conn is None:
            return False
        self._forget(conn)
        self._drop(conn)
        return True

    def _readable(self, conn: TConn, _sock: socket) -> None:
        gathered = self._waiting.get(conn)
        if gathered is None:  # closed by an earlier event of the same poll
            return
        try:
            data = conn.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # reset
            data = b""
        if data:
            self._add(conn, gathered, data)
        else:
            self._forget(conn)
            self._drop(conn)

    def _add(self, conn: TConn, gathered: _Gathered, data: bytes) -> None:
        if not gathered.data:
            gathered.deadline_s = self._clock.monotonic() + HEAD_S
        # One empty line may come before a request (RFC 9112, 2.2): it and the first line's end are not its end.
        start = max(1, len(gathered.data) - len(END) + 1)
        gathered.data += data
        end = gathered.data.find(END, start)
        if 0 <= end <= HEAD_BYTES:
            self._forget(conn)
            self._whole(conn, bytes(gathered.data))
        elif len(gathered.data) > HEAD_BYTES:
            self._forget(conn)
            with contextlib.suppress(OSError):
                conn.sock.send(TOO_LARGE)
            self._refuse(conn)

    def _forget(self, conn: TConn) -> None:
        del self._waiting[conn]
        self._poller.unregister(conn.sock)
