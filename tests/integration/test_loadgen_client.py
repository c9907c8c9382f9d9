"""The client against a service that behaves, and against one that does not: an answer or a typed error, no hang."""

from __future__ import annotations

import itertools
import random
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from websockets.sync.server import ServerConnection

from loadgen.client import Sending, stream
from loadgen.clips import BYTES_PER_SECOND, ClipError
from loadgen.connecting import Timeouts
from loadgen.errors import CannotConnect, NoAnswer, ProtocolBroken, Refused, ServerFailed
from loadgen.recorder import Recorder
from loadgen.sources import synthetic
from queueing.clock import SystemClock
from sessions.wire import Done, Error, Final, Keepalive, Partial, Ready, ServerMessage, Start
from tests.support.eventually import eventually
from tests.support.fake_service import (
    LIMITS,
    Behaviour,
    FakeService,
    Seen,
    behave,
    fake_service,
    read_start,
    refusal_body,
    send,
)

FAST = Sending(speed=0)
LIMIT_S = 30.0
"""Never reached where a stream ends as it should: on a busy machine any step may stand still for some seconds."""
PATIENT = Timeouts(connect_s=LIMIT_S, ready_s=LIMIT_S, send_s=LIMIT_S, answer_s=LIMIT_S, close_s=LIMIT_S)


def run(service: FakeService, seconds: float = 2.0, **options: object) -> Recorder:
    arguments = {"clock": SystemClock(), "sending": FAST, "timeouts": PATIENT, **options}
    # Plain zeros where making the synthetic sound would take longer than the test.
    audio = iter([bytes(32_000)] * int(seconds)) if seconds > 60 else synthetic(seconds)
    return stream(service.url, audio, Start(), **arguments)  # type: ignore[arg-type]


def failing(behaviour: Behaviour, **timeouts: float) -> Exception:
    """The error of a stream against this behaviour."""
    limits = replace(PATIENT, **timeouts)
    with fake_service(behaviour) as service, pytest.raises((ServerFailed, NoAnswer, ProtocolBroken)) as caught:
        run(service, timeouts=limits)
    return caught.value


def test_a_stream_from_start_to_done() -> None:
    events: list[ServerMessage] = []
    with fake_service() as service:
        recorder = stream(
            service.url, synthetic(3.3), Start(language="en", client_ref="a"), clock=SystemClock(), sending=FAST,
            timeouts=PATIENT, on_message=lambda _at, message: events.append(message),
        )  # fmt: skip
    assert service.seen[0].start == Start(language="en", client_ref="a", resume=True)
    assert service.seen[0].audio == b"".join(synthetic(3.3))
    assert {len(frame) for frame in service.seen[0].frames} == {3_200}
    assert [type(event) for event in events] == [Ready, Partial, Partial, Partial, Final, Done]
    assert recorder.complete
    assert not recorder.faults
    assert (recorder.partials, recorder.text, recorder.close_code) == (3, "105600 bytes", 1000)
    assert recorder.audio_s == pytest.approx(3.3)
    assert recorder.final_latency_s is not None
    assert recorder.final_latency_s >= 0
    assert recorder.timings_ms("decode_ms") == [40]


def test_nothing_to_send_is_a_stream_too() -> None:
    with fake_service() as service:
        recorder = run(service, 0.0)
    assert recorder.complete
    assert service.seen[0].audio == b""


def test_frames_of_odd_sizes_hold_the_same_bytes(rng: random.Random) -> None:
    size = rng.choice((1, 3, 641, 4_001))
    with fake_service() as service:
        recorder = run(service, 0.2, sending=Sending(speed=0, frame_bytes=size))
    assert service.seen[0].audio == b"".join(synthetic(0.2))
    assert recorder.complete


@pytest.mark.parametrize("seconds", [5, 1.5])
def test_a_refusal_is_a_typed_error_with_its_advice(seconds: float) -> None:
    body = refusal_body(retry_after_s=seconds)
    with fake_service(refuse=(503, {"Retry-After": "9", "Content-Type": "application/json"}, body)) as service:
        with pytest.raises(Refused, match="200 of 200 streams") as caught:
            run(service)
        assert (caught.value.status, caught.value.code, caught.value.retry_after_s) == (503, "overloaded", seconds)
        assert not service.seen


def test_a_refusal_without_a_body_uses_the_header() -> None:
    with fake_service(refuse=(503, {"Retry-After": "9"}, b"busy")) as service, pytest.raises(Refused) as caught:
        run(service)
    assert (caught.value.code, caught.value.retry_after_s) == ("refused", 9)


def test_another_service_at_the_address_is_no_refusal() -> None:
    with fake_service(refuse=(404, {}, b"<html>")) as service, pytest.raises(CannotConnect, match="HTTP 404"):
        run(service)


def test_nobody_listening_is_said_with_the_fix() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        service = FakeService(behave, url=f"ws://127.0.0.1:{taken.getsockname()[1]}/v1/stream")
        with pytest.raises(CannotConnect, match=r"refused.*hearline up"):
            run(service)
    service.url = "ws://nowhere.invalid/v1/stream"
    with pytest.raises(CannotConnect):
        run(service)


def test_a_listener_that_never_answers_ends_in_a_timeout() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        service = FakeService(behave, url=f"ws://127.0.0.1:{silent.getsockname()[1]}/v1/stream")
        with pytest.raises(CannotConnect, match="in time"):
            run(service, timeouts=Timeouts(connect_s=0.2))


def test_no_ready_ends_in_a_timeout() -> None:
    error = failing(
        lambda connection, seen: seen.frames.extend(m for m in connection if isinstance(m, bytes)), ready_s=0.3
    )
    assert isinstance(error, NoAnswer)
    assert error.what == "ready"


def test_no_final_ends_in_a_timeout() -> None:
    def forget(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        seen.frames.extend(m for m in connection if isinstance(m, bytes))

    error = failing(forget, answer_s=0.3)
    assert isinstance(error, NoAnswer)
    assert error.what == "the last final"


def test_a_server_that_stops_reading_ends_in_a_timeout_and_frees_the_sender() -> None:
    def deaf(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        service.stopping.wait(20)

    with fake_service(deaf) as service, pytest.raises(NoAnswer, match="taking more audio"):
        run(service, 600.0, timeouts=Timeouts(send_s=0.5, close_s=0.5))
    eventually(lambda: not any(t.name == "sender" for t in threading.enumerate()), what="the sender's end")


def test_a_fatal_error_message_wins_over_the_close_that_follows() -> None:
    def overload(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        send(connection, Error(code="overloaded", message="the queue is full", fatal=True, retry_after_s=7))
        connection.close(1013, "overloaded")

    error = failing(overload)
    assert isinstance(error, ServerFailed)
    assert (error.code, error.close_code, error.retry_after_s) == ("overloaded", 1013, 7)


def test_a_fatal_error_without_a_close_does_not_hang() -> None:
    def half(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        send(connection, Error(code="internal", message="a fault", fatal=True))
        for _message in connection:
            pass

    error = failing(half, close_s=0.3)
    assert isinstance(error, ServerFailed)
    assert (error.code, error.close_code) == ("internal", None)


@pytest.mark.parametrize("code", [1000, 1009, 1011])
def test_a_close_before_done_is_a_failure_with_its_code(code: int) -> None:
    def leave(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        connection.close(code, "no reason")

    error = failing(leave)
    assert isinstance(error, ServerFailed)
    assert (error.code, error.close_code) == ("", code)


def test_a_connection_that_breaks_is_a_failure() -> None:
    def break_off(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        connection.recv()
        connection.socket.shutdown(socket.SHUT_RDWR)

    error = failing(break_off)
    assert isinstance(error, ServerFailed)
    assert error.close_code is None


@pytest.mark.parametrize("text", ['{"type":"final"}', "not json", "[]", b"\x00\x01"])
def test_what_is_not_of_the_protocol_is_named(text: str | bytes) -> None:
    def babble(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        connection.send(text)
        for _message in connection:
            pass

    assert isinstance(failing(babble), ProtocolBroken)


def test_unknown_message_types_are_ignored() -> None:
    def newer(connection: ServerConnection, seen: Seen) -> None:
        connection.send('{"type":"hint","text":"hello from the future"}')
        behave(connection, seen)

    with fake_service(newer) as service:
        assert run(service).complete


def test_a_server_that_takes_audio_slowly_still_gets_all_of_it() -> None:
    def slow(connection: ServerConnection, seen: Seen) -> None:
        service.stopping.wait(0.3)
        behave(connection, seen)

    with fake_service(slow) as service:
        recorder = run(service, 100.0)
    assert recorder.complete
    assert len(service.seen[0].audio) == 100 * BYTES_PER_SECOND


def test_the_audio_limit_stops_the_sender_and_still_ends_with_done() -> None:
    def limited(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        for _ in range(10):
            seen.frames.append(connection.recv())  # type: ignore[arg-type]
        send(connection, Error(code="audio_limit", message="max_audio_s is 0.9", fatal=False))
        send(connection, Final(seq=1, start_s=0, end_s=0.9, text="a word", last=True), Done(audio_s=0.9, finals=1))
        connection.close(1009)

    # Without an end of its own, so that nothing but the limit ends it, however late the client comes to read that.
    endless = itertools.repeat(bytes(3_200))
    with fake_service(limited) as service:
        recorder = stream(
            service.url, endless, Start(), clock=SystemClock(), sending=Sending(speed=20), timeouts=PATIENT
        )
    assert recorder.done is not None
    assert (recorder.close_code, recorder.errors[0].code, recorder.text) == (1009, "audio_limit", "a word")
    assert not recorder.complete, "audio that was sent is in no final"


def test_faults_of_the_server_are_counted() -> None:
    def sloppy(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        while not isinstance(connection.recv(), str):
            pass
        final = Final(seq=2, start_s=0, end_s=1, text="a", last=True)
        send(connection, final, final, Partial(seq=3, start_s=0, end_s=1, text="b"), Done(audio_s=2, finals=1))
        send(connection, Ready(session="again", limits=LIMITS))

    with fake_service(sloppy) as service:
        recorder = run(service)
    assert [fault.split(" ")[0:3] for fault in recorder.faults] == [
        ["seq", "2", "after"], ["seq", "2", "after"], ["a", "final", "after"], ["a", "final", "from"],
        ["a", "partial", "of"], ["a", "partial", "after"], ["done", "counts", "1"], ["a", "ready", "after"],
        ["ready", "twice"],
    ]  # fmt: skip
    assert not recorder.complete


def test_stop_ends_a_source_that_is_blocked() -> None:
    stop = threading.Event()
    blocked = threading.Event()

    def source() -> Iterator[bytes]:
        yield bytes(3_200)
        stop.set()
        blocked.wait(20)
        yield bytes(3_200)

    with fake_service() as service:
        recorder = stream(
            service.url, source(), Start(), clock=SystemClock(), sending=FAST, timeouts=PATIENT, stop=stop
        )
        blocked.set()
    assert recorder.complete
    assert service.seen[0].audio == bytes(3_200), "nothing is sent after end"


def test_a_silent_source_is_covered_by_keepalives() -> None:
    kept = threading.Event()

    def watch(connection: ServerConnection, seen: Seen) -> None:
        read_start(connection, seen)
        assert connection.recv() == bytes(3_200)
        assert connection.recv() == '{"type":"keepalive"}'
        kept.set()
        assert connection.recv() == '{"type":"end"}'
        send(connection, Final(seq=1, start_s=0, end_s=0.1, text="", last=True), Done(audio_s=0.1, finals=1))

    def source() -> Iterator[bytes]:
        yield bytes(3_200)
        assert kept.wait(20)

    with fake_service(watch) as service:
        timeouts = Timeouts(keepalive_s=0.2, close_s=0.2)
        assert stream(service.url, source(), Start(), clock=SystemClock(), sending=FAST, timeouts=timeouts).complete
    assert Keepalive().type == "keepalive"


def test_a_source_that_fails_ends_the_stream_with_its_own_error() -> None:
    def source() -> Iterator[bytes]:
        yield bytes(3_200)
        raise ClipError("a file", "the disk is gone")

    with fake_service() as service:
        with pytest.raises(ClipError, match="the disk is gone"):
            stream(service.url, source(), Start(), clock=SystemClock(), sending=FAST, timeouts=PATIENT)
        eventually(service.seen[0].closed.is_set, what="the close")
    assert not service.seen[0].messages, "no end: what was sent is not the whole"


def test_an_interrupt_closes_the_connection() -> None:
    def interrupt(_at: float, message: ServerMessage) -> None:
        if isinstance(message, Partial):
            raise KeyboardInterrupt

    endless = itertools.cycle(synthetic(1.0))
    with fake_service() as service:
        with pytest.raises(KeyboardInterrupt):
            stream(
                service.url,
                endless,
                Start(),
                clock=SystemClock(),
                sending=Sending(speed=50),
                timeouts=PATIENT,
                on_message=interrupt,
            )
        eventually(service.seen[0].closed.is_set, what="the close")
