"""What a stream held is free once it is over. Its process looks for cycles seldom: audio would stay for hours."""

from __future__ import annotations

import gc
import os
import socket
import weakref
from collections.abc import Iterator

import pytest

from api.mailbox import Mailbox
from api.steps import Steps, Wait
from api.stream import Stream
from api.turns import Turns
from queueing.clock import SystemClock
from sessions.limits import SessionLimits
from sessions.session import Session
from sessions.wire import Resume, Start, encode
from tests.support.frames import BINARY, TEXT, close_frame, frame
from tests.unit.test_api_effects import Stage
from tests.unit.test_api_socket import Pair


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_what_a_step_raises_holds_nothing_once_it_was_handled() -> None:
    class Audio:
        pass

    def life(audio: Audio) -> Steps[None]:
        yield Wait(0.01, reads=True)
        raise KeyError(f"a step that has {audio}")

    server, client = socket.socketpair()
    mail = os.pipe()
    audio = Audio()
    held = weakref.ref(audio)
    with pytest.raises(KeyError) as raised:
        Turns(SystemClock()).take(life(audio), server.fileno(), mail[0])
    del audio, raised
    assert held() is None
    for end in (server, client):
        end.close()
    for fd in mail:
        os.close(fd)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        close_frame(1001),
        frame(BINARY, bytes(2_000)),
        frame(TEXT, encode(Start()).encode()),
    ],
    ids=["lost", "left", "violation", "unreachable"],
)
def test_however_a_stream_ends_its_session_is_free(sent: bytes) -> None:
    def refuse(_: Resume) -> Session:
        raise AssertionError

    pair, mailbox = Pair(SystemClock()), Mailbox()
    stage = Stage()
    stage.epoch = 1
    ports = stage.runner._ports
    session = Session("s", "front", SessionLimits(), now=ports.clock.monotonic(), started_ms=0)
    held = weakref.ref(session)
    stream = Stream(session, pair.server, mailbox, ports, refuse, Turns(SystemClock()))
    pair.client.send(sent)
    pair.client.close()
    pair.server.close(*stream.run())
    del stream, session
    assert held() is None
    mailbox.close()
    pair.close()
