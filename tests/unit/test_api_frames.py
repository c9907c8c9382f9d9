"""Whole binary frames that are read without the WebSocket library: as it would, byte for byte."""

from __future__ import annotations

import random
import struct

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, Request
from wsproto.frame_protocol import Opcode

from api.frames import PlainFrames, announced, between_messages
from api.messages import Assembly
from api.rates import TokenBucket
from api.socket_types import SocketLimits, TooBig
from queueing.clock import ManualClock
from tests.support.frames import BINARY, CONTINUATION, PING, TEXT, frame

LIMIT = 70_000


def test_the_same_messages_come_however_the_bytes_arrive(rng: random.Random) -> None:
    sent = [rng.randbytes(rng.choice((0, 1, 5, 125, 126, 127, 3_200, 65_535))) for _ in range(60)]
    wire = b"".join(frame(BINARY, message) for message in sent)
    plain, messages = PlainFrames(LIMIT), list[str | bytes]()
    while wire:
        size = rng.choice((1, 1, 2, 3, 7, 1_000, 20_000))
        came, rest = plain.feed(wire[:size])
        assert rest == b""
        messages += came
        wire = wire[size:]
    assert messages == sent
    assert not plain.begun


@pytest.mark.parametrize(
    "other",
    [
        frame(TEXT, b"x"),
        frame(PING),
        frame(CONTINUATION, b"x"),
        frame(BINARY, b"x", fin=False),
        frame(BINARY, b"x", rsv1=True),
        frame(BINARY, b"", length=LIMIT + 1),
        b"\x82\x01x",
        b"\x82\xfe" + struct.pack("!H", 125) + bytes(129),
    ],
    ids=["text", "ping", "continuation", "fragment", "extension", "too long", "not masked", "length too wide"],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_what_is_no_plain_frame_is_handed_back_from_its_first_byte_on(other: bytes, at_once: bool) -> None:
    plain, wire = PlainFrames(LIMIT), frame(BINARY, b"abc") + other + frame(BINARY, b"def")
    messages, handed_back = list[str | bytes](), b""
    for piece in [wire] if at_once else [wire[at : at + 1] for at in range(len(wire))]:
        if handed_back:
            handed_back += piece
        else:
            came, handed_back = plain.feed(piece)
            messages += came
    assert (messages, handed_back) == ([b"abc"], other + frame(BINARY, b"def"))
    assert not plain.begun


def test_a_frame_over_the_limit_is_handed_back_as_soon_as_its_length_is_known() -> None:
    plain = PlainFrames(1_000)
    assert plain.feed(frame(BINARY, b"", length=1_001)[:3]) == ([], b"")
    assert plain.feed(frame(BINARY, b"", length=1_001)[3:4]) == ([], frame(BINARY, b"", length=1_001)[:4])


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (frame(BINARY, bytes(1_001)), 1_001),
        (frame(BINARY, bytes(100), length=1 << 40), 1 << 40),
        (frame(BINARY, bytes(600), fin=False) + frame(CONTINUATION, bytes(401)), 1_001),
        (frame(BINARY, bytes(600), fin=False) + frame(CONTINUATION, length=401), None),
        (frame(BINARY, fin=False, length=1_001), None),
        (frame(TEXT, "é".encode() * 101), 202),
        (frame(TEXT, "é".encode() * 60, length=300), 300),
    ],
)
def test_what_is_too_big_says_its_size_where_that_is_known(data: bytes, size: int | None) -> None:
    server, clock = upgraded(), ManualClock()
    assembly = Assembly(SocketLimits(1_000, 200, 1.0, 20.0), TokenBucket(clock, 9, 9), TokenBucket(clock, 9, 9))
    server.receive_data(data)
    with pytest.raises(TooBig) as caught:
        assembly.take(server, [])
    assert caught.value.size == size
    assert (f"this one has {size};" in caught.value.reason) is (size is not None)


def upgraded() -> WSConnection:
    client, server = WSConnection(ConnectionType.CLIENT), WSConnection(ConnectionType.SERVER)
    server.receive_data(client.send(Request(host="x", target="/")))
    list(server.events())
    server.send(AcceptConnection())
    return server


def test_the_library_is_asked_where_it_stands() -> None:
    client = WSConnection(ConnectionType.CLIENT)
    server = WSConnection(ConnectionType.SERVER)
    assert not between_messages(server), "the handshake is not over"
    server.receive_data(client.send(Request(host="x", target="/")))
    list(server.events())
    server.send(AcceptConnection())
    assert between_messages(server)
    server.receive_data(frame(BINARY, bytes(100))[:1])
    list(server.events())
    assert not between_messages(server), "half a head has come"
    server.receive_data(frame(BINARY, bytes(100))[1:50])
    list(server.events())
    assert not between_messages(server), "half a frame has come"
    assert announced(server) == (Opcode.BINARY, 100 - (50 - 6), 100, True)
    server.receive_data(frame(BINARY, bytes(100))[50:])
    assert [event.message_finished for event in server.events() if isinstance(event, BytesMessage)] == [True]
    assert between_messages(server)
    server.receive_data(frame(BINARY, b"a", fin=False))
    list(server.events())
    assert not between_messages(server), "the message goes on"
