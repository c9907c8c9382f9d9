"""A client of a real front end that loses its connection and comes back, step by step."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from sessions.wire import Error, Final, Ready, Resume, ServerMessage, Start, decode_server, encode
from tests.support.eventually import eventually
from tests.support.frames import TEXT, RawClient, frame, upgrade_request
from tests.support.live_api import LiveApi, receive_all
from tests.support.scripted_queue_worker import QueueWorker


def vanish(connection: ClientConnection) -> None:
    """Reset the connection: no close frame, no FIN."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.socket.shutdown(socket.SHUT_RD)
    connection.close_timeout = 0
    with suppress(OSError, ConnectionClosed):
        connection.socket.close()


def begin(api: LiveApi, start: Start | None = None, **options: Any) -> tuple[ClientConnection, Ready]:
    """A new stream that can be resumed; ``options``: of the connection."""
    client = api.connect(legacy=True, **options)
    client.send(encode(start or Start(language="en", partials=False)))
    ready = decode_server(client.recv(10))
    assert isinstance(ready, Ready), ready
    assert ready.token
    assert not ready.resumed
    assert ready.received_s == 0
    return client, ready


def come_back(
    api: LiveApi, ready: Ready, last_seq: int = 0, token: str | None = None, **options: Any
) -> ClientConnection:
    """A new connection whose first message is ``resume``."""
    client = api.connect(legacy=True, **options)
    client.send(encode(Resume(session=ready.session, token=token or ready.token or "", last_seq=last_seq)))
    return client


def resumed(client: ClientConnection) -> Ready:
    """The answer, which must be good."""
    ready = decode_server(client.recv(10))
    assert isinstance(ready, Ready), ready
    assert ready.resumed
    return ready


def refused(client: ClientConnection) -> str:
    """The code with which the connection is ended as breaking a rule."""
    messages = receive_all(client)
    assert client.protocol.close_code == 1008
    assert isinstance(messages[-1], Error)
    return messages[-1].code


def finals_of(messages: list[ServerMessage]) -> list[Final]:
    return [message for message in messages if isinstance(message, Final)]


def byte_of(seconds: float) -> int:
    """Where in the PCM of a stream this moment is."""
    return round(seconds * 16_000) * 2


@contextmanager
def two_fronts(url: str, grace_s: float) -> Iterator[tuple[LiveApi, LiveApi]]:
    """Two web processes of one service."""
    settings = {"resume_grace_s": grace_s, "partial_interval_s": 0.3, "min_partial_audio_s": 0.2}
    with LiveApi(url, **settings) as one, LiveApi(url, **settings) as two:
        yield one, two


@contextmanager
def deaf(api: LiveApi, start: Start | None = None) -> Iterator[tuple[RawClient, Ready]]:
    """A new stream whose client answers no close frame, and is reset at the end."""
    with socket.create_connection(("127.0.0.1", api.port)) as sock:
        client = RawClient(sock)
        client.send(upgrade_request())
        client.read_head()
        client.send(frame(TEXT, encode(start or Start(language="en", partials=False)).encode()))
        ready = decode_server(client.read_frame()[1])
        assert isinstance(ready, Ready), ready
        yield client, ready
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextmanager
def working(client: Any, *fronts: LiveApi) -> Iterator[QueueWorker]:
    """A worker that all of ``fronts`` know of."""
    with QueueWorker(client) as worker:
        for front in fronts:
            eventually(lambda front=front: front.ready, what="readiness")  # type: ignore[misc]
        yield worker
