"""A web process stands still while its client goes on at another; when it runs again it is one connection too many.

It still has what the client sent before, unread, and takes the session for its own: nothing of that may count.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.lane import Kind
from sessions.wire import Done, End, Error, Final, Flush, Partial, Start, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.returning import begin, byte_of, come_back, finals_of, refused, resumed, two_fronts, vanish, working
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of
from tests.support.standstill import stop

SOUND = speech(6.0)
GRACE_S = 20
"""Longer than a test waits for a clean Redis: what is left to be reaped is found."""


@pytest.fixture(scope="module")
def fronts(redis_server: RedisServer) -> Iterator[tuple[LiveApi, LiveApi]]:
    with two_fronts(redis_server.url, GRACE_S) as fronts:
        yield fronts


@pytest.fixture
def worker(fronts: tuple[LiveApi, LiveApi], redis_client: redis.Redis) -> Iterator[QueueWorker]:
    """Afterwards nothing may be left: no key, no slot, no thread, no connection, no traceback."""
    for front in fronts:
        eventually(lambda front=front: front.metric("hearline_stream_slots") == 0, what="an empty Redis seen")  # type: ignore[misc]
    mailboxes = [front.mailboxes() for front in fronts]
    with working(redis_client, *fronts) as worker:
        yield worker
        eventually(lambda: not leftovers(redis_client), timeout_s=GRACE_S / 2, what="clean Redis")
        eventually(lambda: not redis_client.exists("hl:{q:main}:parked"), GRACE_S / 2, "nobody to be reaped")
    for front, before in zip(fronts, mailboxes, strict=True):
        eventually(lambda front=front: front.metric("hearline_streams_active") == 0, what="no active stream")  # type: ignore[misc]
        eventually(lambda front=front: not front.client_sockets(), what="closed sockets")  # type: ignore[misc]
        eventually(lambda front=front, before=before: front.mailboxes() == before, what="closed mailboxes")  # type: ignore[misc]
        assert front.metric("hearline_stream_faults_total") == 0
        assert not [line for line in front.log if "Traceback" in line]


@contextmanager
def stopped(front: LiveApi) -> Iterator[None]:
    """The web process stands still; its connections stay open."""
    (web,) = front.web_processes()
    stop(web.pid)
    try:
        yield
    finally:
        os.kill(web.pid, signal.SIGCONT)


def test_who_stood_still_is_told_and_what_it_had_unread_counts_nowhere(
    fronts: tuple[LiveApi, LiveApi], worker: QueueWorker
) -> None:
    client, ready = begin(fronts[0])
    client.send(SOUND[:64_000])
    client.send(encode(Flush()))
    first = receive_until(client, Final)
    with stopped(fronts[0]):
        client.send(SOUND[64_000:96_000])
        client.send(encode(Flush()))
        again = come_back(fronts[1], ready, last_seq=1)
        assert byte_of(resumed(again).received_s) == 64_000, "what nobody has read was not accepted"
        again.send(SOUND[64_000:128_000])
        again.send(encode(Flush()))
        second = receive_until(again, Final)
    assert refused(client) == "taken_over"
    again.send(SOUND[128_000:])
    again.send(encode(End()))
    rest = receive_all(again)
    bounds = [0, 64_000, 128_000, len(SOUND)]
    finals = finals_of(first) + finals_of(second) + finals_of(rest)
    assert [final.seq for final in finals] == [1, 2, 3]
    assert [final.text for final in finals] == [text_of(SOUND[a:b]) for a, b in pairwise(bounds)]
    assert rest[-1] == Done(audio_s=6.0, finals=3)
    decoded = [lease.job for lease in worker.claimed if lease.job.kind is Kind.FINAL]
    assert [(job.start_byte, job.end_byte) for job in decoded] == list(pairwise(bounds)), "each part once"


@pytest.mark.parametrize("gone", [False, True], ids=["connected", "reset"])
@pytest.mark.parametrize("unread", ["nothing", "audio", "end", "many"])
def test_who_stood_still_past_the_end_of_the_stream_leaves_nothing(
    fronts: tuple[LiveApi, LiveApi], worker: QueueWorker, gone: bool, unread: str
) -> None:
    """The session is not in Redis any more: no epoch is there to refuse what the older connection does."""
    client, ready = begin(fronts[0], Start(language="en", partials=True))
    if unread == "many":  # then what it asks for needs no audio that was stored
        client.send(b"")
    else:
        client.send(SOUND[:64_000])
        receive_until(client, Partial)
    with stopped(fronts[0]):
        if unread in ("audio", "many"):
            for at in range(0, len(SOUND), 32_000):
                client.send(SOUND[at : at + 32_000])
                client.send(encode(Flush()))
        if unread == "end":
            client.send(encode(End()))
        again = come_back(fronts[1], ready, last_seq=100)
        at = byte_of(resumed(again).received_s)
        again.send(SOUND[at:])
        again.send(encode(End()))
        messages = receive_all(again)
        assert isinstance(messages[-1], Done)
        assert messages[-1].audio_s == 6.0
        if gone:
            vanish(client)
    if not gone:
        told = receive_all(client)[-1]
        assert isinstance(told, Error)
        # What it hears of first: that another has the session, or that its audio is not in Redis any more.
        assert told.code in (("taken_over", "state_lost") if unread in ("audio", "end", "many") else ("taken_over",))


def test_who_stood_still_does_not_touch_a_session_that_is_parked_elsewhere(
    fronts: tuple[LiveApi, LiveApi], worker: QueueWorker, redis_client: redis.Redis
) -> None:
    client, ready = begin(fronts[0])
    client.send(SOUND[:64_000])
    with stopped(fronts[0]):
        again = come_back(fronts[1], ready)
        next_ready = resumed(again)
        again.send(SOUND[byte_of(next_ready.received_s) : 128_000])
        again.send(encode(Flush()))
        receive_until(again, Final)
        vanish(again)
        eventually(
            lambda: redis_client.zscore("hl:{q:main}:parked", ready.session) is not None, what="a parked session"
        )
    assert refused(client) == "taken_over"
    third = come_back(fronts[1], next_ready, last_seq=1)
    assert byte_of(resumed(third).received_s) == 128_000
    third.send(SOUND[128_000:])
    third.send(encode(End()))
    messages = receive_all(third)
    assert [final.text for final in finals_of(messages)] == [text_of(SOUND[128_000:])]
    assert messages[-1] == Done(audio_s=6.0, finals=2)
