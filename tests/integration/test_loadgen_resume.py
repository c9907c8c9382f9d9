"""Both clients lose their connections, come back, and have the text of an undisturbed stream."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from loadgen import async_client, client
from loadgen.client import Sending
from loadgen.connecting import Timeouts
from loadgen.errors import ClientError, ServerFailed
from loadgen.recorder import Recorder
from loadgen.resumption import Resuming
from queueing.clock import SystemClock
from sessions.wire import Ack, Final, Partial, Ready, Resume, ServerMessage, Start
from tests.support.resumable_service import How, Loss, resumable_service, text_of

PATIENT = Timeouts(connect_s=20, ready_s=20, send_s=20, answer_s=20, close_s=5)
QUICK = Resuming(base_s=0.01, cap_s=0.05, extra_s=20)
Play = Callable[..., Recorder]


def by_thread(
    urls: Sequence[str], audio: bytes, rng: random.Random, resuming: Resuming = QUICK, frame_bytes: int = 3_200
) -> Recorder:
    blocks = (audio[at : at + 5_001] for at in range(0, len(audio), 5_001))
    heard: list[ServerMessage] = []
    lost: list[ClientError] = []
    recorder = client.stream(
        urls, blocks,
        clock=SystemClock(), sending=Sending(0, frame_bytes), timeouts=PATIENT, resuming=resuming, rng=rng,
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
    urls: Sequence[str], audio: bytes, rng: random.Random, resuming: Resuming = QUICK, frame_bytes: int = 3_200
) -> Recorder:
    recorder = Recorder()
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
@pytest.mark.parametrize("how", ["reset", "eof", "restart", "later", "shutting_down"])
def test_a_lost_connection_is_resumed_whatever_way_it_was_lost(play: Play, how: How, rng: random.Random) -> None:
    audio = rng.randbytes(150_000)
    with resumable_service(rng, Loss(25, how, kept=0.5)) as (running, service):
        recorder = play([running.url], audio, rng)
    undisturbed(recorder, audio)
    assert recorder.resumes == 1
    assert bytes(service.stream.audio) == audio
    assert isinstance(service.openings[0], Start)
    assert service.openings[0].resume
    assert isinstance(service.openings[1], Resume)


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
    with resumable_service(rng, Loss(22, "reset", mute_from=22), Loss(1, "eof")) as (running, service):
        recorder = play([running.url], audio, rng)
    undisturbed(recorder, audio)
    assert recorder.resumes == 2
    assert service.stream.ended


@both
def test_without_resuming_a_lost_connection_is_the_end(play: Play, rng: random.Random) -> None:
    with resumable_service(rng, Loss(5)) as (running, service), pytest.raises(ServerFailed):
        play([running.url], rng.randbytes(64_000), rng, Resuming(enabled=False))
    assert isinstance(service.openings[0], Start)
    assert service.openings[0].resume is False
    assert len(service.openings) == 1
