"""When a stream reads again in a process with many."""

from __future__ import annotations

import socket
import threading

import pytest

from api.gathering import LONGEST_PAUSE_S, MUCH_BYTES, READS_PER_S, Gathering, pause_s
from api.socket_types import SocketEnded
from queueing.clock import SystemClock
from tests.support.frames import BINARY, TEXT, frame
from tests.unit.test_api_socket import Pair


def test_few_streams_are_read_at_once_and_many_make_a_bounded_number_of_reads() -> None:
    assert [pause_s(streams) for streams in (0, 1, 7)] == [0, 0, 0]
    for streams in (8, 20, 50, 75):
        assert streams / pause_s(streams) == pytest.approx(READS_PER_S)
    assert pause_s(300) == pause_s(2_000) == LONGEST_PAUSE_S


def reads(gap_s: float, size: int, pause: float, count: int = 20) -> list[float]:
    """When a stream reads whose client sends ``size`` bytes every ``gap_s`` seconds."""
    gathering = Gathering(lambda: pause)
    at: list[float] = []
    now = sent = 100.0
    while len(at) < count:
        now += gathering.left_s(now)
        if sent > now:  # nothing is there yet
            now = sent
        arrived = 1 + int((now - sent + 1e-9) / gap_s)
        sent += arrived * gap_s
        at.append(now)
        gathering.read(now, arrived * size)
    return at


@pytest.mark.parametrize(("gap_s", "expected_s"), [(0.02, 0.2), (0.1, 0.2), (0.25, 0.25), (1.0, 1.0)])
def test_frames_of_any_length_are_gathered_up_to_the_pause(gap_s: float, expected_s: float) -> None:
    at = reads(gap_s, 640, 0.2)
    assert (at[-1] - at[1]) / (len(at) - 2) == pytest.approx(expected_s, abs=gap_s / 10)


def test_a_client_ahead_of_real_time_is_not_slowed_down_by_pauses() -> None:
    gathering = Gathering(lambda: 0.2)
    gathering.read(100.0, 640)
    gathering.read(100.0, MUCH_BYTES)
    assert gathering.left_s(100.0) == 0
    gathering.read(100.0, MUCH_BYTES - 1)
    assert gathering.left_s(100.0) == pytest.approx(0.2)


def test_without_a_pause_every_read_comes_at_once() -> None:
    assert reads(0.02, 640, 0.0)[-1] == pytest.approx(100.0 + 19 * 0.02)


def test_what_comes_in_a_pause_is_read_together_and_mail_is_not_held_up() -> None:
    clock = SystemClock()
    pair = Pair(clock, gathering=Gathering(lambda: 0.3))
    try:
        pair.client.send(frame(BINARY, b"a"))
        assert pair.server.receive(5) == [b"a"]
        pair.client.send(frame(BINARY, b"b"))
        assert pair.server.receive(5) == [b"b"]  # two reads close to each other: now it pauses
        begin = clock.monotonic()
        pair.client.send(frame(BINARY, b"c") + frame(TEXT, b"end"))
        waker = threading.Timer(0.02, pair.wake)
        waker.start()
        assert pair.server.receive(5) == []
        assert clock.monotonic() - begin < 0.25, "mail waited for the pause"
        waker.join()
        pair.forget_wakes()
        assert pair.server.receive(5) == [b"c", "end"]
        assert clock.monotonic() - begin >= 0.2, "the pause was not kept"
    finally:
        pair.close()


def test_a_reset_is_noticed_in_a_pause() -> None:
    pair = Pair(SystemClock(), gathering=Gathering(lambda: 30.0))
    try:
        for data in (b"a", b"b"):
            pair.client.send(frame(BINARY, data))
            assert pair.server.receive(5) == [data]
        pair.client.sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(SocketEnded):
            pair.server.receive(20)
    finally:
        pair.close()
