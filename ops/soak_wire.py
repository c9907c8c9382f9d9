"""WebSockets at the least cost, for the soak's own clients: frames made once and sent often, answers read in place.

Knows RFC 6455 as far as a client of this service needs it: one text or binary message is one frame, nothing is
compressed, and what is masked is masked beforehand (the key protects intermediaries, of which there are none).
"""

from __future__ import annotations

import json
import socket
from typing import Any

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
MASK = b"\x5a\xa5\x3c\xc3"
KEY = "aGVhcmxpbmUtc29hay1rZQ=="
PATH = "/v1/stream"


def frame(kind: int, payload: bytes) -> bytes:
    """A whole masked frame of a client."""
    size = len(payload)
    if size < 126:
        head = bytes((0x80 | kind, 0x80 | size))
    elif size < 65_536:
        head = bytes((0x80 | kind, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((0x80 | kind, 0x80 | 127)) + size.to_bytes(8, "big")
    keys = (MASK * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "little") ^ int.from_bytes(keys, "little")
    return head + MASK + masked.to_bytes(size, "little")


def text_frame(message: dict[str, Any]) -> bytes:
    """A control message."""
    return frame(TEXT, json.dumps(message).encode())


def close_frame(code: int = 1000) -> bytes:
    """A client's close."""
    return frame(CLOSE, code.to_bytes(2, "big"))


def upgrade_request(host: str, port: int) -> bytes:
    """The opening handshake."""
    lines = (
        f"GET {PATH} HTTP/1.1", f"Host: {host}:{port}", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13", "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode()


def connecting_socket(host: str, port: int) -> socket.socket:
    """A non-blocking socket on its way."""
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.connect_ex((host, port))
    return connection


class Incoming:
    """Takes frames of the server out of what arrives."""

    def __init__(self) -> None:
        self._data = bytearray()

    def head(self, data: bytes) -> bytes | None:
        """The HTTP answer's head, once it is whole; what came behind it is kept for `frames`."""
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self._data[:end])
        del self._data[: end + 4]
        return head

    def frames(self, data: bytes = b"") -> list[tuple[int, bytes]]:
        """(kind, payload) of each frame that is whole now."""
        buffer = self._data
        buffer += data
        found, at, size = [], 0, len(buffer)
        while size - at >= 2:
            kind, length, payload = buffer[at] & 0x0F, buffer[at + 1] & 0x7F, at + 2
            if length >= 126:
                wide = 2 if length == 126 else 8
                if size - payload < wide:
                    break
                length = int.from_bytes(buffer[payload : payload + wide], "big")
                payload += wide
            if size < payload + length:
                break
            found.append((kind, bytes(buffer[payload : payload + length])))
            at = payload + length
        del buffer[:at]
        return found
