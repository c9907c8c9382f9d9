"""The server's end of a WebSocket: what it takes, what it refuses, and that it never blocks for long."""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import pytest

from api.gathering import Gathering
from api.messages import MAX_FRAGMENTS
from api.socket import (
    FRAME_BURST,
    FRAMES_PER_S,
    PING_BURST,
    RECEIVE_BUFFER_BYTES,
    SLOW_READ_BYTES,
    SMALLEST_FRAME_BYTES,
    StreamSocket,
)
from api.socket_types import EARLY_BYTES, BadHandshake, EndCause, SocketEnded, SocketLimits, Violation
from api.steps import waited_out
from queueing.clock import Clock, ManualClock, SystemClock
from tests.support.frames import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    KEY,
    PING,
    PONG,
    TEXT,
    RawClient,
    close_frame,
    frame,
)

LIMITS = SocketLimits(max_binary_bytes=1_000, max_text_bytes=200, send_timeout_s=0.2, ping_interval_s=20.0)


class Pair:
    """Both ends of an upgraded connection, and the descriptor that wakes the server's end."""

    def __init__(
        self,
        clock: Clock,
        limits: SocketLimits = LIMITS,
        headers: Mapping[str, str] = MappingProxyType({}),
        environ: Mapping[str, object] = MappingProxyType({}),
        gathering: Gathering | None = None,
    ) -> None:
        server, client = socket.socketpair()
        self.raw_server = server
        self.client = RawClient(client)
        self.wake_fd, self._wake_write = os.pipe()
        request = {
            **environ,
            "gunicorn.socket": server,
            "HTTP_HOST": "localhost",
            "HTTP_UPGRADE": "websocket",
            "HTTP_CONNECTION": "Upgrade",
            "HTTP_SEC_WEBSOCKET_KEY": KEY,
            "HTTP_SEC_WEBSOCKET_VERSION": "13",
            **headers,
        }
        try:
            self.server = StreamSocket(request, limits, clock, self.wake_fd, gathering)
        except BadHandshake:
            self.close()
            raise
        self.head = self.client.read_head()

    def wake(self) -> None:
        os.write(self._wake_write, b"1")

    def pause(self, timeout: float) -> None:
        waited_out(self.server.pause(timeout), self.raw_server.fileno(), self.wake_fd)

    def forget_wakes(self) -> None:
        os.read(self.wake_fd, 100)

    def close(self) -> None:
        self.client.close()
        self.raw_server.close()
        os.close(self.wake_fd)
        os.close(self._wake_write)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair(ManualClock())
    yield pair
    pair.close()


def test_upgrade_accepts_without_extensions() -> None:
    pair = Pair(ManualClock(), headers={"HTTP_SEC_WEBSOCKET_EXTENSIONS": "permessage-deflate; client_max_window_bits"})
    assert pair.head.startswith("HTTP/1.1 101")
    assert f"sec-websocket-accept: {ACCEPT}".lower() in pair.head.lower()
    assert "extensions" not in pair.head.lower()
    pair.close()


def test_what_the_kernel_keeps_of_a_client_is_bounded(pair: Pair) -> None:
    kept = pair.raw_server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    assert kept in (RECEIVE_BUFFER_BYTES, 2 * RECEIVE_BUFFER_BYTES)  # Linux doubles it


@pytest.mark.parametrize(
    "headers",
    [
        {"HTTP_SEC_WEBSOCKET_VERSION": "12"},
        {"HTTP_UPGRADE": "h2c"},
        {"HTTP_HOST": "\xff"},
    ],
)
def test_malformed_upgrade_is_refused_before_a_byte_is_written(headers: dict[str, str]) -> None:
    with pytest.raises(BadHandshake):
        Pair(ManualClock(), headers=headers)


def test_messages_of_one_read_come_together_and_whole(pair: Pair) -> None:
    pair.client.send(frame(TEXT, b"{}") + frame(BINARY, b"\x01\x02") + frame(BINARY, b""))
    assert pair.server.receive(5) == ["{}", b"\x01\x02", b""]


def test_fragments_are_joined_with_a_ping_between_them(pair: Pair) -> None:
    pair.client.send(frame(BINARY, b"ab", fin=False) + frame(PING, b"?") + frame(CONTINUATION, b"cd"))
    assert pair.server.receive(5) == [b"abcd"]
    assert pair.client.read_frame() == (PONG, b"?")


def test_text_split_inside_a_character_is_joined(pair: Pair) -> None:
    encoded = "é".encode()
    pair.client.send(frame(TEXT, encoded[:1], fin=False) + frame(CONTINUATION, encoded[1:]))
    assert pair.server.receive(5) == ["é"]


def test_any_cut_of_the_byte_stream_gives_the_same_messages(pair: Pair, rng: random.Random) -> None:
    messages = [rng.randbytes(rng.choice([0, 1, 2, 3, 125, 126, 640, 1_000])) for _ in range(40)]
    stream = b"".join(frame(BINARY, message) for message in messages)
    received: list[str | bytes] = []
    while stream:
        cut = rng.randrange(1, 3_000)
        pair.client.send(stream[:cut])
        stream = stream[cut:]
        received += pair.server.receive(5)
    assert received == messages


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(BINARY, b"x" * 1_001), 1009),
        (frame(BINARY, b"x" * 600, fin=False) + frame(CONTINUATION, b"x" * 401), 1009),
        (frame(TEXT, b"x" * 201), 1009),
        (frame(TEXT, "é".encode() * 101), 1009),
        (frame(BINARY, b"x" * 1_100, length=1 << 40), 1009),
        (frame(BINARY, length=1_001), 1009),
        (frame(TEXT, length=201), 1009),
        (frame(BINARY, b"x" * 600, fin=False) + frame(CONTINUATION, length=401), 1009),
        (frame(TEXT, b"x" * 100, fin=False) + frame(CONTINUATION, b"x", length=101), 1009),
        (frame(BINARY, b"", fin=False) + frame(CONTINUATION, b"", fin=False) * MAX_FRAGMENTS, 1008),
        (frame(PING) * (PING_BURST + 1), 1008),
        (frame(TEXT, b"\xff\xfe"), 1007),
        (frame(BINARY, b"deflated", rsv1=True), 1002),
        (frame(CONTINUATION, b"of nothing"), 1002),
        (frame(0x3, b"reserved opcode"), 1002),
        (frame(PING, b"x" * 126), 1002),
        (frame(BINARY, b"x")[:1] + b"\x01x" + b"unmasked", 1002),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1002),
    ],
)
def test_what_breaks_a_rule_is_named_and_may_be_answered(pair: Pair, data: bytes, code: int) -> None:
    pair.client.send(frame(BINARY, b"before") + data)
    assert pair.server.receive(5) == [b"before"]
    with pytest.raises(Violation) as caught:
        pair.server.receive(5)
    assert caught.value.code == code
    pair.server.send("an explanation")
    finish(pair, code)


def finish(pair: Pair, code: int) -> None:
    """Close from the server's side; the client sees the code, and then the end."""
    pair.server.close(code, "reason")
    assert pair.client.read_close() == code
    assert pair.client.at_end()


def test_limits_may_be_reached_exactly(pair: Pair) -> None:
    pair.client.send(frame(BINARY, b"x" * 1_000) + frame(TEXT, b"y" * 200))
    assert pair.server.receive(5) == [b"x" * 1_000, "y" * 200]


def test_a_client_that_closes_is_heard_after_its_last_message(pair: Pair) -> None:
    pair.client.send(frame(BINARY, b"last") + close_frame(1001))
    assert pair.server.receive(5) == [b"last"]
    for _ in range(2):
        with pytest.raises(SocketEnded) as ended:
            pair.server.receive(5)
        assert (ended.value.cause, ended.value.code) == (EndCause.CLIENT_CLOSED, 1001)
    with pytest.raises(SocketEnded):
        pair.server.send("too late")
    finish(pair, 1001)  # the client's own code comes back


def test_a_reset_and_a_plain_end_are_a_lost_connection(pair: Pair) -> None:
    pair.client.send(frame(BINARY, b"half a frame")[:-3])
    assert pair.server.receive(5) == []
    pair.client.close()
    with pytest.raises(SocketEnded) as ended:
        pair.server.receive(5)
    assert ended.value.cause is EndCause.LOST
    with pytest.raises(SocketEnded):
        pair.server.send("x")
    pair.server.close()


def test_a_client_that_never_reads_ends_the_stream_within_the_send_timeout(pair: Pair) -> None:
    causes: list[EndCause] = []

    def send_without_end() -> None:
        try:
            for _ in range(100):
                pair.server.send("x" * 60_000)
        except SocketEnded as ended:
            causes.append(ended.cause)

    writer = threading.Thread(target=send_without_end)
    writer.start()
    writer.join(10)
    pair.server.abort()  # frees a writer that waits for ever
    writer.join()
    assert causes == [EndCause.SEND_TIMEOUT]
    pair.server.close()


def test_frames_stay_whole_when_the_reader_is_slow() -> None:
    pair = Pair(SystemClock(), SocketLimits(1_000, 200, send_timeout_s=10, ping_interval_s=20))
    texts = [str(index) * 5_000 for index in range(300)]

    def write() -> None:
        for text in texts:
            pair.server.send(text)

    writer = threading.Thread(target=write)
    writer.start()
    assert [pair.client.read_frame() for _ in texts] == [(TEXT, text.encode()) for text in texts]
    writer.join()
    pair.close()


def test_being_woken_returns_at_once_without_messages(pair: Pair) -> None:
    pair.wake()
    assert pair.server.receive(60) == []


def test_a_client_that_is_held_back_loses_nothing_and_is_not_given_up() -> None:
    clock = ManualClock()
    pair = Pair(clock)
    pair.client.send(frame(BINARY, b"ab"))
    pair.pause(0)
    clock.advance(60)
    pair.wake()
    pair.pause(60)
    assert pair.server.receive(0) == [b"ab"]
    pair.client.close()
    with pytest.raises(SocketEnded) as ended:
        pair.pause(60)
    assert ended.value.cause is EndCause.LOST
    pair.close()


def test_pings_at_a_human_rate_are_all_answered() -> None:
    clock = ManualClock()
    pair = Pair(clock)
    for index in range(3 * PING_BURST):
        clock.advance(0.1)
        pair.client.send(frame(PING, struct.pack("!H", index)))
        assert pair.server.receive(5) == []
        assert pair.client.read_frame() == (PONG, struct.pack("!H", index))
    pair.close()


def drain(pair: Pair) -> int:
    """Receive until the socket pauses, or for long enough; how many messages came."""
    return sum(len(pair.server.receive(0.001)) for _ in range(20))


@pytest.mark.parametrize("flood", [frame(BINARY), frame(TEXT, b"{}"), frame(BINARY) + frame(PONG)])
def test_a_flood_of_small_frames_is_read_slowly_and_not_lost(flood: bytes) -> None:
    clock = ManualClock()
    pair = Pair(clock)
    count = 3_000
    sending = threading.Thread(target=pair.client.send, args=(flood * count,))
    sending.start()
    per_message = 2 if len(flood) > len(frame(TEXT, b"{}")) else 1
    most = SLOW_READ_BYTES // SMALLEST_FRAME_BYTES
    received = drain(pair)
    assert 0 < received * per_message <= FRAME_BURST + most
    for _ in range(500):
        if received == count:
            break
        clock.advance(1)
        now = drain(pair)
        received += now
        assert now * per_message <= FRAMES_PER_S + most
    sending.join()
    assert received == count
    pair.client.send(frame(TEXT, b"still open"))
    clock.advance(10)
    assert pair.server.receive(5) == ["still open"]
    pair.close()


def test_a_pause_ends_early_for_mail_and_does_not_make_a_dead_peer() -> None:
    clock = ManualClock()
    pair = Pair(clock)
    pair.client.send(frame(BINARY) * (FRAME_BURST + 10))
    while pair.server.receive(0):
        pass
    clock.advance(100 * LIMITS.ping_interval_s)
    pair.wake()
    assert pair.server.receive(60) in ([], [b""] * 10)
    pair.close()


def test_audio_in_usual_frames_is_never_paused(pair: Pair) -> None:
    received = b""
    # The clock stands still: all of it at once.
    sending = threading.Thread(target=pair.client.send, args=(frame(BINARY, b"x" * 1_000) * 1_000,))
    sending.start()
    while len(received) < 1_000_000:
        received += b"".join(part for part in pair.server.receive(5) if isinstance(part, bytes))
    sending.join()
    assert received == b"x" * 1_000_000


def test_what_came_with_the_upgrade_request_comes_first() -> None:
    early = frame(TEXT, b"one") + frame(TEXT, b"two")
    pair = Pair(ManualClock(), environ={EARLY_BYTES: lambda: early[:-1]})
    pair.client.send(early[-1:] + frame(TEXT, b"three"))
    assert pair.server.receive(5) == ["one"]
    assert pair.server.receive(5) == ["two", "three"]
    pair.close()


def test_a_client_that_only_stops_sending_still_gets_what_it_waits_for(pair: Pair) -> None:
    pair.client.send(frame(TEXT, b"end"))
    pair.client.sock.shutdown(socket.SHUT_WR)
    assert pair.server.receive(5, answer_awaited=True) == ["end"]
    for _ in range(3):
        assert pair.server.receive(0, answer_awaited=True) == []
    pair.server.send("the final")
    assert pair.client.read_frame() == (PING, b"")
    assert pair.client.read_frame() == (TEXT, b"the final")
    with pytest.raises(SocketEnded):
        pair.server.receive(0)


def test_a_client_that_closes_while_it_waits_is_gone(pair: Pair) -> None:
    pair.client.close()
    with pytest.raises(SocketEnded):
        list(iter(lambda: pair.server.receive(1, answer_awaited=True), None))


def test_closing_says_why_and_then_nothing_more(pair: Pair) -> None:
    pair.server.send("the last message")
    pair.server.close(1009, "too much")
    pair.server.close(1000)
    with pytest.raises(SocketEnded):
        pair.server.send("more")
    assert pair.client.read_frame() == (TEXT, b"the last message")
    assert pair.client.read_frame() == (CLOSE, struct.pack("!H", 1009) + b"too much")
    assert pair.client.at_end()


def test_the_socket_stays_open_for_gunicorn_to_close(pair: Pair) -> None:
    pair.server.abort()
    pair.server.close()
    assert pair.raw_server.fileno() >= 0
    pair.raw_server.setblocking(True)
    assert pair.raw_server.recv(1) == b""
