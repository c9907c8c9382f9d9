"""A service that speaks the wire protocol, or misbehaves on purpose, for tests of the clients."""

from __future__ import annotations

import http
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from sessions.wire import (
    BYTES_PER_SECOND,
    ClientMessage,
    Done,
    End,
    Final,
    Flush,
    Keepalive,
    Limits,
    Partial,
    Ready,
    ServerMessage,
    Start,
    Timing,
    decode_client,
    encode,
)

LIMITS = Limits(
    max_audio_s=120,
    max_frame_bytes=1_048_576,
    idle_timeout_s=60,
    inference_timeout_s=60,
    partial_interval_s=1,
    min_partial_audio_s=0.5,
)


@dataclass
class Seen:
    """What one stream brought."""

    start: Start | None = None
    frames: list[bytes] = field(default_factory=list)
    messages: list[ClientMessage] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    close_code: int | None = None
    """1006 without a close frame; known once ``closed`` is set."""

    @property
    def audio(self) -> bytes:
        return b"".join(self.frames)


Behaviour = Callable[[ServerConnection, Seen], None]


@dataclass
class FakeService:
    """``url`` to connect to; ``seen`` of each stream in order of arrival; ``refuse``: the next handshakes' answer."""

    behaviour: Behaviour
    refuse: tuple[int, dict[str, str], bytes] | None = None
    refusals: int | None = None
    """How many handshakes are refused, before others are answered; None: all."""
    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the test is over: a behaviour that blocks on purpose waits on this."""

    def handle(self, connection: ServerConnection) -> None:
        seen = Seen()
        self.seen.append(seen)
        try:
            self.behaviour(connection, seen)
        except ConnectionClosed:
            pass
        finally:
            seen.close_code = connection.close_code
            seen.closed.set()

    def answer(self, connection: ServerConnection, _request: Request) -> Response | None:
        if self.refuse is None or self.refusals == 0:
            return None
        if self.refusals is not None:
            self.refusals -= 1
        status, headers, body = self.refuse
        response = connection.respond(http.HTTPStatus(status), "")
        del response.headers["Content-Length"], response.headers["Content-Type"]
        response.headers.update({**headers, "Content-Length": str(len(body))})
        response.body = body
        return response


def send(connection: ServerConnection, *messages: ServerMessage) -> None:
    for message in messages:
        connection.send(encode(message))


def read_start(connection: ServerConnection, seen: Seen) -> None:
    """Read the start message and answer `ready`."""
    message = connection.recv()
    assert isinstance(message, str)
    decoded = decode_client(message)
    assert isinstance(decoded, Start)
    seen.start = decoded
    send(connection, Ready(session="fake", limits=LIMITS))


def behave(
    connection: ServerConnection, seen: Seen, text: Callable[[bytes], str] = lambda audio: f"{len(audio)} bytes"
) -> None:
    """A correct service: a partial for every second of new audio, a final on flush and end."""
    read_start(connection, seen)
    seq = finals = final_bytes = partial_bytes = received = 0
    for message in connection:
        if isinstance(message, bytes):
            seen.frames.append(message)
            received += len(message)
            if seen.start is not None and seen.start.partials and received - partial_bytes >= BYTES_PER_SECOND:
                partial_bytes, seq = received, seq + 1
                send(connection, Partial(seq=seq, text="so far", start_s=seconds(final_bytes), end_s=seconds(received)))
            continue
        decoded = decode_client(message)
        seen.messages.append(decoded)
        if isinstance(decoded, Flush | End):
            seq, finals = seq + 1, finals + 1
            last = isinstance(decoded, End)
            final = Final(
                seq=seq, start_s=seconds(final_bytes), end_s=seconds(received), last=last,
                text=text(seen.audio[final_bytes:]),
                timing=Timing(queue_ms=3, decode_ms=40, audio_s=seconds(received - final_bytes)),
            )  # fmt: skip
            final_bytes = received
            send(connection, final)
            if last:
                send(connection, Done(audio_s=seconds(received), finals=finals))
                connection.close(1000)
                return
        assert isinstance(decoded, Flush | End | Keepalive)


def listen(connection: ServerConnection, seen: Seen) -> None:
    """A service that takes everything and never ends a stream: for tests of clients that leave before the end."""
    read_start(connection, seen)
    for message in connection:
        if isinstance(message, bytes):
            seen.frames.append(message)
        else:
            seen.messages.append(decode_client(message))


def seconds(size: int) -> float:
    return size / BYTES_PER_SECOND


def refusal_body(
    code: str = "overloaded", message: str = "200 of 200 streams are open", retry_after_s: float = 5
) -> bytes:
    return json.dumps({"code": code, "message": message, "retry_after_s": retry_after_s}).encode()


@contextmanager
def fake_service(
    behaviour: Behaviour = behave, refuse: tuple[int, dict[str, str], bytes] | None = None
) -> Iterator[FakeService]:
    """Run a fake service on a free port of 127.0.0.1."""
    service = FakeService(behaviour, refuse)
    with serve(
        service.handle, "127.0.0.1", 0, process_request=service.answer, compression=None, close_timeout=1, max_queue=4
    ) as server:
        host, port = server.socket.getsockname()[:2]
        service.url = f"ws://{host}:{port}/v1/stream"
        thread = threading.Thread(target=server.serve_forever, name="fake-service", daemon=True)
        thread.start()
        try:
            yield service
        finally:
            service.stopping.set()
            server.shutdown()
            thread.join(10)
