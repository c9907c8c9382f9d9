"""Whatever a stream loses on its way, real speech is cut as if it had lost nothing."""

from __future__ import annotations

import random
from itertools import count

import numpy as np
import pytest

from queueing.job import EnqueueStatus, NewJob
from queueing.lane import Kind
from sessions.anchor import Anchor
from sessions.endpointing import ANCHOR_S, BYTES_PER_S
from sessions.limits import SessionLimits
from sessions.voice import SETTLING_FRAMES, Loudness
from sessions.wire import End, Flush, Keepalive
from tests.support.recordings import recording
from tests.support.resuming import Resuming
from tests.support.session_driver import delivery

LIMITS = SessionLimits(idle_timeout_s=1e6, inference_timeout_s=1e6)
PAUSES = recording("pauses")


def noisy(rng: random.Random, level: int) -> bytes:
    """Sentences, then long silence, then sentences, all in noise."""
    speech = np.frombuffer(PAUSES[: 12 * BYTES_PER_S] + bytes(11 * BYTES_PER_S) + PAUSES, "<i2").astype(np.int32)
    noise = np.array([round(rng.gauss(0, level)) for _ in range(16_000)])
    return (speech + np.resize(noise, len(speech))).clip(-32_768, 32_767).astype("<i2").tobytes()


def talk(
    sound: bytes, endpoint_s: float | None, flushes: set[int], losses: set[int]
) -> tuple[list[tuple[int, ...]], Resuming]:
    """Send it in real time; the ranges that were decoded. ``flushes``: behind these bytes; ``losses``: of the
    connection, after so many messages."""
    stream = Resuming(LIMITS, sound, endpoint_s=endpoint_s)
    ranges: dict[int, tuple[int, ...]] = {}
    events = count(1)
    answers = []
    flushed: set[int] = set()

    def enqueue(job: NewJob) -> EnqueueStatus:
        if job.kind is Kind.FINAL:
            part = job.start_byte, job.end_byte
            assert ranges.setdefault(job.segment, part) == part
            answers.append(delivery(job, event=next(events)))
        return EnqueueStatus.QUEUED

    stream.enqueue = enqueue
    stream.events = lambda _: list(answers)
    stream.text(Keepalive())
    stream.receive()
    for number in count():
        if stream.client.position >= len(sound):
            break
        stream.now += 0.1
        stream.speak(3_200)
        if stream.client.position in flushes - flushed:
            flushed.add(stream.client.position)
            stream.text(Flush())
        if number in losses:
            stream.run(stream.session.on_disconnect(stream.now))
            stream.resume()
            stream.run(stream.session.on_resumed(stream.now))
        for answer in answers:
            stream.run(stream.session.on_delivery(stream.now, answer))
        stream.receive()
    stream.client.said_end = True
    stream.text(End())
    for answer in answers:
        stream.run(stream.session.on_delivery(stream.now, answer))
    stream.receive()
    assert stream.client.done
    return [ranges[number] for number in range(len(ranges))], stream


@pytest.mark.parametrize("endpoint_s", [0.3, 0.8, None])
@pytest.mark.parametrize("level", [0, 100])
def test_what_is_decoded_is_the_same_however_often_the_connection_is_lost(
    endpoint_s: float | None, level: int, rng: random.Random
) -> None:
    sound = noisy(rng, level)
    flushes = set(rng.sample(range(3_200, len(sound), 3_200), 3))
    quiet, stream = talk(sound, endpoint_s, flushes, set())
    assert len(quiet) >= 4
    lost, stream = talk(sound, endpoint_s, flushes, set(rng.sample(range(len(sound) // 3_200), 40)))
    assert stream.connections == 41
    assert lost == quiet


def test_little_of_a_silence_is_kept_and_heard_again(rng: random.Random) -> None:
    sound = PAUSES[: 9 * BYTES_PER_S] + bytes(60 * BYTES_PER_S)
    stream = Resuming(LIMITS, sound, endpoint_s=0.8)
    stream.text(Keepalive())
    while stream.client.position < len(sound):
        stream.speak(3_200)
    assert stream.store is not None
    anchor = Anchor.decode(stream.store.fields["anchor"])
    assert len(sound) - anchor.at <= (ANCHOR_S + 0.1) * BYTES_PER_S
    assert anchor.at - anchor.hear_from == SETTLING_FRAMES * 512
    assert stream.session.buffered_bytes <= (ANCHOR_S + 0.1) * BYTES_PER_S


LOUD = "[1.0,0,0,0]"


@pytest.mark.parametrize(
    "text", ["", "null", "[]", f"[1,0,0,null,{LOUD}]", f"[0,0,0,[1],{LOUD}]", "[0,0,0,null,[1]]", "[0,0,0,null,3]"]
)
def test_what_is_no_anchor_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Anchor.decode(text)


def test_an_anchor_reads_back_as_it_was_written() -> None:
    anchor = Anchor(512, 16_384, 2, (700, 31, 4), Loudness(0.1 + 0.2, (1 / 3, 2e-17, 1e20)))
    assert Anchor.decode(anchor.encode()) == anchor
