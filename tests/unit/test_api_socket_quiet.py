"""When nothing comes from a client: it is pinged, and given up only where an answer had its time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.socket_types import EndCause, SocketEnded
from queueing.clock import ManualClock, SystemClock
from tests.support.frames import PING, PONG, close_frame, frame
from tests.unit.test_api_socket import LIMITS, Pair


def test_a_quiet_client_is_pinged_and_a_silent_one_given_up() -> None:
    clock = ManualClock()
    pair = Pair(clock)
    assert pair.server.receive(0) == []
    clock.advance(20)
    assert pair.server.receive(60) == []
    assert pair.client.read_frame() == (PING, b"")
    pair.client.send(frame(PONG))
    assert pair.server.receive(5) == []
    clock.advance(20)
    assert pair.server.receive(60) == []
    clock.advance(20)
    with pytest.raises(SocketEnded) as ended:
        pair.server.receive(60)
    assert ended.value.cause is EndCause.DEAD_PEER
    pair.close()


def test_a_client_is_not_given_up_for_a_time_in_which_the_server_was_held_up() -> None:
    clock = ManualClock()
    pair = Pair(clock)
    clock.advance(100)  # nobody looked at the socket: Redis was away
    try:
        assert pair.server.receive(60) == []
    except SocketEnded as ended:
        pytest.fail(f"given up: {ended}")
    assert pair.client.read_frame() == (PING, b"")
    pair.client.send(frame(PONG))
    clock.advance(100)
    assert pair.server.receive(60) == []
    clock.advance(20)
    assert pair.server.receive(60) == []
    assert pair.client.read_frame() == (PING, b"")
    clock.advance(20)
    with pytest.raises(SocketEnded) as silent:
        pair.server.receive(60)
    assert silent.value.cause is EndCause.DEAD_PEER
    pair.close()


@pytest.mark.parametrize("first", ["client", "server"])
@pytest.mark.parametrize(("code", "answer"), [(1008, True), (1000, True), (1001, True), (1011, False), (4000, False)])
def test_a_client_that_gives_its_connection_up_has_not_heard_the_end(first: str, code: int, answer: bool) -> None:
    """As libraries do when no pong came: their close is on its way before ours arrives."""
    pair = Pair(SystemClock())
    pair.client.send(close_frame(code))
    if first == "client":
        assert pair.server.receive(5) == []
    assert pair.server.finish(1008, "slow") is (answer and (first == "server" or code != 1008))
    pair.close()


def test_a_close_that_nobody_answers_is_waited_for_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.socket.CLOSE_TIMEOUT_S", 0.2)
    pair = Pair(SystemClock(), replace(LIMITS, ping_interval_s=0.1))
    asked, receive = 0, pair.server.receive

    def counted(timeout: float) -> list[str | bytes]:
        nonlocal asked
        asked += 1
        return receive(timeout)

    monkeypatch.setattr(pair.server, "receive", counted)
    assert pair.server.finish(1000, "") is False
    assert asked < 10
    pair.close()
