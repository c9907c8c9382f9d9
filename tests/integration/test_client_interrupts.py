"""Clients that are told to stop say so to their server: it holds nothing for a stream that nobody comes back for."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.sync.server import ServerConnection

from loadgen import async_client, client
from loadgen.client import Sending
from loadgen.connecting import Timeouts
from loadgen.recorder import Recorder
from queueing.clock import SystemClock
from sessions.wire import BYTES_PER_SECOND, ServerMessage, Start
from tests.support.eventually import eventually
from tests.support.fake_service import FakeService, Seen, behave, fake_service, listen, read_start

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
Leave = Callable[[str, bytes], None]
SIGNALS = [signal.SIGINT, signal.SIGTERM]
NO_HURRY = replace(Timeouts(), close_s=3_600)
"""A client that waited for the server's close as long as it may would outlast the test."""


def start(command: str, *arguments: str, url: str, ignoring: bool = False) -> subprocess.Popen[bytes]:
    """``ignoring``: as a shell starts background jobs, which Ctrl-C does not end."""
    ignore = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); " if ignoring else ""
    code = f"{ignore}from loadgen.{command}_command import {command}; {command}()"
    line = [sys.executable, "-c", code, *arguments, "--json", "--url", url]
    return subprocess.Popen(line, cwd=ROOT, stdout=-1, stderr=-1)


def stop(process: subprocess.Popen[bytes], number: int) -> tuple[bytes, bytes]:
    process.send_signal(number)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert b"Traceback" not in errors
    return out, errors


def told(service: FakeService) -> list[int | None]:
    """The close codes of all streams, when all are closed."""
    for seen in service.seen:
        eventually(seen.closed.is_set, what="the close")
    return [seen.close_code for seen in service.seen]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_stream_that_is_stopped_leaves(number: int) -> None:
    with fake_service(listen) as service:
        process = start("stream", str(DATA / "sample.flac"), url=service.url)
        eventually(lambda: service.seen and service.seen[0].frames, timeout_s=30, what="the first frame")
        out, _errors = stop(process, number)
        assert told(service) == [1001]
    assert json.loads(out.splitlines()[-1])["outcome"] == "interrupted"


@pytest.mark.parametrize("number", SIGNALS)
def test_a_load_that_is_stopped_leaves_with_all_its_streams(number: int) -> None:
    with fake_service(listen) as service:
        settings = ("--speech", str(DATA), "--streams", "8", "--arrivals", "synchronized")
        process = start("load", *settings, url=service.url)
        eventually(
            lambda: sum(bool(seen.frames) for seen in service.seen) == 8, timeout_s=30, what="all streams' first frames"
        )
        out, errors = stop(process, number)
        assert told(service) == [1001] * 8
    assert b"interrupted: " in errors
    fields = json.loads(out)
    assert fields["streams"]["by_outcome"] == {"interrupted": 8}
    assert (fields["interrupted"], fields["finals"]["exactly_once_in_order"]) == (True, None)


@pytest.mark.parametrize("arguments", [("stream", str(DATA / "sample.flac")), ("load", "--speech", str(DATA))])
def test_a_background_job_that_is_terminated_leaves(arguments: tuple[str, ...]) -> None:
    with fake_service(listen) as service:
        process = start(*arguments, url=service.url, ignoring=True)
        eventually(lambda: service.seen and service.seen[0].frames, timeout_s=30, what="the first frame")
        stop(process, signal.SIGTERM)
        assert set(told(service)) == {1001}


def test_an_interrupt_while_texts_are_decoded_alone_is_one() -> None:
    def slow_alone(connection: ServerConnection, seen: Seen) -> None:
        if len(service.seen) <= 2:
            behave(connection, seen)
            return
        listen(connection, seen)

    with fake_service(slow_alone) as service:
        settings = ("--speech", str(DATA), "--streams", "2", "--arrivals", "synchronized", "--speed", "0", "--alone")
        process = start("load", *settings, url=service.url)
        eventually(lambda: len(service.seen) > 2 and service.seen[2].frames, timeout_s=30, what="a stream alone")
        out, _errors = stop(process, signal.SIGINT)
        assert told(service)[2] == 1001
    fields = json.loads(out)
    assert (fields["streams"]["done"], fields["finals"]["exactly_once_in_order"]) == (2, True)


def leave_by_thread(url: str, audio: bytes) -> None:
    """Ctrl-C while a message is shown."""

    def interrupt(_at: float, _message: ServerMessage) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.stream(url, [audio], Start(), sending=Sending(0), timeouts=NO_HURRY, on_message=interrupt)


def leave_by_coroutine(url: str, audio: bytes) -> None:
    async def play() -> None:
        recorder = Recorder()
        streaming = asyncio.create_task(
            async_client.stream(
                url, audio, Start(), clock=SystemClock(), sending=Sending(0), timeouts=NO_HURRY, recorder=recorder
            )
        )
        await asyncio.to_thread(eventually, lambda: recorder.session, what="the session")
        streaming.cancel()
        await asyncio.wait({streaming}, timeout=30)
        assert streaming.cancelled()

    asyncio.run(play())


both = pytest.mark.parametrize("leave", [leave_by_thread, leave_by_coroutine])


@both
@pytest.mark.parametrize("audio_s", [1, 300], ids=["close unanswered", "send stuck"])
def test_leaving_does_not_wait_for_a_server_that_takes_nothing(leave: Leave, audio_s: int) -> None:
    overdue: list[Seen] = []

    def deaf(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        if not service.stopping.wait(20):
            overdue.append(seen)

    with fake_service(deaf) as service:
        leave(service.url, bytes(audio_s * BYTES_PER_SECOND))
        assert not overdue


@both
def test_a_client_that_is_stopped_leaves_for_good(leave: Leave) -> None:
    with fake_service(listen) as service:
        leave(service.url, bytes(60 * BYTES_PER_SECOND))
        assert told(service) == [1001]
