"""Both clients lose their connections, come back, and have the text of an undisturbed stream."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import get_args

import pytest
from websockets.sync.server import ServerConnection

from loadgen import async_client, client
from loadgen.client import Sending
from loadgen.connecting import Timeouts
from loadgen.errors import CannotResume, ClientError, ServerFailed
from loadgen.recorder import Recorder
from loadgen.resumption import Resuming
from queueing.clock import SystemClock
from sessions.wire import BYTES_PER_SECOND, Ack, Final, Partial, Ready, Resume, ServerMessage, Start
from tests.support.eventually import eventually
from tests.support.fake_service import refusal_body
from tests.support.resumable_service import How, Loss, front_end, resumable_service, text_of

PATIENT = Timeouts(connect_s=20, ready_s=20, send_s=20, answer_s=20, close_s=5)
QUICK = Resuming(base_s=0.01, cap_s=0.05, extra_s=20)
Play = Callable[..., Recorder]


def by_thread(
    urls: Sequence[str],
    audio: bytes,
    rng: random.Random,
    resuming: Resuming = QUICK,
    frame_bytes: int = 3_200,
    recorder: Recorder | None = None,
) -> Recorder:
    blocks = (audio[at : at + 5_001] for at in range(0, len(audio), 5_001))
    heard: list[ServerMessage] = []
    lost: list[ClientError] = []
    recorder = client.stream(
        urls, blocks,
        clock=SystemClock(), sending=Sending(0, frame_bytes), timeouts=PATIENT, resuming=resuming, rng=rng,
        recorder=recorder,
        on_message=lambda _at, message: heard.append(message), on_lost=lambda _at, failure: lost.append(failure),
    )  # fmt: skip
    assert [message.seq for message in heard if isinstance(message, Partial | Final)] == sorted(
        {message.seq for message in heard if isinstance(message, Partial | Final)}
    )
    assert [message for message in heard if isinstance(message, Final)] == recorder.finals
    assert not any(isinstance(message, Ack) for message in heard)
    assert len(lost) == recorder.resumes == sum(isinstance(each, Ready) and each.resumed for each in heard)
    return recorder


def by_coroutine(
    urls: Sequence[str],
    audio: bytes,
    rng: random.Random,
    resuming: Resuming = QUICK,
    frame_bytes: int = 3_200,
    recorder: Recorder | None = None,
) -> Recorder:
    recorder = recorder or Recorder()
    asyncio.run(
        async_client.stream(
            urls,
            audio,
            Start(),
            clock=SystemClock(),
            sending=Sending(0, frame_bytes),
            timeouts=PATIENT,
            recorder=recorder,
            resuming=resuming,
            rng=rng,
        )
    )
    return recorder


def a_loss(rng: random.Random) -> Loss:
    messages = rng.randrange(1, 40)
    muted = rng.choice((None, rng.randrange(1, messages + 1)))
    # Without a `ready` the client of a resumed stream sends nothing more.
    return Loss(1 if muted == 1 else messages, rng.choice(("reset", "eof", "restart", "later")), muted, rng.random())


both = pytest.mark.parametrize("play", [by_thread, by_coroutine])


def undisturbed(recorder: Recorder, audio: bytes) -> None:
    assert recorder.text == text_of(audio)
    assert recorder.complete
    assert not recorder.faults
    assert recorder.sent_bytes == len(audio)


@both
@pytest.mark.parametrize("how", get_args(How))
def test_a_lost_connection_is_resumed_whatever_way_it_was_lost(play: Play, how: How, rng: random.Random) -> None:
    audio = rng.randbytes(150_000)
    recorder = Recorder()
    with resumable_service(rng, Loss(25, how, kept=0.5)) as (running, service):
        # A close with audio unread becomes a reset, which would destroy a `ready` that is on its way.
        service.on_loss = lambda: eventually(lambda: recorder.session, what="the ready at the client")
        play([running.url], audio, rng, recorder=recorder)
    undisturbed(recorder, audio)
    assert bytes(service.stream.audio) == audio
    assert isinstance(service.openings[0], Start)
    assert service.openings[0].resume
    assert isinstance(service.openings[1], Resume)
    assert recorder.resumes == 1


@both
def test_losses_at_any_place_in_any_number_change_no_sample_and_no_final(play: Play, rng: random.Random) -> None:
    for _ in range(6):
        audio = rng.randbytes(rng.randrange(0, 200_000))
        losses = [a_loss(rng) for _ in range(rng.randrange(1, 7))]
        losses[0] = replace(losses[0], mute_from=None)  # without any `ready` it is another test
        with resumable_service(rng, *losses) as (running, service):
            recorder = play([running.url], audio, rng, frame_bytes=rng.choice((641, 3_200, 4_001)))
        undisturbed(recorder, audio)
        assert bytes(service.stream.audio) == audio, losses


@both
def test_a_stream_that_never_had_a_ready_begins_again(play: Play, rng: random.Random) -> None:
    audio = rng.randbytes(100_000)
    with resumable_service(rng, Loss(3, "reset", mute_from=1), Loss(8, "eof", mute_from=1)) as (running, service):
        recorder = play([running.url], audio, rng)
    undisturbed(recorder, audio)
    assert [type(opening) for opening in service.openings] == [Start, Start, Start]
    assert recorder.resumes == 0


@both
def test_the_end_is_said_again_and_a_lost_end_is_made_up_for(play: Play, rng: random.Random) -> None:
    audio = rng.randbytes(64_000)  # 20 frames and the start; the end is message 22
    with resumable_service(rng, Loss(22, "eof", mute_from=22), Loss(1, "eof")) as (running, service):
        recorder = play([running.url], audio, rng)
    undisturbed(recorder, audio)
    assert recorder.resumes == 2
    assert service.stream.ended


@both
def test_the_stream_goes_on_at_another_front_end_when_the_first_is_gone(play: Play, rng: random.Random) -> None:
    audio = rng.randbytes(150_000)
    with resumable_service(rng, Loss(25, "eof")) as (first, service), front_end(service) as second:
        first.refuse, first.refusals = (503, {"Retry-After": "3600"}, refusal_body(retry_after_s=3_600)), 0
        service.on_loss = lambda: setattr(first, "refusals", None)
        recorder = play([first.url, second.url], audio, rng)
    undisturbed(recorder, audio)
    assert (len(first.seen), len(second.seen)) == (1, 1)


@both
def test_a_refused_resume_is_an_error_that_says_so(play: Play, rng: random.Random) -> None:
    with resumable_service(rng, Loss(25, "eof")) as (running, service):
        service.on_loss = service.streams.clear
        with pytest.raises(ServerFailed) as caught:
            play([running.url], rng.randbytes(150_000), rng)
    assert (caught.value.code, caught.value.close_code) == ("resume_refused", 1008)


@both
def test_a_server_that_does_not_come_back_is_an_error_in_time(play: Play, rng: random.Random) -> None:
    hurried = Resuming(base_s=0.01, cap_s=0.05, extra_s=0.2)
    with resumable_service(rng, Loss(25, "eof"), resume_s=0.2) as (running, service):
        running.refuse, running.refusals = (503, {}, refusal_body(retry_after_s=3_600)), 0
        service.on_loss = lambda: setattr(running, "refusals", None)
        with pytest.raises(CannotResume, match="200 of 200") as caught:
            play([running.url], rng.randbytes(150_000), rng, hurried)
    assert caught.value.attempts > 1


def test_a_source_is_read_on_while_there_is_no_connection_but_never_too_far(rng: random.Random) -> None:
    audio = rng.randbytes(400_000)
    read = 0
    away = threading.Event()

    def source() -> Iterator[bytes]:
        nonlocal read
        for at in range(0, len(audio), 3_200):
            read = at + 3_200
            yield audio[at : at + 3_200]

    def unreachable(_connection: ServerConnection) -> bool:
        # 3 s may be held, and the block that waits for room; it is read to there without any connection.
        held = service.stream.acked + 3 * BYTES_PER_SECOND
        eventually(lambda: read >= held, what="the source being read")
        assert read <= held + 3_200
        away.set()
        return False

    resuming = replace(QUICK, max_held_s=3.0)
    with resumable_service(rng, Loss(25, "eof"), answer_resume=unreachable) as (running, service):
        recorder = client.stream(
            running.url, source(), sending=Sending(0), timeouts=PATIENT, resuming=resuming, rng=rng
        )
    assert away.is_set()
    undisturbed(recorder, audio)


@both
def test_without_resuming_a_lost_connection_is_the_end(play: Play, rng: random.Random) -> None:
    with resumable_service(rng, Loss(5)) as (running, service), pytest.raises(ServerFailed):
        play([running.url], rng.randbytes(64_000), rng, Resuming(enabled=False))
    assert isinstance(service.openings[0], Start)
    assert service.openings[0].resume is False
    assert len(service.openings) == 1
