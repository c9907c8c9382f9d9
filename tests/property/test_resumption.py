"""Whatever is lost on the way, whenever: the server ends with exactly the stream, the caller with every final once.

A model of a network and a server around the client's pure parts: messages in flight may arrive, or be lost with their
connection; the server acknowledges now and then, and loses what it has not acknowledged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from loadgen.backlog import Backlog
from loadgen.errors import CannotConnect, ClientError, ServerFailed
from loadgen.resumption import Resuming, Resumption
from sessions.wire import Ack, Done, Final, Partial, Ready, Resume, ServerMessage, Start
from tests.support.fake_service import LIMITS, seconds

CAPACITY = 400
SEGMENT = 100
OPTIONS = Resuming(base_s=0.1, cap_s=1.0, extra_s=1_000.0, max_held_s=CAPACITY / 32_000)
BROKEN = ServerFailed("", "broken", None)


@dataclass
class Server:
    """Finals of every SEGMENT bytes; what lies below ``safe`` survives the process."""

    audio: bytearray = field(default_factory=bytearray)
    safe: int = 0
    seq: int = 0
    final_seqs: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    ended: bool = False

    def hear(self, data: bytes | None) -> list[ServerMessage]:
        if data is None:
            self.ended, self.safe = True, len(self.audio)
        else:
            self.audio += data
        said: list[ServerMessage] = []
        while len(self.audio) >= (len(self.final_seqs) + 1) * SEGMENT:
            self.seq += 2
            said.append(Partial(seq=self.seq - 1, text="", start_s=0, end_s=0))
            self.final_seqs.append(self.seq)
            self.safe = max(self.safe, len(self.final_seqs) * SEGMENT)
            said.append(self.final(len(self.final_seqs) - 1))
        return said + (self.finish() if self.ended else [])

    def finish(self) -> list[ServerMessage]:
        count = len(self.audio) // SEGMENT + 1
        if len(self.final_seqs) < count:
            self.seq += 1
            self.final_seqs.append(self.seq)
            return [self.final(count - 1), Done(audio_s=0, finals=count)]
        return [Done(audio_s=0, finals=count)]

    def final(self, index: int) -> Final:
        return Final(seq=self.final_seqs[index], start_s=index, end_s=index, text=str(index), last=False)

    def resume(self, asked: Resume) -> list[ServerMessage]:
        assert asked.token in self.tokens[-2:], "the token is the newest, or that before it"
        self.tokens = [asked.token, f"t{len(self.audio)}-{self.seq}-{len(self.tokens)}"]
        del self.audio[self.safe // 2 * 2 if not self.ended else len(self.audio) :]
        self.safe = len(self.audio)
        self.seq = asked.last_seq
        said: list[ServerMessage] = []
        for index, seq in enumerate(self.final_seqs):
            if seq > asked.last_seq:
                self.seq += 1
                self.final_seqs[index] = self.seq
            if seq > asked.last_seq - 3:  # a server that repeats what was heard does no harm
                said.append(self.final(index))
        ready = Ready(
            session="s", limits=LIMITS, token=self.tokens[-1], resume_s=30, resumed=True,
            received_s=seconds(len(self.audio) // 2 * 2),
        )  # fmt: skip
        return [ready, *said, *(self.finish() if self.ended else [])]


class Connections(RuleBasedStateMachine):
    """One stream over many connections."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.server = Server()
        self.heard: list[ServerMessage] = []
        self.newest_token: str | None = None

    @initialize(size=st.integers(0, 1_500), seed=st.integers(0, 2**32))
    def begin(self, size: int, seed: int) -> None:
        rng = random.Random(seed)
        self.audio = rng.randbytes(size)
        self.course = Resumption(Start(), ["ws://a", "ws://b"], OPTIONS, rng)
        self.backlog = Backlog(CAPACITY)
        self.read = 0
        self.up: list[Start | Resume | bytes | None] = []
        self.down: list[ServerMessage] = []
        self.connect()

    def connect(self) -> None:
        self.now += self.course.attempt(self.now).delay_s
        opening = self.course.opening
        assert isinstance(opening, Start) or opening.token == self.newest_token
        self.up, self.down = [opening], []
        self.position = 0
        self.ended = False
        self.sending = not self.course.away

    @rule(sizes=st.lists(st.integers(1, 70), min_size=1, max_size=6))
    def send(self, sizes: list[int]) -> None:
        for size in sizes:
            piece = self.audio[self.read : self.read + min(size, self.backlog.room)]
            self.backlog.append(piece)
            self.read += len(piece)
            frame = self.backlog.piece(self.position, size) if self.sending else b""
            if frame:
                self.position += len(frame)
                self.course.sent = max(self.course.sent, self.position)
                self.up.append(frame)
            elif self.sending and self.position == len(self.audio) and not self.ended:
                self.ended = True
                self.up.append(None)

    @precondition(lambda self: self.up)
    @rule(count=st.integers(1, 8))
    def server_receives(self, count: int) -> None:
        for _ in range(min(count, len(self.up))):
            message = self.up.pop(0)
            match message:
                case Start():
                    self.server = Server(tokens=["t"])
                    self.down.append(Ready(session="s", limits=LIMITS, token="t", resume_s=30))
                case Resume():
                    self.down += self.server.resume(message)
                case _:
                    if not self.server.ended:
                        self.down += self.server.hear(message)

    @rule()
    def server_acknowledges(self) -> None:
        if self.server.tokens and not isinstance((self.up or [None])[0], Start | Resume):
            self.server.safe = max(self.server.safe, len(self.server.audio) // 2 * 2)
            self.down.append(Ack(received_s=seconds(self.server.safe // 2 * 2)))

    @precondition(lambda self: self.down)
    @rule(count=st.integers(1, 8))
    def client_receives(self, count: int) -> None:
        for _ in range(min(count, len(self.down))):
            message = self.down.pop(0)
            away = self.course.away
            self.now += 0.01
            if self.course.take(self.now, message):
                self.heard.append(message)
            self.backlog.acknowledge(self.course.acked)
            if isinstance(message, Ready):
                self.newest_token = message.token
                if away:
                    self.position, self.sending = self.course.acked, True

    @precondition(lambda self: not self.course.done)
    @rule(failures=st.lists(st.sampled_from([CannotConnect("ws://a", "refused"), BROKEN]), max_size=3))
    def lose(self, failures: list[ClientError]) -> None:
        lost_with_news = self.course.streaming
        self.course.failed(self.now, BROKEN)
        self.connect()
        for failure in failures if lost_with_news or self.course.session else []:
            self.course.failed(self.now, failure)
            self.connect()
        self.course._fruitless = 0  # a network without any luck is the subject of another test

    @invariant()
    def what_is_kept_is_bounded_and_enough(self) -> None:
        if hasattr(self, "backlog"):
            assert self.backlog.end - self.backlog.start <= CAPACITY
            assert self.backlog.start <= self.server.safe or not self.course.session

    def teardown(self) -> None:
        if not hasattr(self, "course"):
            return
        for _ in range(10_000):
            if self.course.done:
                break
            self.send([64])
            if self.up:
                self.server_receives(10)
            self.server_acknowledges()
            if self.down:
                self.client_receives(10)
        assert self.course.done
        assert bytes(self.server.audio) == self.audio
        finals = [message for message in self.heard if isinstance(message, Final)]
        assert [final.text for final in finals] == [str(index) for index in range(len(self.audio) // SEGMENT + 1)]
        numbered = [message.seq for message in self.heard if isinstance(message, Partial | Final)]
        assert numbered == [*range(1, len(numbered) + 1)]


TestConnections = Connections.TestCase
TestConnections.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_backlog_never_drops_and_never_grows(rng: random.Random) -> None:
    data = rng.randbytes(5_000)
    backlog = Backlog(100)
    while backlog.start < len(data):
        backlog.append(data[backlog.end : backlog.end + rng.randint(0, backlog.room)])
        position = rng.randint(backlog.start, backlog.end)
        size = rng.randint(0, 120)
        assert backlog.piece(position, size) == data[position : min(position + size, backlog.end)]
        backlog.acknowledge(rng.randint(0, backlog.end))
    for wrong in (lambda: backlog.append(bytes(101)), lambda: backlog.acknowledge(5_001), lambda: backlog.piece(0, 1)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(ValueError):
        Backlog(0)
