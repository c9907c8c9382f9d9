"""One stream of the soak's load generator, and the books it keeps: every sample in exactly one final, in order."""

from __future__ import annotations

import json
import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ops import soak_wire as wire

BYTES_PER_S = 32_000
READ_BYTES = 65_536
MAX_FAULTS = 50
END = wire.text_frame({"type": "end"})
START = wire.text_frame({"type": "start"})
_PARTIAL = b'{"type":"partial"'


@dataclass(slots=True)
class Books:
    """What all streams of a generator add up to; times are seconds of the monotonic clock."""

    audio_bytes: int = 0
    partials: int = 0
    finals: int = 0
    finals_said: int = 0
    """As the services' `done` messages count them."""
    opened: int = 0
    done: int = 0
    refused: int = 0
    late_max_s: float = 0.0
    latencies: list[tuple[float, str, float]] = field(default_factory=list)
    """(when, kind, seconds): of finals at pauses since the end of speech was sent, of last ones since `end` was."""
    faults: list[str] = field(default_factory=list)
    fault_count: int = 0

    def fault(self, text: str) -> None:
        """Note something that must not happen; the first `MAX_FAULTS` in words."""
        self.fault_count += 1
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(text)


class SoakStream:
    """Sends pre-made frames when it is told to, checks what comes back. ``over``: the socket is closed."""

    def __init__(
        self,
        address: tuple[str, int],
        slot: int,
        frames: Sequence[bytes],
        frame_bytes: int,
        first: int,
        frames_to_send: int,
        books: Books,
        now: Callable[[], float],
    ) -> None:
        self._frames = frames
        self._frame_bytes = frame_bytes
        self._next = first
        self._left = frames_to_send
        self._books = books
        self._now = now
        self._incoming = wire.Incoming()
        self._begin = self._ended_at = 0.0
        self._covered_s = 0.0
        self._seq = self._finals = 0
        self._sent = 0
        self._last = self._done = False
        self._backlog = b""
        self.due_s = 0.0
        self.upgraded = self.ready = self.over = self.was_refused = False
        self.session = ""
        self.slot = slot
        self.sock = wire.connecting_socket(*address)
        self.fd = self.sock.fileno()
        self._request = wire.upgrade_request(*address)

    @property
    def ending(self) -> bool:
        return self._left == 0

    def begin(self, now: float) -> None:
        """The first frame's last sample is recorded one frame from now."""
        self._begin = now
        self.due_s = now + self._frame_bytes / BYTES_PER_S

    def cut_short(self) -> None:
        """End with the next frame."""
        self._left = min(self._left, 1)

    def send_due(self, now: float) -> None:
        """Send the frame that is due, or `end` with the last."""
        if self.over or not self._left:
            return
        self._books.late_max_s = max(self._books.late_max_s, now - self.due_s)
        self._left -= 1
        data = self._frames[self._next]
        self._next = (self._next + 1) % len(self._frames)
        self._sent += self._frame_bytes
        self._books.audio_bytes += self._frame_bytes
        self.due_s = self._begin + (self._sent + self._frame_bytes) / BYTES_PER_S
        if not self._left:
            data += END
            self._ended_at = now
        self._write(data)

    def on_event(self, event: int) -> None:
        """The socket can be read, or is connected."""
        if not self.upgraded and self._request and event & select.EPOLLOUT:
            request, self._request = self._request, b""
            self._write(request)
        if event & ~select.EPOLLOUT:
            self._read()

    def flush(self) -> None:
        """Try again to send what the kernel did not take."""
        if self._backlog and not self.over:
            self._write(b"")

    def close(self) -> None:
        """Leave at once."""
        self.over = True
        self.sock.close()

    def _write(self, data: bytes) -> None:
        data = self._backlog + data if self._backlog else data
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._lost(f"sending failed: {error}")
            return
        self._backlog = b"" if sent == len(data) else data[sent:]

    def _read(self) -> None:
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(f"reading failed: {error}")
            return
        if not data:
            if not self._done and not self.was_refused:
                self._lost("the connection ended before done")
            self.close()
            return
        if not self.upgraded:
            head = self._incoming.head(data)
            if head is None:
                return
            if b" 101 " not in head.split(b"\r\n", 1)[0]:
                self.was_refused = True
                self.close()
                return
            self.upgraded, data = True, b""
            self._write(START)
        for kind, payload in self._incoming.frames(data):
            self._frame(kind, payload)

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == wire.TEXT:
            if payload.startswith(_PARTIAL):
                self._books.partials += 1
                self._count(int(payload[payload.index(b'"seq":') + 6 :].split(b",", 1)[0]))
            else:
                self._message(json.loads(payload))
        elif kind == wire.PING:
            self._write(wire.frame(wire.PONG, payload))
        elif kind == wire.CLOSE:
            code = int.from_bytes(payload[:2], "big")
            if not self._done:
                self._lost(f"closed with {code} {payload[2:]!r} before done")
            if not self.over:
                self._write(wire.close_frame(code or 1000))

    def _message(self, message: dict[str, Any]) -> None:
        match message["type"]:
            case "ready":
                self.session = str(message["session"])
                self.ready = True
            case "final":
                self._final(message)
            case "done":
                self._finish(message)
            case "error":
                self._fault(f"error {message['code']}: {message['message']}")

    def _final(self, message: dict[str, Any]) -> None:
        now = self._now()
        self._count(int(message["seq"]))
        self._finals += 1
        self._books.finals += 1
        if self._last:
            self._fault("a final after the last")
        if message["start_s"] != self._covered_s:
            self._fault(f"a final from {message['start_s']} s after one up to {self._covered_s} s")
        self._covered_s = float(message["end_s"])
        self._last = bool(message["last"])
        if self._last:
            self._books.latencies.append((now, "last", now - self._ended_at))
        elif (spoken_s := message.get("speech_end_s")) is not None:
            self._books.latencies.append((now, "pause", now - self._begin - float(spoken_s)))

    def _finish(self, message: dict[str, Any]) -> None:
        self._done = True
        self._books.done += 1
        self._books.finals_said += int(message["finals"])
        sent_s = round(self._sent / BYTES_PER_S, 4)
        if int(message["finals"]) != self._finals:
            self._fault(f"done counts {message['finals']} finals, {self._finals} came")
        if not self._last or self._covered_s != sent_s or message["audio_s"] != sent_s:
            self._fault(f"{sent_s} s sent, {message['audio_s']} s taken, finals up to {self._covered_s} s")

    def _count(self, seq: int) -> None:
        if seq != self._seq + 1:
            self._fault(f"seq {seq} after {self._seq}")
        self._seq = seq

    def _lost(self, text: str) -> None:
        if not self.over:
            self._fault(text)
            self.close()

    def _fault(self, text: str) -> None:
        self._books.fault(f"session {self.session or '?'} at {self._sent / BYTES_PER_S:.1f} s: {text}")
