"""Raw WebSocket frames, right and wrong ones, for what a proper client library would not send."""

from __future__ import annotations

import socket
import struct

TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 0x1, 0x2, 0x0, 0x8, 0x9, 0xA
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
MASK = b"\x01\x02\x03\x04"


def frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv1: bool = False, length: int | None = None
) -> bytes:
    """A masked client frame; ``length`` announces another length than that of ``payload``."""
    announced = len(payload) if length is None else length
    head = bytes([fin << 7 | rsv1 << 6 | opcode])
    if announced < 126:
        head += bytes([0x80 | announced])
    elif announced < 65_536:
        head += bytes([0x80 | 126]) + struct.pack("!H", announced)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", announced)
    return head + MASK + bytes(byte ^ MASK[index % 4] for index, byte in enumerate(payload))


def close_frame(code: int) -> bytes:
    return frame(CLOSE, struct.pack("!H", code))


def upgrade_request(path: str = "/v1/stream", extra: str = "") -> bytes:
    return (
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n{extra}\r\n"
    ).encode()


class RawClient:
    """The client's end of a TCP connection, reading whole server frames."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(10)
        self._buffer = b""

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read_head(self) -> str:
        """The HTTP response's head."""
        while b"\r\n\r\n" not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        return head.decode("latin-1")

    def read_line(self) -> bytes:
        """Up to the next line feed, with it."""
        while b"\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line + b"\n"

    def read_frame(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame. Raises ConnectionError at the end of the stream."""
        first, second = self._exactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._exactly(8))
        assert not second & 0x80, "a server must not mask"
        assert not first & 0x70, "no extension was negotiated"
        return first & 0x0F, self._exactly(length)

    def read_close(self) -> int:
        """Skip to the close frame; its code."""
        while True:
            opcode, payload = self.read_frame()
            if opcode == CLOSE:
                return int(struct.unpack("!H", payload[:2])[0])

    def at_end(self) -> bool:
        """Whether the server has closed and nothing is left to read (waits for it)."""
        try:
            return not self._buffer and self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.sock.close()

    def _exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def _more(self) -> None:
        data = self.sock.recv(65_536)
        if not data:
            raise ConnectionError(f"the server closed; {self._buffer!r} was left")
        self._buffer += data
