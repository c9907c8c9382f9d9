"""The coroutine client meets the same services as the threaded one, and says the same."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace

import pytest
from websockets.sync.server import ServerConnection

from loadgen import async_client, client
from loadgen.client import Sending
from loadgen.connecting import Timeouts
from loadgen.errors import CannotConnect, ClientError, NoAnswer, ProtocolBroken, Refused, ServerFailed
from loadgen.recorder import Recorder
from loadgen.sources import synthetic
from queueing.clock import SystemClock
from sessions.wire import Done, Error, Final, Start
from tests.support.fake_service import (
    Behaviour,
    FakeService,
    Seen,
    behave,
    fake_service,
    read_start,
    refusal_body,
    send,
)

PATIENT = Timeouts(connect_s=20, ready_s=20, send_s=20, answer_s=20, close_s=2)
FAST = Sending(speed=0)


def sound(seconds: float) -> list[bytes]:
    """Synthetic sound, or plain zeros where making it would take longer than the test."""
    return [bytes(32_000)] * int(seconds) if seconds > 60 else list(synthetic(seconds))


def by_thread(url: str, seconds: float, recorder: Recorder, timeouts: Timeouts = PATIENT) -> None:
    audio = iter(sound(seconds))
    client.stream(url, audio, Start(), clock=SystemClock(), sending=FAST, timeouts=timeouts, recorder=recorder)


def by_coroutine(url: str, seconds: float, recorder: Recorder, timeouts: Timeouts = PATIENT) -> None:
    audio = b"".join(sound(seconds))
    asyncio.run(
        async_client.stream(
            url, audio, Start(), clock=SystemClock(), sending=FAST, timeouts=timeouts, recorder=recorder
        )
    )


Client = Callable[..., None]
both = pytest.mark.parametrize("play", [by_thread, by_coroutine])


def fatal(connection: ServerConnection, seen: Seen) -> None:
    read_start(connection, seen)
    send(connection, Error(code="overloaded", message="full", fatal=True, retry_after_s=7))
    connection.close(1013)


def fatal_without_close(connection: ServerConnection, seen: Seen) -> None:
    read_start(connection, seen)
    send(connection, Error(code="internal", message="a fault", fatal=True))
    for _message in connection:
        pass


def closes(connection: ServerConnection, seen: Seen) -> None:
    read_start(connection, seen)
    connection.close(1011)


def breaks(connection: ServerConnection, seen: Seen) -> None:
    read_start(connection, seen)
    connection.socket.shutdown(socket.SHUT_RDWR)


def never_ready(connection: ServerConnection, seen: Seen) -> None:
    for _message in connection:
        pass


def never_final(connection: ServerConnection, seen: Seen) -> None:
    read_start(connection, seen)
    for _message in connection:
        pass


def babbles(connection: ServerConnection, seen: Seen) -> None:
    read_start(connection, seen)
    connection.send("what?")
    for _message in connection:
        pass


@both
@pytest.mark.parametrize(
    ("behaviour", "expected", "attributes"),
    [
        (fatal, ServerFailed, {"code": "overloaded", "close_code": 1013, "retry_after_s": 7}),
        (fatal_without_close, ServerFailed, {"code": "internal", "close_code": None}),
        (closes, ServerFailed, {"code": "", "close_code": 1011}),
        (breaks, ServerFailed, {"code": "", "close_code": None}),
        (babbles, ProtocolBroken, {}),
    ],
)
def test_misbehaviour_is_the_same_error(
    play: Client, behaviour: Behaviour, expected: type[ClientError], attributes: dict[str, object]
) -> None:
    with fake_service(behaviour) as service, pytest.raises(expected) as caught:
        play(service.url, 1.0, Recorder())
    assert {name: getattr(caught.value, name) for name in attributes} == attributes


@both
@pytest.mark.parametrize(
    ("behaviour", "timeouts", "what"),
    [
        (never_ready, replace(PATIENT, ready_s=0.3), "ready"),
        (never_final, replace(PATIENT, answer_s=0.3), "the last final"),
    ],
)
def test_silence_is_the_same_timeout(play: Client, behaviour: Behaviour, timeouts: Timeouts, what: str) -> None:
    with fake_service(behaviour) as service, pytest.raises(NoAnswer) as caught:
        play(service.url, 1.0, Recorder(), timeouts)
    assert caught.value.what == what


@both
def test_a_server_that_takes_nothing_ends_in_a_timeout(play: Client) -> None:
    def deaf(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        service.stopping.wait(20)

    with fake_service(deaf) as service, pytest.raises(NoAnswer, match="taking more audio"):
        play(service.url, 300.0, Recorder(), replace(PATIENT, send_s=0.5))


@both
def test_refused_and_unreachable(play: Client) -> None:
    with fake_service(refuse=(503, {"Retry-After": "5"}, refusal_body())) as service, pytest.raises(Refused) as caught:
        play(service.url, 1.0, Recorder())
    assert caught.value.retry_after_s == 5
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        silent = FakeService(behave, url=f"ws://127.0.0.1:{taken.getsockname()[1]}/v1/stream")
        with pytest.raises(CannotConnect):
            play(silent.url, 1.0, Recorder())


@both
def test_success_and_the_audio_limit(play: Client) -> None:
    with fake_service() as service:
        recorder = Recorder()
        play(service.url, 3.3, recorder)
    assert (recorder.complete, recorder.partials, recorder.close_code, recorder.faults) == (True, 3, 1000, [])
    assert service.seen[0].audio == b"".join(synthetic(3.3))

    def limited(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        connection.recv()
        send(connection, Error(code="audio_limit", message="max_audio_s is 0.05", fatal=False))
        send(connection, Final(seq=1, start_s=0, end_s=0.05, text="a", last=True), Done(audio_s=0.05, finals=1))
        connection.close(1009)

    with fake_service(limited) as service:
        recorder = Recorder()
        play(service.url, 30.0, recorder)
    assert (recorder.close_code, recorder.text, recorder.complete) == (1009, "a", False)
