"""What a stream held is free once it is over, for its process looks for old cycles seldom; and so it does."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from api.garbage import ALL_EVERY, MIDDLE, YOUNG, Collecting
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


LOADED = """
import gc
from api.garbage import settle
settle()
before = gc.get_freeze_count()
looked = []
gc.callbacks.append(
    lambda phase, info: phase == "start"
    and looked.append((info["generation"], sum(len(gc.get_objects(n)) for n in range(info["generation"] + 1))))
)
kept = [[] for _ in range(50_000)]
print(before, max(generation for generation, _ in looked), max(objects for _, objects in looked), len(looked))
"""


def test_a_look_goes_through_few_objects_however_many_there_are() -> None:
    command = [sys.executable, "-c", LOADED]
    frozen, eldest, most, looks = map(
        int, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    )
    assert frozen > 1_000
    assert eldest == 1
    assert most <= 2 * YOUNG * (MIDDLE + 2)
    assert looks >= 50_000 // YOUNG - 1


class Ring:
    """A cycle of one."""

    def __init__(self) -> None:
        self.itself = self


def ring() -> weakref.ref[Ring]:
    """A cycle that nobody holds."""
    return weakref.ref(Ring())


def test_cycles_go_when_no_stream_is_left_or_after_a_long_time() -> None:
    collecting, held = Collecting(), ring()
    for _ in range(ALL_EVERY - 1):
        collecting.beat(3)
    assert held() is not None
    collecting.beat(3)
    assert held() is None
    held = ring()
    collecting.beat(1)
    assert held() is not None
    collecting.beat(0)
    assert held() is None
    held = ring()
    collecting.beat(0)
    assert held() is not None, "nobody was there since"
