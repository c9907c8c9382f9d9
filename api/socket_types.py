"""How a connection is bounded, and the ways in which it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from wsproto.frame_protocol import CloseReason

EARLY_BYTES = "hearline.early_bytes"
"""Key in the WSGI environment: a callable that gives, once, what the client sent behind its upgrade request."""


LEAVING = (CloseReason.NORMAL_CLOSURE, CloseReason.GOING_AWAY, CloseReason.NO_STATUS_RCVD)


class NoThread:
    """Stands in for simple-websocket's reader thread, which is not wanted."""

    name = ""

    def __init__(self, target: Callable[[], None]) -> None: ...
    def start(self) -> None: ...


class EndCause(StrEnum):
    """Why no message can be exchanged any more."""

    CLIENT_CLOSED = "client_closed"
    LOST = "lost"
    SEND_TIMEOUT = "send_timeout"
    DEAD_PEER = "dead_peer"


class SocketEnded(Exception):
    """The connection is over; ``code`` is the client's close code, 1006 when there was no close handshake."""

    def __init__(self, cause: EndCause, code: int = 1006) -> None:
        self.cause = cause
        self.code = code
        super().__init__(f"{cause} ({code})")

    @property
    def left(self) -> bool:
        """Whether the client said that it leaves: with a close frame for no fault of anybody's (RFC 6455, 7.4.1)."""
        return self.cause is EndCause.CLIENT_CLOSED and self.code in LEAVING


class Violation(Exception):
    """The client broke a limit or the WebSocket protocol. One may still send, and should close with ``code``."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(reason)

    @classmethod
    def of_protocol(cls, code: int) -> Self:
        """What came is no valid WebSocket; ``code`` says in which way."""
        text = code == CloseReason.INVALID_FRAME_PAYLOAD_DATA
        return cls(code, "a text message is not UTF-8" if text else "not a valid WebSocket frame")


class TooBig(Violation):
    """A message of ``kind`` binary or text is over its limit; ``size`` in bytes, None while that is not known."""

    def __init__(self, kind: str, limit: int, size: int | None) -> None:
        self.kind = kind
        self.size = size
        has = "" if size is None else f", this one has {size}"
        text = f"a {kind} message may have at most {limit} bytes{has}; send smaller messages"
        super().__init__(CloseReason.MESSAGE_TOO_BIG, text)


class BadHandshake(Exception):
    """The upgrade request is malformed; nothing has been written."""


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Bounds of one connection; ``max_*_bytes`` are of whole messages."""

    max_binary_bytes: int
    max_text_bytes: int
    send_timeout_s: float
    ping_interval_s: float
