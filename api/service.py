"""What one web process holds: the queue, the buffers, the subscriber, the pulse, and its open streams."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from api.admission import Admission, Ticket
from api.effects import Ports
from api.gathering import Gathering, pause_s
from api.mailbox import Drain, Mail, Reconnected, WorkersChanged
from api.metrics import StreamMetrics
from api.pulse import Pulse
from api.settings import MAX_TEXT_BYTES, ApiSettings
from api.socket import StreamSocket
from api.socket_types import SocketLimits
from api.stream import Stream
from queueing.clock import Clock
from sessions.events import FrontListener
from sessions.limits import SessionLimits
from sessions.session import Session


@dataclass(frozen=True, slots=True)
class _Open:
    ticket: Ticket
    stream: Stream


class OpenStreams:
    """The streams of this process, and the post to them. Thread-safe."""

    def __init__(self, metrics: StreamMetrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}

    def add(self, ticket: Ticket, stream: Stream) -> None:
        """From now on this stream gets what is sent to all."""
        with self._lock:
            self._open[ticket.session] = _Open(ticket, stream)

    def remove(self, session: str) -> None:
        """The stream has ended."""
        with self._lock:
            del self._open[session]

    def sessions(self) -> list[str]:
        """The ids of the streams that run."""
        with self._lock:
            return list(self._open)

    def tell_all(self, mail: Mail) -> None:
        """Put ``mail`` into every stream's mailbox."""
        self._tell(self.sessions(), mail)

    def on_reconnect(self, sessions: tuple[str, ...]) -> None:
        """The subscriber stands again: these streams may have missed deliveries."""
        self._tell(sessions, Reconnected())

    def on_workers(self, alive: bool) -> None:
        """The last ready worker went, or the first one came."""
        self.tell_all(WorkersChanged(alive))

    def report(self) -> None:
        """Update the gauges that are sums over streams."""
        with self._lock:
            streams = [opened.stream for opened in self._open.values()]
        self._metrics.buffered_bytes.set(sum(stream.buffered_bytes for stream in streams))

    def _tell(self, sessions: Iterable[str], mail: Mail) -> None:
        with self._lock:
            tickets = [self._open[session].ticket for session in sessions if session in self._open]
        for ticket in tickets:
            ticket.mailbox.put(mail)


class StreamService:
    """The streams of this process. Thread-safe; what may end the process is in `drain` and `close`."""

    def __init__(
        self,
        settings: ApiSettings,
        ports: Ports,
        admission: Admission,
        streams: OpenStreams,
        listener: FrontListener,
        *,
        front: str,
        stopping: threading.Event,
    ) -> None:
        self.settings = settings
        self.ports = ports
        self.admission = admission
        self.listener = listener
        self._front = front
        self._stopping = stopping
        self._streams = streams
        self._lock = threading.Lock()
        self._deadline_s: float | None = None
        self.limits = session_limits(settings)
        self._socket_limits = SocketLimits(
            max_binary_bytes=settings.max_frame_bytes,
            max_text_bytes=MAX_TEXT_BYTES,
            send_timeout_s=settings.send_timeout_s,
            ping_interval_s=settings.ping_interval_s,
        )

    @property
    def clock(self) -> Clock:
        return self.ports.clock

    @property
    def metrics(self) -> StreamMetrics:
        return self.ports.metrics

    @property
    def pulse(self) -> Pulse:
        return self.ports.pulse

    @property
    def draining(self) -> bool:
        """Whether this process takes no more streams."""
        return self._deadline_s is not None

    def open_socket(self, environ: Mapping[str, Any], ticket: Ticket) -> StreamSocket:
        """Upgrade the request's connection. Raises `BadHandshake`."""
        gathering = Gathering(lambda: pause_s(self.admission.running))
        return StreamSocket(environ, self._socket_limits, self.clock, ticket.mailbox.fileno(), gathering)

    def serve(self, socket: StreamSocket, ticket: Ticket) -> None:
        """Run a stream from the upgrade to its close handshake."""
        session = Session(
            ticket.session, self._front, self.limits, now=self.clock.monotonic(), started_ms=self.clock.wall_ms()
        )
        stream = Stream(
            ticket.session,
            session,
            socket,
            ticket.mailbox,
            self.ports,
            label=ticket.principal.label,
            pace=self.ports.pace(ticket.principal) if self.ports.pace else None,
        )
        self._streams.add(ticket, stream)
        with self._lock:
            deadline_s = self._deadline_s
        self.listener.register(ticket.session, ticket.mailbox.put)
        if deadline_s is not None:  # the drain began after this stream was admitted
            ticket.mailbox.put(Drain(deadline_s))
        if self.pulse.workers_alive is not None:
            ticket.mailbox.put(WorkersChanged(self.pulse.workers_alive))
        try:
            code, reason = stream.run()
        finally:
            self.listener.unregister(ticket.session)
            self._streams.remove(ticket.session)
            ticket.give_back()
        socket.close(code, reason)

    # The worker process calls these (see `api.server.Drainable`).

    def drain(self, limit_s: float) -> None:
        """Refuse new streams; running ones get ``limit_s`` seconds. A later, shorter limit counts."""
        self.admission.draining = True
        deadline_s = self.clock.monotonic() + limit_s
        with self._lock:
            if self._deadline_s is not None and self._deadline_s <= deadline_s:
                return
            self._deadline_s = deadline_s
        if limit_s <= 0:
            self._stopping.set()
        self._streams.tell_all(Drain(deadline_s))

    def streams(self) -> int:
        """Streams that run."""
        return self.admission.running

    def close(self) -> None:
        """Stop the pulse and the subscriber. Idempotent."""
        self._stopping.set()
        self.pulse.close()
        if not self.pulse.redis_error:  # else it may wait for Redis for longer than the process may live
            self.listener.close()


def session_limits(settings: ApiSettings) -> SessionLimits:
    """The session's share of the settings."""
    return SessionLimits(
        max_audio_s=settings.max_audio_s,
        max_frame_bytes=settings.max_frame_bytes,
        idle_timeout_s=settings.idle_timeout_s,
        inference_timeout_s=settings.inference_timeout_s,
        handshake_timeout_s=settings.handshake_timeout_s,
        partial_interval_s=settings.partial_interval_s,
        min_partial_audio_s=settings.min_partial_audio_s,
        endpoint_s=settings.endpoint_ms / 1000 if settings.endpoint_ms else None,
        event_timing=settings.event_timing,
    )
