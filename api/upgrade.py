"""The route decorator for WebSockets: Flask-Sock's, with a gate before the upgrade and nothing escaping after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeVar

import flask_sock
import structlog
from flask import Flask, Response, request
from wsproto.frame_protocol import CloseReason

from api.admission import bad_handshake
from api.server import LIFT_DEADLINE
from api.socket import StreamSocket
from api.socket_types import BadHandshake, SocketEnded

Ticket = TypeVar("Ticket")
Gate = Callable[[], AbstractContextManager["Ticket | Response"]]
"""Opened before the upgrade and closed after the connection; yields a ticket, or the response that refuses."""

log = structlog.get_logger()


class _Handled(Response):
    """Tells gunicorn that the connection is used up and no HTTP response shall be written into it."""

    def __call__(self, *_: object) -> Iterable[bytes]:
        raise StopIteration  # gunicorn's gthread worker takes this as "close the connection"


class StreamSock(flask_sock.Sock):  # type: ignore[misc]
    """Flask-Sock over `StreamSocket`. ``open_socket`` makes one from a WSGI environment and a ticket."""

    def __init__(self, app: Flask, open_socket: Callable[[Mapping[str, Any], Any], StreamSocket]) -> None:
        self._open_socket = open_socket
        super().__init__(app)

    def gated_route(
        self, path: str, gate: Gate[Ticket]
    ) -> Callable[[Callable[[StreamSocket, Ticket], None]], Callable[[StreamSocket, Ticket], None]]:
        """Register ``handler(socket, ticket)`` for WebSocket upgrades of ``path`` that ``gate`` lets pass.

        Whatever the handler raises is logged and closes the socket with 1011.
        """

        def decorator(handler: Callable[[StreamSocket, Ticket], None]) -> Callable[[StreamSocket, Ticket], None]:
            @wraps(handler)
            def view() -> Response:
                with gate() as ticket:
                    if isinstance(ticket, Response):
                        return ticket
                    request.environ.get(LIFT_DEADLINE, _nothing)()
                    try:
                        socket = self._open_socket(request.environ, ticket)
                    except BadHandshake as error:
                        return bad_handshake(f"not a WebSocket upgrade: {error}").response()
                    serve(handler, socket, ticket)
                    return _Handled()

            self.app.add_url_rule(
                path, view_func=view, methods=["GET"], websocket=True, provide_automatic_options=False
            )
            return handler

        return decorator


def _nothing() -> None: ...


def serve(handler: Callable[[StreamSocket, Ticket], None], socket: StreamSocket, ticket: Ticket) -> None:
    """Run the handler; when this returns the socket is shut down, whatever happened."""
    try:
        handler(socket, ticket)
    except SocketEnded:
        pass
    except Exception:  # the boundary: a fault becomes a close code and a log line
        log.exception("stream_handler_failed")
        socket.close(CloseReason.INTERNAL_ERROR, "internal error")
    finally:
        socket.close()
