"""Streams that take turns: each gets what it waits for, and none waits for another that is held up."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from api.steps import Ready, Steps, Wait
from api.turns import Turns
from queueing.clock import SystemClock
from tests.support.eventually import eventually

Life = Callable[["Client"], Steps[None]]


class CountingPoller:
    """A poller that counts how often it was asked."""

    def __init__(self, poller: Any) -> None:
        self._poller = poller
        self.asked = 0

    def poll(self, timeout: float | None) -> Any:
        self.asked += 1
        return self._poller.poll(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)


class Client:
    """The other end of a stream, and what became of the stream."""

    def __init__(self, turns: Turns, life: Life) -> None:
        self.server, self.socket = socket.socketpair()
        self.server.setblocking(False)
        self.mail_fd, self._mail_in = os.pipe()
        self.seen: list[object] = []
        self.threads: set[int] = set()
        self.error: BaseException | None = None
        self._turns = turns
        self._steps = self._watched(life(self))
        self._thread = threading.Thread(target=self._live)
        self._thread.start()

    def _watched(self, steps: Steps[None]) -> Steps[None]:
        """No two threads take steps of one stream at a time: a generator that runs says so (ValueError)."""
        ready = None
        while True:
            try:
                wait = next(steps) if ready is None else steps.send(ready)
            except StopIteration:
                return
            ready = yield wait
            self.threads.add(threading.get_ident())

    def _live(self) -> None:
        try:
            self._turns.take(self._steps, self.server.fileno(), self.mail_fd)
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            self.error = error

    def post(self) -> None:
        os.write(self._mail_in, b"m")

    def sees(self, *expected: object) -> None:
        eventually(lambda: self.seen == list(expected), what=f"{expected} at the stream, which saw {self.seen}")

    def has(self, data: bytes, mail: int = 0) -> None:
        """All of ``data``, in whatever pieces, and so much mail."""

        def there() -> bool:
            seen = tuple(self.seen)
            return b"".join(part for part in seen if isinstance(part, bytes)) == data and seen.count("mail") == mail

        eventually(there, timeout_s=20, what=f"{len(data)} bytes and {mail} times mail at the stream")

    def ends(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()

    def close(self) -> None:
        self.socket.close()
        self.ends()
        self.server.close()
        os.close(self.mail_fd)
        os.close(self._mail_in)


Opened = Callable[[Life], Client]


@pytest.fixture
def held_up() -> list[int]:
    """One more, one fewer: their sum are the steps that are held up now."""
    return []


@pytest.fixture(params=[False, True], ids=["epoll", "poll"])
def turns(request: pytest.FixtureRequest, held_up: list[int]) -> Turns:
    return Turns(SystemClock(), portable=request.param, count_held_up=held_up.append)


@pytest.fixture
def go_on(opened: Opened) -> Iterator[threading.Event]:
    """For steps that are held up; also when a test fails they are not for long."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def opened(turns: Turns) -> Iterator[Opened]:
    clients: list[Client] = []

    def open_one(life: Life) -> Client:
        clients.append(Client(turns, life))
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()


def told(client: Client, ready: Ready) -> bytes | None:
    """What a wait came to, noted as bytes, "mail" or "time"; None once the connection is over."""
    if ready.mail:
        client.seen.append(os.read(client.mail_fd, 1) and "mail")
    if ready.socket:
        data = client.server.recv(100)
        if not data:
            return None
        client.seen.append(data)
        return data
    if not ready.mail:
        client.seen.append("time")
    return b""


def listening(client: Client) -> Steps[None]:
    while told(client, (yield Wait(60, reads=True))) is not None:
        pass


def test_a_stream_is_told_of_bytes_of_mail_and_of_its_time(opened: Opened) -> None:
    def life(client: Client) -> Steps[None]:
        for timeout_s in (60, 60, 0.01, 0, 60):
            told(client, (yield Wait(timeout_s, reads=True)))

    client = opened(life)
    client.socket.send(b"a")
    client.sees(b"a")
    client.post()
    client.sees(b"a", "mail", "time", "time")
    client.socket.send(b"b")
    client.ends()
    client.sees(b"a", "mail", "time", "time", b"b")


def test_one_that_does_not_read_is_not_told_of_bytes_but_of_the_end_of_its_connection(opened: Opened) -> None:
    def life(client: Client) -> Steps[None]:
        for reads in (False, False, True, False):
            client.seen.append((yield Wait(60, reads=reads)))
            if client.seen[-1] == Ready(socket=False, mail=True):
                os.read(client.mail_fd, 1)
            elif reads:
                client.server.recv(100)

    mail, heard = Ready(socket=False, mail=True), Ready(socket=True, mail=False)
    client = opened(life)
    client.socket.send(b"a")
    client.post()
    client.sees(mail)
    client.post()
    client.sees(mail, mail, heard)
    client.socket.close()
    client.ends()
    client.sees(mail, mail, heard, heard)


def test_a_new_wait_replaces_the_one_before(opened: Opened) -> None:
    def life(client: Client) -> Steps[None]:
        told(client, (yield Wait(0.05, reads=True)))
        told(client, (yield Wait(60, reads=True)))
        told(client, (yield Wait(0.01, reads=True)))

    client = opened(life)
    client.post()
    client.sees("mail")
    other = opened(lambda _: _pause(0.2))
    other.ends()
    client.sees("mail")  # the time of its first wait is long over
    client.post()
    client.ends()
    client.sees("mail", "mail", "time")


def _pause(seconds: float) -> Steps[None]:
    yield Wait(seconds, reads=True)


def test_streams_share_one_thread(opened: Opened, held_up: list[int]) -> None:
    """And one more for each step that was held up, as any may be on a busy machine."""
    clients = [opened(listening) for _ in range(20)]
    for number in range(5):
        for client in clients:
            client.socket.send(b"%d" % number)
    for client in clients:
        client.has(b"01234")
    assert len(set.union(*(client.threads for client in clients))) <= 1 + held_up.count(1)


def test_a_step_that_is_held_up_holds_up_nobody(
    opened: Opened, turns: Turns, held_up: list[int], go_on: threading.Event
) -> None:
    polls = turns._poller = CountingPoller(turns._poller)

    def life(client: Client) -> Steps[None]:
        told(client, (yield Wait(60, reads=True)))
        go_on.wait(20)
        yield from listening(client)

    others = [opened(listening) for _ in range(3)]
    stuck = [opened(life) for _ in range(4)]
    for client in stuck:
        client.socket.send(b"a")
    eventually(lambda: sum(held_up) == 4, what="four threads that are held up")
    for client in stuck:
        client.socket.send(b"b")  # waits for them: nobody may ask the kernel for it again and again
        client.post()
    before = polls.asked
    for client in others:
        client.socket.send(b"c")
        client.sees(b"c")
    assert polls.asked - before < 20
    assert all(client.seen == [b"a"] for client in stuck)
    go_on.set()
    for client in stuck:
        client.has(b"ab", mail=1)
    eventually(lambda: sum(held_up) == 0, what="nobody held up")
    for client in others:
        client.socket.send(b"d")
        client.sees(b"c", b"d")


def test_one_that_ends_while_it_is_held_up_has_ended(
    opened: Opened, held_up: list[int], go_on: threading.Event
) -> None:
    def life(client: Client) -> Steps[None]:
        told(client, (yield Wait(60, reads=True)))
        go_on.wait(20)
        raise KeyError("late")

    client = opened(life)
    client.socket.send(b"a")
    eventually(lambda: sum(held_up) == 1, what="the thread that is held up")
    go_on.set()
    client.ends()
    assert isinstance(client.error, KeyError)
    assert sum(held_up) == 0


@pytest.mark.parametrize("at", [0, 1])
def test_what_a_step_raises_reaches_its_caller_and_nobody_else(opened: Opened, at: int) -> None:
    def life(client: Client) -> Steps[None]:
        for _ in range(at):
            told(client, (yield Wait(60, reads=True)))
        raise SystemExit("enough")

    other, client = opened(listening), opened(life)
    client.socket.send(b"a")
    client.ends()
    assert isinstance(client.error, SystemExit)
    other.socket.send(b"b")
    other.sees(b"b")


def test_one_without_any_wait_is_over_at_once(opened: Opened) -> None:
    client = opened(lambda _: iter(()))  # type: ignore[arg-type, return-value]
    client.ends()
    assert client.error is None


def test_a_descriptor_that_cannot_be_watched_ends_its_stream_only(turns: Turns, opened: Opened) -> None:
    class Full(CountingPoller):
        def register(self, fd: int, mask: int) -> None:
            raise OSError(28, "no room for more watches")

    other = opened(listening)
    other.socket.send(b"a")
    other.sees(b"a")
    whole = turns._poller
    turns._poller = Full(whole)
    client = opened(listening)
    client.ends()
    assert isinstance(client.error, OSError)
    turns._poller = whole
    other.socket.send(b"b")
    other.sees(b"a", b"b")


def test_long_waits_that_end_early_leave_no_timers_behind(opened: Opened, turns: Turns) -> None:
    client = opened(listening)
    for seen in range(40):
        client.socket.send(b"\0")
        client.has(bytes(seen + 1))
    assert len(turns._timers) <= 2


def test_short_waits_between_long_ones_leave_few_timers_behind(opened: Opened, turns: Turns) -> None:
    def life(client: Client) -> Steps[None]:
        for _ in range(200):
            yield Wait(0, reads=True)
            client.post()
            told(client, (yield Wait(60, reads=True)))

    opened(life).ends()
    assert len(turns._timers) < 100


def test_under_any_load_each_stream_gets_all_of_its_bytes_in_order(opened: Opened, rng: random.Random) -> None:
    delays = threading.Event()

    def life(client: Client) -> Steps[None]:
        own = random.Random(rng.random())
        while told(client, (yield Wait(own.choice([0.0, 0.001, 60]), reads=own.random() < 0.9))) is not None:
            if own.random() < 0.02:
                delays.wait(own.choice([0.005, 0.05, 0.1]))
            if own.random() < 0.1:
                told(client, (yield Wait(0.002, reads=False)))

    clients = [opened(life) for _ in range(12)]
    expected = bytes(index % 251 for index in range(400))

    def send(client: Client) -> None:
        for index in range(0, 400, 4):
            client.socket.send(expected[index : index + 4])
            if index % 40 == 0:
                client.post()

    writers = [threading.Thread(target=send, args=(client,)) for client in clients]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    for client in clients:
        client.has(expected, mail=10)
    assert all(client.error is None for client in clients)


def test_without_another_thread_to_be_had_streams_wait_for_the_one_that_is_held_up(
    opened: Opened, turns: Turns, go_on: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held_up(client: Client) -> Steps[None]:
        told(client, (yield Wait(60, reads=True)))
        go_on.wait(20)

    first, second, other = opened(held_up), opened(held_up), opened(listening)

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("api.turns._thread", refuse)
    for client in (first, second):
        client.socket.send(b"a")
        client.has(b"a")
    other.socket.send(b"b")
    go_on.set()
    other.has(b"b")
    first.ends()
    second.ends()
    other.socket.send(b"c")
    other.has(b"bc")


def test_a_fault_of_its_own_ends_the_process() -> None:
    script = """
import os, socket
from api.steps import Wait
from api.turns import Turns
from queueing.clock import SystemClock
def life():
    yield Wait(0.01, reads=True)
turns = Turns(SystemClock())
turns._look_at_timers = None
ends = socket.socketpair()
turns.take(life(), ends[0].fileno(), os.pipe()[0])
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 1
    assert "turns_failed" in ended.stdout + ended.stderr
