"""Streams that lose their connection, or their web process, and go on: over real sockets, with real Redis."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.lane import Kind
from sessions.wire import (
    Ack,
    Done,
    End,
    Error,
    Final,
    Flush,
    Ready,
    Resume,
    Start,
    decode_server,
    encode,
)
from tests.support.eventually import eventually
from tests.support.frames import BINARY, CLOSE, TEXT, frame
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.returning import begin, come_back, deaf, finals_of, refused, resumed, two_fronts, vanish, working
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of

SOUND = speech(6.0)
GRACE_S = 3


@pytest.fixture(scope="module")
def fronts(redis_server: RedisServer) -> Iterator[tuple[LiveApi, LiveApi]]:
    with two_fronts(redis_server.url, GRACE_S) as fronts:
        yield fronts


@pytest.fixture
def api(fronts: tuple[LiveApi, LiveApi], redis_client: redis.Redis) -> Iterator[LiveApi]:
    """The first of them; afterwards nothing may be left."""
    yield fronts[0]
    eventually(lambda: not leftovers(redis_client), timeout_s=20, what="clean Redis")
    eventually(lambda: not redis_client.exists("hl:{q:main}:parked"), what="nothing parked")
    for front in fronts:
        assert front.metric("hearline_stream_faults_total") == 0
        assert not [line for line in front.log if "Traceback" in line]


@pytest.fixture
def worker(api: LiveApi, redis_client: redis.Redis, fronts: tuple[LiveApi, LiveApi]) -> Iterator[QueueWorker]:
    with working(redis_client, *fronts) as worker:
        yield worker


@pytest.mark.parametrize("other", [0, 1])
def test_a_lost_connection_costs_no_sample_and_no_final(
    fronts: tuple[LiveApi, LiveApi], worker: QueueWorker, other: int
) -> None:
    client, ready = begin(fronts[0])
    assert ready.resume_s == GRACE_S
    client.send(SOUND[:64_000])
    client.send(encode(Flush()))
    first = receive_until(client, Final)
    client.send(SOUND[64_000:96_002])
    client.send(encode(Flush()))
    receive_until(client, Final)  # and that is lost on its way
    vanish(client)
    again = come_back(fronts[other], ready, last_seq=1)
    next_ready = resumed(again)
    assert next_ready.token not in (None, ready.token)
    assert round(next_ready.received_s * 16_000) * 2 == 96_002
    again.send(SOUND[96_002:])
    again.send(encode(End()))
    rest = receive_all(again)
    assert again.protocol.close_code == 1000
    finals = finals_of(first) + finals_of(rest)
    assert [final.seq for final in finals] == [1, 2, 3]
    bounds = [0, 64_000, 96_002, len(SOUND)]
    assert [final.text for final in finals] == [text_of(SOUND[a:b]) for a, b in pairwise(bounds)]
    assert rest[-1] == Done(audio_s=6.0, finals=3)


def test_what_is_acknowledged_is_not_asked_for_again(api: LiveApi, worker: QueueWorker) -> None:
    client, ready = begin(api)
    for at in range(0, 160_000, 3_200):
        client.send(SOUND[at : at + 3_200])
    ack = receive_until(client, Ack)[-1]
    assert isinstance(ack, Ack)
    assert 0 < ack.received_s <= 5
    vanish(client)
    again = come_back(api, ready)
    assert resumed(again).received_s >= ack.received_s
    again.close()


def test_a_token_is_good_for_one_return_of_its_own_client(api: LiveApi, worker: QueueWorker) -> None:
    client, ready = begin(api)
    client.send(SOUND[:32_000])
    vanish(client)
    assert refused(come_back(api, ready, token="guessed")) == "resume_refused"
    for strange in ("0" * 16, "../x", "a b", "ä" * 60):
        unknown = ready.model_copy(update={"session": strange})
        assert refused(come_back(api, unknown)) == "resume_refused"
    second = come_back(api, ready)
    second_ready = resumed(second)
    vanish(second)
    third = come_back(api, ready)  # as if the answer to the second had been lost
    third_ready = resumed(third)
    vanish(third)
    assert refused(come_back(api, second_ready)) == "resume_refused"
    fourth = come_back(api, third_ready)
    resumed(fourth)
    vanish(fourth)
    assert refused(come_back(api, ready)) == "resume_refused"


def test_of_two_connections_the_newer_wins_and_the_older_is_told(
    fronts: tuple[LiveApi, LiveApi], worker: QueueWorker
) -> None:
    client, ready = begin(fronts[0])
    client.send(SOUND[:32_000])
    for front in fronts:
        newer = come_back(front, ready)
        newer_ready = resumed(newer)
        assert refused(client) == "taken_over"
        client, ready = newer, newer_ready
    client.send(SOUND[round(ready.received_s * 16_000) * 2 :])
    client.send(encode(End()))
    assert receive_all(client)[-1] == Done(audio_s=6.0, finals=1)


def test_an_older_connection_is_told_so_even_if_word_of_the_newer_was_lost(
    fronts: tuple[LiveApi, LiveApi], worker: QueueWorker, redis_client: redis.Redis
) -> None:
    older, ready = begin(fronts[0])
    older.send(SOUND[:32_000])
    redis_client.hset(f"hl:{{s:{ready.session}}}:meta", "front", "one that is not there")  # word of it goes there
    newer = come_back(fronts[1], ready)
    resumed(newer)
    redis_client.client_kill_filter(_type="pubsub")
    assert refused(older) == "taken_over", "its front end asks when it hears again"
    newer.send(encode(End()))
    assert isinstance(receive_all(newer)[-1], Done)


def test_a_final_in_a_workers_hands_is_told_to_the_new_front_end(
    fronts: tuple[LiveApi, LiveApi], api: LiveApi, redis_client: redis.Redis
) -> None:
    with QueueWorker(redis_client, hold=frozenset({Kind.FINAL})) as worker:
        eventually(lambda: fronts[1].ready, what="readiness")
        client, ready = begin(api)
        client.send(SOUND)
        client.send(encode(End()))
        eventually(lambda: redis_client.zcard("hl:{q:main}:leases") == 1, what="a final in the worker's hands")
        vanish(client)
        again = come_back(fronts[1], ready)
        assert resumed(again).received_s == 6.0
        again.send(encode(End()))
        worker.let_go()
        messages = receive_all(again)
    assert [final.text for final in finals_of(messages)] == [text_of(SOUND)]
    assert messages[-1] == Done(audio_s=6.0, finals=1)


def test_an_end_that_was_missed_is_told_again(api: LiveApi, worker: QueueWorker) -> None:
    with deaf(api) as (client, ready):
        client.send(frame(BINARY, SOUND) + frame(TEXT, encode(End()).encode()))
        while client.read_frame()[0] != CLOSE:
            pass
    again = come_back(api, ready)
    assert resumed(again).received_s == 6.0
    messages = receive_all(again)
    assert [final.seq for final in finals_of(messages)] == [1]
    assert messages[-1] == Done(audio_s=6.0, finals=1)
    assert refused(come_back(api, ready)) == "resume_refused", "once it was heard nothing is left"


def test_what_a_failed_stream_had_asked_for_is_decoded_for_nobody_though_its_end_may_be_told_again(
    fronts: tuple[LiveApi, LiveApi], api: LiveApi, redis_client: redis.Redis
) -> None:
    def jobs() -> int:
        return sum(1 for _ in redis_client.scan_iter("hl:{q:main}:lane:*")) + redis_client.zcard("hl:{q:main}:leases")

    with QueueWorker(redis_client, hold=frozenset({Kind.FINAL})) as worker:
        eventually(lambda: api.ready, what="readiness")
        with deaf(api) as (client, ready):
            asked = frame(BINARY, SOUND) + frame(TEXT, encode(Flush()).encode())
            client.send(asked)
            eventually(lambda: redis_client.zcard("hl:{q:main}:leases") == 1, what="a final in the worker's hands")
            client.send(asked)
            eventually(lambda: jobs() == 2, what="a final that waits")
            client.send(frame(BINARY, bytes(2_000_000)))
            eventually(lambda: jobs() == 0, what="no job of a stream that has failed")
            assert redis_client.exists(f"hl:{{s:{ready.session}}}:meta"), "its client may not have heard of it"
        worker.let_go()
    again = come_back(fronts[1], ready)
    assert resumed(again)
    assert [message.code for message in receive_all(again) if isinstance(message, Error)] == ["frame_too_big"]


def test_who_does_not_come_back_is_reaped(api: LiveApi, worker: QueueWorker, redis_client: redis.Redis) -> None:
    client, ready = begin(api)
    client.send(SOUND)
    vanish(client)
    eventually(lambda: redis_client.zscore("hl:{q:main}:parked", ready.session) is not None, what="a parked session")
    eventually(lambda: not leftovers(redis_client), timeout_s=20, what="clean Redis")
    assert refused(come_back(api, ready)) == "resume_refused"


@pytest.mark.parametrize("start", [Start(resume=False), None])
def test_who_leaves_or_does_not_want_to_leaves_nothing(
    api: LiveApi, worker: QueueWorker, redis_client: redis.Redis, start: Start | None
) -> None:
    with api.connect() as client:
        client.send(encode(start or Start()))
        ready = decode_server(client.recv(10))
        assert isinstance(ready, Ready)
        assert (ready.token is None) == (start is not None)
        client.send(SOUND[:32_000])
        if start is not None:
            vanish(client)
    eventually(lambda: not leftovers(redis_client), timeout_s=GRACE_S - 1, what="clean Redis before the grace time")


def test_resume_is_a_first_message(api: LiveApi, worker: QueueWorker) -> None:
    client, ready = begin(api)
    client.send(encode(Resume(session=ready.session, token=ready.token or "", last_seq=0)))
    error = decode_server(client.recv(10))
    assert isinstance(error, Error)
    assert (error.code, error.fatal) == ("bad_state", False)
    client.close()


def test_a_killed_web_process_costs_nothing(
    fronts: tuple[LiveApi, LiveApi], api: LiveApi, worker: QueueWorker, redis_server: RedisServer
) -> None:
    doomed = LiveApi(redis_server.url, resume_grace_s=GRACE_S)
    with doomed:
        eventually(lambda: doomed.ready, what="readiness")
        client, ready = begin(doomed)
        client.send(SOUND[:64_000])
        client.send(encode(Flush()))
        receive_until(client, Final)
        doomed.kill()
    again = come_back(api, ready, last_seq=1)
    assert resumed(again).received_s == 2.0
    again.send(SOUND[64_000:])
    again.send(encode(End()))
    messages = receive_all(again)
    assert [final.text for final in finals_of(messages)] == [text_of(SOUND[64_000:])]
    assert messages[-1] == Done(audio_s=6.0, finals=2)


def test_a_process_killed_before_the_end_was_heard_leaves_nothing_for_long(
    api: LiveApi, worker: QueueWorker, redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    with LiveApi(redis_server.url, resume_grace_s=GRACE_S) as doomed:
        eventually(lambda: doomed.ready, what="readiness")
        with deaf(doomed) as (client, _):
            client.send(frame(BINARY, SOUND) + frame(TEXT, encode(End()).encode()))
            while client.read_frame()[0] != CLOSE:
                pass
            doomed.kill()
    assert redis_client.zcard("hl:{q:main}:parked") == 1


def test_a_process_that_ends_lets_go_at_once_of_who_promised_to_come_back(
    fronts: tuple[LiveApi, LiveApi], api: LiveApi, worker: QueueWorker, redis_server: RedisServer
) -> None:
    with LiveApi(redis_server.url, resume_grace_s=GRACE_S, drain_s=20) as ending:
        eventually(lambda: ending.ready, what="readiness")
        client, ready = begin(ending, Start(language="en", partials=False, resume=True))
        client.send(SOUND[:64_000])
        eventually(lambda: ending.metric("hearline_audio_received_seconds_total") >= 1.5, what="stored audio")
        ending.process.terminate()
        messages = receive_all(client)
        assert client.protocol.close_code == 1012
        assert isinstance(messages[-1], Error)
        assert messages[-1].code == "shutting_down"
        assert not finals_of(messages), "nothing was cut for it"
        again = come_back(api, ready)
        at = round(resumed(again).received_s * 16_000) * 2
        again.send(SOUND[at:])
        again.send(encode(End()))
        messages = receive_all(again)
        assert [final.text for final in finals_of(messages)] == [text_of(SOUND)]
        assert ending.end(timeout_s=10) == 0
