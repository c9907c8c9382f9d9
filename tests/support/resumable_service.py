"""A service that keeps streams over lost connections, and loses them where its script says so.

What a stream said is a pure function of its audio: a final for every ``SEGMENT_BYTES``, whose text is a digest of those
bytes, so a client that lost, doubled or shifted a single sample has another text.
"""

from __future__ import annotations

import hashlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection

from sessions.wire import (
    BYTES_PER_SECOND,
    Ack,
    Done,
    End,
    Error,
    ErrorCode,
    Final,
    Keepalive,
    Partial,
    Ready,
    Resume,
    ServerMessage,
    Start,
    decode_client,
    encode,
)
from tests.support.fake_service import LIMITS, FakeService, Seen, fake_service, seconds

SEGMENT_BYTES = BYTES_PER_SECOND
How = Literal["reset", "eof", "restart", "later", "shutting_down", "unavailable", "unsaid"]
"""``unsaid``: as ``unavailable``, but the error message before the close is lost."""


@dataclass(frozen=True)
class Loss:
    """When a connection is lost, and what with it.

    After ``messages`` messages of the client (its first included); what the server said since message ``mute_from``
    never arrived; of the audio that was not acknowledged, a share ``kept`` survives at the server.
    """

    messages: int
    how: How = "reset"
    mute_from: int | None = None
    kept: float = 1.0


@dataclass
class Stream:
    """What the service keeps of a stream."""

    session: str
    token: str
    previous_token: str = ""
    audio: bytearray = field(default_factory=bytearray)
    acked: int = 0
    seq: int = 0
    final_seqs: list[int] = field(default_factory=list)
    """`seq` of each final that was said."""
    ended: bool = False
    bytes_received: int = 0
    last_seqs: list[int] = field(default_factory=list)
    """Of each `resume`."""


@dataclass
class ResumableService:
    """``losses``: of the first, second, ... connection; those after the last are kept."""

    losses: list[Loss]
    rng: random.Random
    streams: dict[str, Stream] = field(default_factory=dict)
    openings: list[Start | Resume] = field(default_factory=list)
    resume_s: float = 20.0
    token_for_clients: bool = True
    answer_resume: Callable[[ServerConnection], bool] = lambda _connection: False
    """Answers a `resume` in the service's place, where it returns True."""
    on_loss: Callable[[], object] = lambda: None
    """Called before a connection is lost."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def behave(self, connection: ServerConnection, seen: Seen) -> None:
        with self.lock:
            loss = self.losses[len(self.openings)] if len(self.openings) < len(self.losses) else Loss(10**9)
            opening = decode_client(connection.recv())
            assert isinstance(opening, Start | Resume)
            self.openings.append(opening)
        talk = _Talk(self, connection, loss)
        if isinstance(opening, Start):
            talk.begin(Stream(f"s{len(self.streams)}", self.token()))
        elif self.answer_resume(connection) or not talk.resume(opening):
            return
        talk.run()

    def token(self) -> str:
        return f"{self.rng.getrandbits(64):x}"

    @property
    def stream(self) -> Stream:
        """The newest; a reset may destroy a `ready` on its way, and then there are several."""
        return [*self.streams.values()][-1]


class _Talk:
    """One connection."""

    def __init__(self, service: ResumableService, connection: ServerConnection, loss: Loss) -> None:
        self.service = service
        self.connection = connection
        self.loss = loss
        self.messages = 1
        self.stream = Stream("", "")

    def say(self, message: ServerMessage) -> None:
        if self.loss.mute_from is None or self.messages < self.loss.mute_from:
            self.connection.send(encode(message))

    def begin(self, stream: Stream) -> None:
        self.service.streams[stream.session] = self.stream = stream
        token = stream.token if self.service.token_for_clients else None
        self.say(Ready(session=stream.session, limits=LIMITS, token=token, resume_s=self.service.resume_s))

    def resume(self, asked: Resume) -> bool:
        stream = self.service.streams.get(asked.session)
        if stream is None or asked.token not in {stream.token, stream.previous_token}:
            refused = Error(code=ErrorCode.RESUME_REFUSED, message="no such stream", fatal=True)
            self.connection.send(encode(refused))
            self.connection.close(1008, refused.code)
            return False
        self.stream = stream
        stream.last_seqs.append(asked.last_seq)
        stream.previous_token, stream.token = asked.token, self.service.token()
        stream.acked = len(stream.audio) // 2 * 2
        if not stream.ended:
            del stream.audio[stream.acked :]
        self.say(
            Ready(
                session=stream.session,
                limits=LIMITS,
                token=stream.token,
                resume_s=self.service.resume_s,
                received_s=seconds(stream.acked),
                resumed=True,
            )
        )
        lacking = [index for index, seq in enumerate(stream.final_seqs) if seq > asked.last_seq]
        stream.seq = asked.last_seq
        for index in lacking:
            stream.seq += 1
            stream.final_seqs[index] = stream.seq
            self.say(self.final(index))
        return True

    def run(self) -> None:
        stream = self.stream
        if self.messages >= self.loss.messages:
            return self.lose()
        if stream.ended:
            self.finish()
            return None
        for data in self.connection:
            self.messages += 1
            if isinstance(data, bytes):
                stream.bytes_received += len(data)
                stream.audio += data
                self.hear()
            else:
                message = decode_client(data)
                assert isinstance(message, End | Keepalive), message
                stream.ended = isinstance(message, End)
            if self.messages >= self.loss.messages:
                return self.lose()
            if stream.ended:
                return self.finish()
        return None

    def hear(self) -> None:
        stream = self.stream
        before = len(stream.final_seqs)
        for index in range(before, len(stream.audio) // SEGMENT_BYTES):
            stream.seq += 1
            self.say(
                Partial(seq=stream.seq, text="so far", start_s=seconds(index * SEGMENT_BYTES), end_s=float(index + 1))
            )
            self.say_final(index)
        if len(stream.final_seqs) > before and len(stream.final_seqs) % 2:
            stream.acked = len(stream.audio) // 2 * 2
            self.say(Ack(received_s=seconds(stream.acked)))

    def say_final(self, index: int) -> None:
        self.stream.seq += 1
        self.stream.final_seqs.append(self.stream.seq)
        self.say(self.final(index))

    def final(self, index: int) -> Final:
        audio = bytes(self.stream.audio)
        piece = audio[index * SEGMENT_BYTES : (index + 1) * SEGMENT_BYTES]
        last = self.stream.ended and (index + 1) * SEGMENT_BYTES > len(audio)
        start = index * SEGMENT_BYTES
        return Final(
            seq=self.stream.final_seqs[index], start_s=seconds(start), end_s=seconds(start + len(piece)),
            text=digest(piece), last=last,
        )  # fmt: skip

    def finish(self) -> None:
        count = len(self.stream.audio) // SEGMENT_BYTES + 1
        while len(self.stream.final_seqs) < count:
            self.say_final(len(self.stream.final_seqs))
        self.say(Done(audio_s=seconds(len(self.stream.audio)), finals=count))
        if self.loss.mute_from is not None:
            return self.lose()  # an orderly close would not come through either
        self.connection.close(1000)
        return None

    def lose(self) -> None:
        stream = self.stream
        if not stream.ended:
            # What finals were said of is safe; of the rest some may be lost with the process.
            safe = max(stream.acked, len(stream.final_seqs) * SEGMENT_BYTES)
            kept = safe + int((len(stream.audio) - safe) * self.loss.kept)
            del stream.audio[kept // 2 * 2 :]
        self.service.on_loss()
        self.connection.close_timeout = 0.05  # what still stands in the socket is not read first
        match self.loss.how:
            case "reset":
                raw = self.connection.socket
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close_socket()
            case "eof":
                self.connection.socket.shutdown(socket.SHUT_WR)
                for _ in self.connection:  # till the client leaves: unread audio would make it a reset, which may
                    pass  # destroy what is on its way, the `ready` with the token as well
            case "restart":
                self.connection.close(1012)
            case "later":
                self.connection.close(1013)
            case "shutting_down":
                self.say(Error(code=ErrorCode.SHUTTING_DOWN, message="it ends", fatal=True, retry_after_s=0.05))
                self.connection.close(1012, "shutting_down")
            case "unavailable":
                self.say(Error(code=ErrorCode.UNAVAILABLE, message="no Redis", fatal=True, retry_after_s=0.05))
                self.connection.close(1011, "unavailable")
            case "unsaid":
                self.connection.close(1011, "unavailable")


def digest(piece: bytes) -> str:
    """The text of these bytes."""
    return hashlib.sha256(piece).hexdigest()[:12]


def text_of(audio: bytes) -> str:
    """What an undisturbed stream of this audio says."""
    return " ".join(digest(audio[at : at + SEGMENT_BYTES]) for at in range(0, len(audio) + 1, SEGMENT_BYTES))


@contextmanager
def resumable_service(
    rng: random.Random, *losses: Loss, **options: object
) -> Iterator[tuple[FakeService, ResumableService]]:
    """Run it on a free port of 127.0.0.1."""
    service = ResumableService(list(losses), rng, **options)  # type: ignore[arg-type]
    with front_end(service) as running:
        yield running, service


@contextmanager
def front_end(service: ResumableService) -> Iterator[FakeService]:
    """One of the addresses of the service."""

    def behave(connection: ServerConnection, seen: Seen) -> None:
        try:
            service.behave(connection, seen)
        except ConnectionClosed:
            return

    with fake_service(behave) as running:
        yield running
