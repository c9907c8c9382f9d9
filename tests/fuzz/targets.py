"""What is fuzzed: each target takes bytes, does with them what a stranger's bytes cause, and checks what must hold.

A target raises (AssertionError or anything else) when something is wrong, and returns otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from werkzeug.datastructures import EnvironHeaders, MultiDict
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Request, TextMessage
from wsproto.utilities import RemoteProtocolError

from api.credentials import Conflict, answered_protocol, offered_protocols, presented_key
from api.frames import PlainFrames, between_messages
from api.origins import Allowed, host_allowed, origin_allowed, split_authority
from sessions.api_keys import BadKeyFile, is_key, parse_keys, records_by_line
from sessions.errors import WireError, WrongAudio
from sessions.exposure import is_loopback_name
from sessions.sniff import Sniffer, is_control_message
from sessions.wire import decode_client, decode_server, encode

MAX_HELD = 20_000
"""Bytes that `Sniffer` may keep back."""
FRAME_LIMIT = 1_024

Target = Callable[[bytes], None]


def wire(data: bytes) -> None:
    """Control messages, `resume` among them: a message or a `WireError`; and what was decoded survives encoding."""
    decode = decode_client if data[:1] < b"\x80" else decode_server
    for text in (data[1:], data[1:].decode("utf-8", "replace")):
        try:
            message = decode(text)
        except WireError:
            continue
        again = decode(encode(message))
        assert again == message, f"{message!r} became {again!r}"
        json.loads(encode(message))


def sniff(data: bytes) -> None:
    """Audio in pieces: samples, or `WrongAudio`; for a WAV file the same ones wherever the pieces are cut."""
    cuts, audio = data[:4], data[4:]
    is_control_message(audio)
    whole = _sniffed([audio])
    if audio[:4] in (b"RIFF", b"RF64"):
        assert _sniffed(_pieces(cuts, audio)) == whole, "another result when cut otherwise"
    else:
        _sniffed(_pieces(cuts, audio))
    assert isinstance(whole, str) or len(whole) <= len(audio)


def _sniffed(pieces: list[bytes]) -> bytes | str:
    sniffer, samples = Sniffer(), b""
    try:
        for piece in pieces:
            samples += sniffer.feed(piece)
            assert sniffer.held <= MAX_HELD, f"{sniffer.held} bytes held"
        return samples + sniffer.end()
    except WrongAudio as error:
        return f"wrong audio: {error.code}"


def _pieces(cuts: bytes, data: bytes) -> list[bytes]:
    """``data`` in pieces of the sizes in ``cuts`` (never 0), over and over."""
    sizes = [cut or 256 for cut in cuts] or [1]
    return list(_cut(sizes, data))


def _cut(sizes: list[int], data: bytes) -> Iterator[bytes]:
    at = turn = 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        yield data[at : at + size]
        at, turn = at + size, turn + 1


def frames(data: bytes) -> None:
    """WebSocket bytes in pieces: the fast way and the library give what the library alone gives."""
    pieces = _pieces(data[:4], data[4:])
    alone, fast, plain = _Connection(), _Connection(), PlainFrames(FRAME_LIMIT)
    alone_end = fast_end = None
    for piece in pieces:
        if alone_end is None:
            alone.ws.receive_data(piece)
            alone_end = alone.take()
        if fast_end is None:
            rest = piece
            if plain.begun or between_messages(fast.ws):
                messages, rest = plain.feed(piece)
                fast.messages += messages
            if rest:
                fast.ws.receive_data(rest)
                fast_end = fast.take()
    assert (fast.messages, fast_end) == (alone.messages, alone_end)


class _Connection:
    """A server's end of which the opening handshake is done."""

    def __init__(self) -> None:
        client = WSConnection(ConnectionType.CLIENT)
        self.ws = WSConnection(ConnectionType.SERVER)
        self.ws.receive_data(client.send(Request(host="x", target="/")))
        list(self.ws.events())
        self.ws.send(AcceptConnection())
        self.messages: list[str | bytes] = []
        self._parts: list[str | bytes] = []

    def take(self) -> int | None:
        """Collect whole messages; the code when the connection is over."""
        try:
            for event in self.ws.events():
                if isinstance(event, CloseConnection):
                    return int(event.code)
                if isinstance(event, TextMessage | BytesMessage):
                    self._add(event)
        except RemoteProtocolError:
            return -1
        return None

    def _add(self, event: TextMessage | BytesMessage) -> None:
        self._parts.append(event.data if isinstance(event, TextMessage) else bytes(event.data))
        if event.message_finished:
            text = [part for part in self._parts if isinstance(part, str)]
            data = [part for part in self._parts if isinstance(part, bytes)]
            self.messages.append("".join(text) if text else b"".join(data))
            self._parts.clear()


def keys(data: bytes) -> None:
    """The key file: records, or `BadKeyFile` that quotes nothing; and what was read reads the same when written."""
    text = data.decode("utf-8", "replace")
    path = Path("keys")
    try:
        records = parse_keys(path, text)
    except BadKeyFile:
        return
    written = "".join(record.line() for record in records)
    assert parse_keys(path, written) == records
    assert [record for _, record in records_by_line(path, text)] == list(records)


def access(data: bytes) -> None:
    """Headers of a request: a key at most, never as an answer; an attacker's name is never this machine's."""
    text = data.decode("latin-1")
    authorization, protocols, query, host, origin, *_ = [*text.split("\n"), "", "", "", "", ""]
    headers = EnvironHeaders({"HTTP_AUTHORIZATION": authorization, "HTTP_SEC_WEBSOCKET_PROTOCOL": protocols})
    arguments = MultiDict([("api_key", part) for part in query.split("&") if part])
    try:
        key = presented_key(headers, arguments)
    except Conflict:
        key = None
    if key is not None:
        assert key == "" or key in text
        is_key(key)
    assert answered_protocol(offered_protocols(headers)) in (None, "token", "bearer")
    authority = split_authority(host)
    if authority is not None and host_allowed(authority[0], Allowed()):
        assert is_loopback_name(authority[0])
        assert "." not in authority[0] or authority[0].endswith(".localhost") or authority[0].startswith(("127.", "["))
    if origin_allowed(origin, host, Allowed()):
        assert authority is not None
        assert authority[0] in origin.lower()


TARGETS: dict[str, Target] = {
    "wire": wire, "sniff": sniff, "frames": frames, "keys": keys, "access": access,
}  # fmt: skip
