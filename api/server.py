"""gunicorn, run from code: its threaded worker with the holes closed that long-lived connections open.

- A connection gets a thread once its request head is there (`api.heads`), and must have taken the answer within a
  deadline; upgraded streams have deadlines of their own. So half a handshake costs no thread. When there are too
  many connections the oldest that has no request makes room: accepting never stops for those who say nothing.
- A request's body is not waited for: nothing here takes one, so the connection closes after the answer.
- A closing connection lingers in the poller, so that the client gets the last bytes. gunicorn itself waits for the
  client's own close in the thread that accepts everybody else, two seconds each.
- SIGTERM first turns readiness off and lets streams finish, while health, readiness and refusals are still
  answered; then the listener closes. SIGINT and SIGQUIT end streams at once, with a reason.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from gunicorn import http
from gunicorn.app.base import BaseApplication
from gunicorn.workers.gthread import TConn, ThreadWorker

from api.heads import Heads
from api.server_log import EventLogger
from api.settings import ApiSettings
from api.socket_types import EARLY_BYTES
from queueing.clock import SystemClock

IDLE_CONNECTIONS = 256
"""Connections beyond the threads that may wait for their next request, or linger."""
ACCEPT_BATCH = 16
"""Connections accepted in one turn of the main loop: as fast as they are dropped when they say nothing."""
SWEEP_S = 0.25
"""Deadlines are looked at so often, however many events the main loop has."""
CLOSE_MARGIN_S = 2.5
"""After the drain: streams send their last message and close; what still runs then is cut off."""
STOP_MARGIN_S = 4.5
"""After the drain, at the latest, gunicorn's parent kills it (at a whole second); ``hearline up`` does so at 5 s."""
LINGER_S = 2.0
LINGER_BYTES = 33_554_432
"""How long, and for how many bytes, a closing connection still takes in what comes: closed with bytes unread, the
kernel would reset it and the client could lose the last messages on their way."""
LIFT_DEADLINE = "hearline.lift_deadline"
"""Key in the WSGI environment: a callable that exempts this connection from the HTTP deadline."""
EXTENSION = "hearline"
"""Name in ``Flask.extensions`` of the object with the `Drainable` methods."""


class Drainable(Protocol):
    """What the worker tells the application."""

    def drain(self, limit_s: float) -> None:
        """Take no new streams; those that run end within ``limit_s`` seconds. A later, shorter limit counts."""

    def see_who_follows(self) -> None:
        """Called now and then while it drains."""

    def streams(self) -> int:
        """Streams that still run."""

    def close(self) -> None:
        """Stop the application's threads and connections."""


class StreamWorker(ThreadWorker):  # type: ignore[misc]
    """One web process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clock = SystemClock()
        self._settings: ApiSettings = self.app.settings
        self._deadlines: dict[socket.socket, float] = {}
        self._parsers: dict[socket.socket, Any] = {}
        """Of the connections that threads serve."""
        self._lingering: dict[TConn, int] = {}
        """Closing connections, and how many bytes each may still send."""
        self._stop_at_s: float | None = None
        self._sweep_at_s = 0.0

    @property
    def _drainable(self) -> Drainable:
        found: Drainable = self.app.wsgi().extensions[EXTENSION]
        return found

    def accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPT_BATCH):
            before = self.nr_conns
            super().accept(listener)
            if self.nr_conns == before:  # nobody is waiting
                return
            if self.nr_conns >= self.worker_connections and not self._make_room():
                return

    def _make_room(self) -> bool:
        """Close the oldest connection without a request, or the one that lingers longest."""
        if self._heads.drop_oldest():
            return True
        lingering = next(iter(self._lingering), None)
        if lingering is not None:
            self._close(lingering)
        return lingering is not None

    def enqueue_req(self, conn: TConn) -> None:
        """A new connection waits in the poller until its request head is there."""
        self._heads.wait(conn, self._settings.http_timeout_s)

    def _serve(self, conn: TConn, data: bytes) -> None:
        """A thread takes over: ``data`` is a whole request head and what came behind it."""
        if not conn.initialized:
            conn.parser = http.get_parser(self.cfg, conn.sock, conn.client)
            conn.initialized = True
        conn.data_ready = True
        conn.parser.unreader.unread(data)
        super().enqueue_req(conn)

    def handle(self, conn: TConn) -> Any:
        connection = conn.sock
        self._deadlines[connection] = self._clock.monotonic() + self._settings.http_timeout_s
        self._parsers[connection] = conn.parser
        try:
            return super().handle(conn)
        finally:
            self._deadlines.pop(connection, None)
            del self._parsers[connection]

    def finish_request(self, conn: TConn, fs: Future[Any]) -> None:
        """A thread is done with a connection (called in the main loop): keep it, or let it linger and close it."""
        try:
            if not fs.cancelled() and fs.exception() is None and fs.result():
                self._heads.wait(conn, self.cfg.keepalive, conn.parser.unreader.take_buffered())
            else:
                conn.sock.setblocking(False)
                self._let_linger(conn)
        except OSError:  # the client was faster
            self._close(conn)

    def _let_linger(self, conn: TConn) -> None:
        try:
            conn.sock.shutdown(socket.SHUT_WR)
            self.poller.register(conn.sock, selectors.EVENT_READ, partial(self._linger, conn))
        except OSError:  # the client was faster
            self._close(conn)
            return
        conn.timeout = self._clock.monotonic() + LINGER_S
        self._lingering[conn] = LINGER_BYTES

    def _linger(self, conn: TConn, _sock: socket.socket) -> None:
        if conn not in self._lingering:  # closed by an earlier event of the same poll
            return
        try:
            received = len(conn.sock.recv(65_536))
        except BlockingIOError:
            return
        except OSError:
            received = 0
        self._lingering[conn] -= received
        if not received or self._lingering[conn] <= 0:
            self._close(conn)

    def _close(self, conn: TConn) -> None:
        if self._lingering.pop(conn, None) is not None:
            self.poller.unregister(conn.sock)
        self.nr_conns -= 1
        conn.close()

    def load_wsgi(self) -> None:
        super().load_wsgi()
        application: Any = self.app.wsgi()

        def with_deadline(environ: dict[str, Any], start_response: Any) -> Any:
            connection = environ["gunicorn.socket"]
            environ[LIFT_DEADLINE] = partial(self._deadlines.pop, connection, None)
            environ[EARLY_BYTES] = self._parsers[connection].unreader.take_buffered
            if environ.get("CONTENT_LENGTH", "0") != "0" or "HTTP_TRANSFER_ENCODING" in environ:
                # To use the connection again, gunicorn would wait for the body in this thread.
                start_response.__self__.force_close()
            return application(environ, start_response)

        self.wsgi = with_deadline

    def wait_for_and_dispatch_events(self, timeout: float) -> None:
        """Not beyond the end: little time is left after that."""
        if self._stop_at_s is not None:
            timeout = min(timeout, max(0.05, self._stop_at_s - self._clock.monotonic()))
        super().wait_for_and_dispatch_events(timeout)

    def murder_pending(self) -> None:
        """Called by the main loop after every poll, at least once a second."""
        now_s = self._clock.monotonic()
        if self._stop_at_s is not None and not self._accepting:
            while self._heads.drop_oldest():
                pass
        if now_s >= self._sweep_at_s:
            self._sweep_at_s = now_s + SWEEP_S
            self._sweep(now_s)
        if self._stop_at_s is not None and (self._drainable.streams() == 0 or now_s >= self._stop_at_s):
            self.alive = False
            # So long gunicorn waits for connections from here on: for closing ones, not again for streams held up.
            self.cfg.set("graceful_timeout", max(0, math.ceil(self._stop_at_s - now_s)))

    def _sweep(self, now_s: float) -> None:
        """Close what is over its deadline."""
        self._heads.drop_late()
        if self._stop_at_s is not None:
            self._drainable.see_who_follows()
        for conn in [conn for conn in self._lingering if conn.timeout < now_s]:
            self._close(conn)
        for connection, deadline_s in list(self._deadlines.items()):
            if deadline_s < now_s:
                with contextlib.suppress(OSError):
                    # Wakes the thread that reads or writes; gunicorn's code then closes the connection.
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_exit(self, _sig: int, _frame: FrameType | None) -> None:
        """SIGTERM: drain. (A signal handler may not take locks, so the main loop does it.)"""
        self.method_queue.defer(self._drain, self._settings.drain_s)

    def handle_quit(self, _sig: int, _frame: FrameType | None) -> None:
        """SIGINT, SIGQUIT: end now."""
        self.method_queue.defer(self._drain, 0.0)

    def is_parent_alive(self) -> bool:
        """Without its parent a worker ends its streams and itself: the port must become free for a successor."""
        if not super().is_parent_alive() and self._stop_at_s is None:
            self._drain(0.0)
        return True

    def _drain(self, limit_s: float) -> None:
        self._drainable.drain(limit_s)
        stop_at_s = self._clock.monotonic() + limit_s + CLOSE_MARGIN_S
        self._stop_at_s = min(stop_at_s, self._stop_at_s or stop_at_s)

    def run(self) -> None:
        self._heads = Heads(self.poller, self._clock, whole=self._serve, drop=self._close, refuse=self._let_linger)
        super().run()
        if self.nr_conns > 0:
            # The interpreter would wait for these threads without a limit.
            self.log.warning("%d connections did not end in time", self.nr_conns)
            os._exit(0)
        self._drainable.close()


class StreamServer(BaseApplication):  # type: ignore[misc]
    """The gunicorn application: ``load`` builds the WSGI application in each worker process after the fork."""

    def __init__(
        self,
        settings: ApiSettings,
        load: Callable[[], Any],
        process_ended: Callable[[int], None],
    ) -> None:
        self.settings = settings
        self._load = load
        self._process_ended = process_ended
        super().__init__()

    def load_config(self) -> None:
        settings = self.settings
        values: dict[str, object] = {
            "bind": settings.bind,
            "workers": settings.web_processes,
            "threads": settings.threads,
            "worker_class": StreamWorker,
            "worker_connections": settings.threads + IDLE_CONNECTIONS,
            "keepalive": 5,
            "backlog": 512,
            "graceful_timeout": int(settings.drain_s + STOP_MARGIN_S),
            "loglevel": "debug" if settings.log_level == "debug" else "warning",
            "logger_class": EventLogger,
            "proc_name": "hearline-web",
            "control_socket_disable": True,
            "child_exit": lambda _server, worker: self._process_ended(worker.pid),
            "limit_request_fields": 64,
            "limit_request_field_size": 8_190,
        }
        if Path("/dev/shm").is_dir():
            values["worker_tmp_dir"] = "/dev/shm"  # gunicorn's heartbeat file; a slow disk would stop the main loop
        for name, value in values.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        return self._load()
