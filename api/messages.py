"""From the WebSocket library's events to whole messages, with a limit on each: size, fragments, pings."""

from __future__ import annotations

from typing import Any

from wsproto import WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason, Opcode

from api.frames import announced
from api.rates import TokenBucket
from api.socket_types import SocketLimits, TooBig, Violation

MAX_FRAGMENTS = 1_024


class Assembly:
    """Puts one connection's messages together. ``frames`` is charged for each frame, ``pings`` bounds those."""

    def __init__(self, limits: SocketLimits, frames: TokenBucket, pings: TokenBucket) -> None:
        self._limits = limits
        self._frames = frames
        self._pings = pings
        self._parts: list[Any] = []
        self._size = 0
        self._fragments = 0
        self._last_ping: Ping | None = None
        self.peer_close: int | None = None
        """The client's close code, once its close frame came."""

    def take(self, connection: WSConnection, messages: list[str | bytes]) -> None:
        """Append what is whole now to ``messages``. Raises `Violation`; what came before stays there."""
        for event in connection.events():
            self._take_event(connection, event, messages)
        # The frame that has begun to arrive must fit: its bytes are not waited for.
        if (begun := announced(connection)) is not None:
            text = isinstance(self._parts[0], str) if self._parts else begun.opcode is Opcode.TEXT
            whole = begun.size if begun.last and not self._fragments else None
            self._check_size(begun.missing, text=text, whole=whole)

    def last_ping(self) -> Ping | None:
        """The ping to answer, once: of a burst only the latest need be (RFC 6455, 5.5.3)."""
        ping, self._last_ping = self._last_ping, None
        return ping

    def _check_size(self, more: int, *, text: bool, whole: int | None = None) -> None:
        limit = self._limits.max_text_bytes if text else self._limits.max_binary_bytes
        # A character is at least one byte; decoded text is checked in bytes once it is whole.
        if self._size + more > limit:
            raise TooBig("text" if text else "binary", limit, whole)

    def _take_event(self, connection: WSConnection, event: Event, messages: list[str | bytes]) -> None:
        if not isinstance(event, TextMessage | BytesMessage) or event.frame_finished:
            self._frames.spend()
        if isinstance(event, TextMessage | BytesMessage):
            self._take_part(event, messages)
        elif isinstance(event, Ping):
            if not self._pings.spend():
                raise Violation(CloseReason.POLICY_VIOLATION, f"more than {self._pings.per_s:.0f} pings a second")
            self._last_ping = event
        elif isinstance(event, CloseConnection):
            if connection.state not in (ConnectionState.REMOTE_CLOSING, ConnectionState.CLOSED):
                raise Violation.of_protocol(event.code)
            self.peer_close = int(event.code)

    def _take_part(self, event: TextMessage | BytesMessage, messages: list[str | bytes]) -> None:
        data = event.data
        text = isinstance(event, TextMessage)
        self._size += len(data)
        self._fragments += event.frame_finished
        if event.frame_finished and not event.message_finished:  # of any other frame the whole size is known
            self._check_size(0, text=text)
        if self._fragments > MAX_FRAGMENTS:
            raise Violation(CloseReason.POLICY_VIOLATION, f"a message in more than {MAX_FRAGMENTS} fragments")
        self._parts.append(data)
        if not event.message_finished:
            return
        whole = "".join(self._parts) if text else b"".join(self._parts)
        self._size = len(whole.encode() if isinstance(whole, str) else whole)
        self._check_size(0, text=text, whole=self._size)
        self._parts, self._size, self._fragments = [], 0, 0
        messages.append(whole)
