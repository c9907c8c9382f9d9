"""Most of what a client sends is audio: one masked binary message in one frame. Those are read here, at a tenth of
what the WebSocket library takes for them; everything else, and all that is wrong, is the library's to judge.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from wsproto import WSConnection
from wsproto.frame_protocol import Opcode

_WHOLE_BINARY = 0x82
"""First byte of a frame: binary, the only one of its message, no extension."""
_MASKED = 0x80
_TWO_BYTE_LENGTH = 126
_EIGHT_BYTE_LENGTH = 127


class PlainFrames:
    """Takes whole binary messages of at most ``limit`` bytes out of what arrives. Holds at most one frame."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._wanted = 0

    @property
    def begun(self) -> bool:
        """Whether a part of a frame is held, so that what arrives next belongs here."""
        return bool(self._begun)

    def feed(self, data: bytes) -> tuple[list[str | bytes], bytes]:
        """The messages that are complete now, and the bytes from the first frame on that is of another kind.

        Call it only at the beginning of a frame and of a message, or when one has `begun`.
        """
        if self._begun:
            self._begun += data
            if len(self._begun) < self._wanted:
                return [], b""
            data = bytes(self._begun)
            self._begun.clear()
        messages: list[str | bytes] = []
        at, size = 0, len(data)
        while at < size:
            found = self._frame(data, at)
            if found is None:
                return messages, data[at:]
            payload, end = found
            if end > size:
                self._begun += data[at:]
                self._wanted = end - at
                break
            messages.append(_unmasked(data[payload - 4 : payload], data[payload:end]))
            at = end
        return messages, b""

    def _frame(self, data: bytes, at: int) -> tuple[int, int] | None:
        """Where the payload of the frame at ``at`` begins and ends (beyond the data: so much is needed at least, to
        know more); None when the library shall read it."""
        if data[at] != _WHOLE_BINARY:
            return None
        head = data[at + 1 : at + 4]
        if not head:
            return at, at + 2
        length = head[0] - _MASKED
        if not 0 <= length < _EIGHT_BYTE_LENGTH:
            return None
        payload = at + 6
        if length == _TWO_BYTE_LENGTH:
            if len(head) < 3:
                return at, at + 4
            payload, length = at + 8, head[1] << 8 | head[2]
            if length < _TWO_BYTE_LENGTH:
                return None
        return None if length > self._limit else (payload, payload + length)


def between_messages(connection: WSConnection) -> bool:
    """Whether the library waits for the first byte of a message."""
    # wsproto tells no such thing, so this looks at its decoders (as the next function does).
    protocol = connection.connection._proto if connection.connection else None
    if protocol is None:
        return False
    frames, messages = protocol._frame_decoder, protocol._message_decoder
    return frames.header is None and not len(frames.buffer) and messages.opcode is None


class Begun(NamedTuple):
    """A data frame that has begun to arrive: its kind, bytes still to come, bytes in all, whether its message ends."""

    opcode: Opcode
    missing: int
    size: int
    last: bool


def announced(connection: WSConnection) -> Begun | None:
    """What the head of the frame says that has begun to arrive; None between frames."""
    decoder = connection.connection._proto._frame_decoder if connection.connection else None
    head = None if decoder is None else decoder.header
    if decoder is None or head is None or head.opcode.iscontrol():
        return None
    return Begun(head.opcode, head.payload_len - decoder.payload_consumed, head.payload_len, head.fin)


def _unmasked(key: bytes, data: bytes) -> bytes:
    """RFC 6455, 5.3, eight bytes at a time."""
    padding = -len(data) % 8
    words = np.frombuffer(data + bytes(padding) if padding else data, np.uint64)
    plain = np.bitwise_xor(words, np.frombuffer(key + key, np.uint64)).tobytes()
    return plain[: len(data)] if padding else plain
