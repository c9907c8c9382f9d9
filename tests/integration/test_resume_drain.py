"""A process that ends while its clients have not promised to come back: they are served as far as it goes, and may."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from websockets.sync.client import ClientConnection

from ops.redis_server import RedisServer
from queueing.lane import Kind
from sessions.wire import Done, End, Error, Final, Ready, ServerMessage, Start, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all
from tests.support.returning import begin, byte_of, come_back, finals_of, refused, resumed, working
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of

SOUND = speech(6.0)
GRACE_S = 3
PARKED = "hl:{q:main}:parked"
SLOTS = "hl:{q:main}:streams"


@pytest.fixture(scope="module")
def successor(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(redis_server.url, resume_grace_s=GRACE_S) as successor:
        yield successor


@pytest.fixture
def api(successor: LiveApi, redis_client: redis.Redis) -> Iterator[LiveApi]:
    yield successor
    eventually(lambda: not leftovers(redis_client), timeout_s=20, what="clean Redis")
    eventually(lambda: not redis_client.exists(PARKED), what="nothing parked")  # it goes last
    assert successor.metric("hearline_stream_faults_total") == 0


def told_to_go(client: ClientConnection) -> list[ServerMessage]:
    """Everything up to the close of a process that ends."""
    messages = receive_all(client)
    assert client.protocol.close_code == 1012
    assert isinstance(messages[-1], Error)
    assert (messages[-1].code, messages[-1].fatal) == ("shutting_down", True)
    return messages


def held(client: redis.Redis, session: str) -> tuple[bool, bool, bool]:
    """Whether it waits, with its slot, with its description."""
    return (
        client.zscore(PARKED, session) is not None,
        client.zscore(SLOTS, session) is not None,
        bool(client.exists(f"hl:{{s:{session}}}:meta")),
    )


def ends_with_a_final(ending: LiveApi, client: ClientConnection) -> None:
    """The process ends; of the three seconds that were sent there is a final, and it is not called the last."""
    first = finals_of(told_to_go(client))
    assert [(final.last, final.text) for final in first] == [(False, text_of(SOUND[:96_000]))]
    assert ending.end(timeout_s=10) == 0


def goes_on_behind(api: LiveApi, ready: Ready) -> None:
    """The stream goes on at ``api`` behind that final, to its end."""
    again = come_back(api, ready, last_seq=1)
    assert byte_of(resumed(again).received_s) == 96_000
    again.send(SOUND[96_000:])
    again.send(encode(End()))
    messages = receive_all(again)
    assert [(final.seq, final.text) for final in finals_of(messages)] == [(2, text_of(SOUND[96_000:]))]
    assert messages[-1] == Done(audio_s=6.0, finals=2)


def test_what_was_received_is_final_and_the_stream_goes_on_behind_it(
    api: LiveApi, redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    with LiveApi(redis_server.url, resume_grace_s=GRACE_S, drain_s=20) as ending, working(redis_client, ending, api):
        client, ready = begin(ending)
        client.send(SOUND[:96_000])
        eventually(lambda: ending.metric("hearline_audio_received_seconds_total") >= 2.5, what="stored audio")
        ending.process.terminate()
        ends_with_a_final(ending, client)
        assert held(redis_client, ready.session) == (True, True, True)
        goes_on_behind(api, ready)


@pytest.mark.parametrize("said_end", [False, True], ids=["speaking", "end said"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_not_final_in_time_is_told_to_who_comes_back(
    api: LiveApi, redis_server: RedisServer, redis_client: redis.Redis, number: signal.Signals, said_end: bool
) -> None:
    with (
        LiveApi(redis_server.url, resume_grace_s=GRACE_S, drain_s=0.3) as ending,
        QueueWorker(redis_client, hold=frozenset({Kind.FINAL})) as worker,
    ):
        for front in (ending, api):
            eventually(lambda front=front: front.ready, what="readiness")  # type: ignore[misc]
        client, ready = begin(ending)
        client.send(SOUND)
        if said_end:
            client.send(encode(End()))
        eventually(lambda: ending.metric("hearline_audio_received_seconds_total") >= 5.5, what="stored audio")
        ending.process.send_signal(number)
        assert not finals_of(told_to_go(client))
        assert ending.end(timeout_s=10) == 0
        assert held(redis_client, ready.session) == (True, True, True)
        again = come_back(api, ready)
        assert resumed(again).received_s == 6.0
        worker.let_go()
        again.send(encode(End()))
        messages = receive_all(again)
    finals = finals_of(messages)
    assert [final.text for final in finals] == ([text_of(SOUND)] if said_end else [text_of(SOUND), ""])
    assert [final.last for final in finals] == [False, True][2 - len(finals) :]
    assert messages[-1] == Done(audio_s=6.0, finals=len(finals))


def test_who_stays_away_is_reaped_by_another_process(
    api: LiveApi, redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    with LiveApi(redis_server.url, resume_grace_s=GRACE_S) as ending, working(redis_client, ending, api):
        client, ready = begin(ending)
        client.send(SOUND)
        ending.process.terminate()
        told_to_go(client)
        assert ending.end(timeout_s=10) == 0
        eventually(lambda: not leftovers(redis_client), timeout_s=20, what="clean Redis")
        assert refused(come_back(api, ready)) == "resume_refused"


def test_who_wants_nothing_held_has_its_last_final_and_leaves_nothing(
    api: LiveApi, redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    with (
        LiveApi(redis_server.url, resume_grace_s=GRACE_S, drain_s=20) as ending,
        working(redis_client, ending, api),
        ending.connect() as client,
    ):
        client.send(encode(Start(language="en", partials=False, resume=False)))
        client.send(SOUND)
        eventually(lambda: ending.metric("hearline_audio_received_seconds_total") >= 5.5, what="stored audio")
        ending.process.terminate()
        (final,) = [message for message in told_to_go(client) if isinstance(message, Final)]
        assert (final.last, final.text) == (True, text_of(SOUND))
        assert ending.end(timeout_s=10) == 0
        assert not leftovers(redis_client)
        assert not redis_client.exists(PARKED)


@pytest.mark.parametrize("said_end", [False, True], ids=["speaking", "end said"])
def test_what_came_before_the_process_ends_is_heard_out(
    api: LiveApi, redis_server: RedisServer, redis_client: redis.Redis, said_end: bool
) -> None:
    """Though it was not read yet: whoever sent it cannot know that."""
    with LiveApi(redis_server.url, resume_grace_s=GRACE_S, drain_s=20) as ending, working(redis_client, ending, api):
        client, _ready = begin(ending)
        client.send(SOUND[:32_000])
        if said_end:
            client.send(encode(End()))
        ending.process.terminate()
        messages = receive_all(client) if said_end else told_to_go(client)
        assert ending.end(timeout_s=10) == 0
    assert "".join(final.text for final in finals_of(messages)) == text_of(SOUND[:32_000])
    assert isinstance(messages[-1], Done) == said_end


def test_who_promised_to_come_back_has_its_final_where_nobody_will_be(
    api: LiveApi, redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path
) -> None:
    """And where somebody is, as when the service is started again, it goes on behind it."""
    mark = tmp_path / "stopping"
    with (
        LiveApi(redis_server.url, resume_grace_s=GRACE_S, drain_s=20, stop_mark=mark) as ending,
        working(redis_client, ending, api),
    ):
        client, ready = begin(ending, Start(language="en", partials=False, resume=True))
        client.send(SOUND[:96_000])
        eventually(lambda: ending.metric("hearline_audio_received_seconds_total") >= 2.5, what="stored audio")
        mark.touch()
        ending.process.terminate()
        ends_with_a_final(ending, client)
        goes_on_behind(api, ready)
