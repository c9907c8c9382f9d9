"""What one web process holds: the queue, the buffers, the subscriber, the pulse, and its open streams."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from api.admission import Admission, Ticket
from api.effects import Ports
from api.gathering import Gathering, pause_s
from api.mailbox import Drain, Mail, Reconnected, TakenOver, WorkersChanged
from api.metrics import StreamMetrics
from api.pulse import Pulse
from api.settings import MAX_TEXT_BYTES, ApiSettings
from api.socket import StreamSocket
from api.socket_types import SocketLimits
from api.stream import Stream
from api.turns import Turns
from api.urgency import unhurried
from queueing.clock import Clock
from sessions.errors import ResumeRefused
from sessions.events import FrontListener
from sessions.ledger import ResumeTerms
from sessions.limits import SessionLimits
from sessions.session import Session
from sessions.wire import Resume

LEAVE_WITHIN_S = 1.5
"""A process that ends closes the streams that come back within this, not all at the same moment: they come back
together."""

TakeUp = Callable[[Resume, Ticket, ResumeTerms], Session]


class OpenStreams:
    """The streams of this process, and the post to them; they take ``turns``. Thread-safe."""

    def __init__(self, metrics: StreamMetrics, turns: Turns) -> None:
        self.turns = turns
        self._metrics = metrics
        self._lock = threading.Lock()
        self._open: dict[Ticket, Stream] = {}

    def add(self, ticket: Ticket, stream: Stream) -> None:
        """From now on this stream gets what is sent to all."""
        with self._lock:
            self._open[ticket] = stream

    def remove(self, ticket: Ticket) -> None:
        """The stream has ended."""
        with self._lock:
            del self._open[ticket]

    def sessions(self) -> list[str]:
        """The ids of the sessions that run and have a slot."""
        with self._lock:
            return [
                ticket.session for ticket, stream in self._open.items() if not ticket.only_resume and not stream.over
            ]

    def tell_each(self, mail: Callable[[], Mail]) -> None:
        """Put a ``mail()`` into every stream's mailbox."""
        with self._lock:
            tickets = list(self._open)
        for ticket in tickets:
            ticket.mailbox.put(mail())

    def on_reconnect(self, sessions: tuple[str, ...]) -> None:
        """The subscriber stands again: these streams may have missed deliveries."""
        wanted = set(sessions)
        with self._lock:
            tickets = [ticket for ticket in self._open if ticket.session in wanted]
        for ticket in tickets:
            ticket.mailbox.put(Reconnected())

    def on_workers(self, alive: bool) -> None:
        """The last ready worker went, or the first one came."""
        self.tell_each(lambda: WorkersChanged(alive))

    def on_taken(self, session: str, epoch: int) -> None:
        """The connection number ``epoch`` has this session now: an older one that is here is told."""
        with self._lock:
            tickets = [ticket for ticket in self._open if ticket.session == session and ticket.epoch < epoch]
        for ticket in tickets:
            ticket.mailbox.put(TakenOver())

    def report(self) -> None:
        """Update the gauges that are sums over streams."""
        with self._lock:
            streams = list(self._open.values())
        self._metrics.buffered_bytes.set(sum(stream.buffered_bytes for stream in streams))


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
        take_up: TakeUp,
        new_token: Callable[[], str],
        rng: random.Random,
    ) -> None:
        """``take_up``: see `api.taking_up`; ``new_token`` gives one that nobody can guess; ``rng``: when each stream
        leaves a process that ends."""
        self.settings = settings
        self.ports = ports
        self.admission = admission
        self.listener = listener
        self._front = front
        self._stopping = stopping
        self._take_up = take_up
        self._new_token = new_token
        self._rng = rng
        self._streams = streams
        self._lock = threading.Lock()
        self._deadline_s: float | None = None
        self._for_good = False
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
        label, grace_s = ticket.principal.label, self.settings.resume_grace_s
        terms = ResumeTerms(self._new_token(), grace_s, label) if grace_s > 0 else None
        session = Session(
            ticket.session,
            self._front,
            self.limits,
            now=self.clock.monotonic(),
            started_ms=self.clock.wall_ms(),
            resume=terms,
            only_resume=ticket.only_resume,
        )

        def take_up(message: Resume) -> Session:
            if terms is None:
                raise ResumeRefused
            taken = self._take_up(message, ticket, terms)
            self._greet(ticket)
            return taken

        pace = self.ports.pace(ticket.principal) if self.ports.pace else None
        stream = Stream(
            session, socket, ticket.mailbox, self.ports, take_up, self._streams.turns, label=label, pace=pace
        )
        self._streams.add(ticket, stream)
        self.listener.register(ticket.session, ticket.mailbox.put)
        self._greet(ticket)
        try:
            with unhurried():
                code, reason = stream.run()
        finally:
            self.listener.unregister(ticket.session, ticket.mailbox.put)
            self._streams.remove(ticket)
            ticket.give_back(keep_slot=stream.keeps_slot, unheard=stream.unheard)
        if stream.unheard:
            stream.closed(answered=socket.finish(code, reason))
        else:
            socket.close(code, reason)

    def _greet(self, ticket: Ticket) -> None:
        """What its session must know from the start."""
        with self._lock:
            deadline_s = self._deadline_s
        if deadline_s is not None:  # the drain began after this stream was admitted
            ticket.mailbox.put(self._drain_until(deadline_s))
        if self.pulse.workers_alive is not None:
            ticket.mailbox.put(WorkersChanged(self.pulse.workers_alive))

    def _drain_until(self, deadline_s: float) -> Drain:
        now_s = self.clock.monotonic()
        leave_s = now_s + self._rng.uniform(0.0, min(LEAVE_WITHIN_S, max(0.0, deadline_s - now_s)))
        return Drain(deadline_s, leave_s, self._for_good)

    # The worker process calls these (see `api.server.Drainable`).

    def drain(self, limit_s: float) -> None:
        """Refuse new streams; running ones get ``limit_s`` seconds. A later, shorter limit counts."""
        self.admission.draining = True
        deadline_s = self.clock.monotonic() + limit_s
        with self._lock:
            if self._deadline_s is not None and self._deadline_s <= deadline_s:
                return
            self._deadline_s = deadline_s
            self._for_good = self._for_good or self._nobody_follows()
        if limit_s <= 0:
            self._stopping.set()
        self._streams.tell_each(lambda: self._drain_until(deadline_s))

    def see_who_follows(self) -> None:
        """While the streams end: whether the whole service is being stopped by now, as after a restart of this one."""
        with self._lock:
            if self._deadline_s is None or self._for_good or not self._nobody_follows():
                return
            self._for_good, deadline_s = True, self._deadline_s
        self._streams.tell_each(lambda: self._drain_until(deadline_s))

    def _nobody_follows(self) -> bool:
        return bool(self.settings.stop_mark) and os.path.exists(self.settings.stop_mark)

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
