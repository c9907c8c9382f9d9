"""Redis is killed and comes back from its append-only file between the loss of a connection and the return."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
import redis
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection

from ops.redis_server import RedisServer
from queueing.connect import connect
from sessions.wire import Ack, Done, End, Error, Final, Flush, Ready, ServerMessage, decode_server, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.returning import begin, byte_of, come_back, finals_of, vanish
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of

SOUND = speech(9.0)
CUTS = [0, 64_000, 160_000, len(SOUND)]
"""Where a flush, or the end, cuts the stream; it is lost between the second and the last."""
LOST_AT = 250_000


def quiet_run(api: LiveApi) -> list[tuple[float, float, str]]:
    """What an undisturbed stream says of the same."""
    client, _ready = begin(api)
    for start, end in pairwise(CUTS):
        client.send(SOUND[start:end])
        client.send(encode(Flush() if end < len(SOUND) else End()))
    return said(receive_all(client))


def said(messages: list[ServerMessage]) -> list[tuple[float, float, str]]:
    return [(final.start_s, final.end_s, final.text) for final in finals_of(messages)]


@pytest.mark.parametrize("lost", ["before", "meanwhile", "by the front end"])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same front end", "another"])
def test_everything_acknowledged_is_there_and_the_stream_goes_on(tmp_path: Path, lost: str, elsewhere: bool) -> None:
    """``lost``: the connection, before Redis is killed or while it is away (and the session cannot be parked yet), or
    because the front end does not want to wait for Redis any longer."""
    with (
        RedisServer(data_dir=tmp_path) as server,
        LiveApi(server.url, resume_grace_s=20) as one,
        LiveApi(server.url, resume_grace_s=20) as two,
        connect(server.url) as client,
        QueueWorker(client),
    ):
        for front in (one, two):
            eventually(lambda front=front: front.ready, what="readiness")  # type: ignore[misc]
        expected = quiet_run(one)
        stream, ready = begin(one)
        stream.send(SOUND[: CUTS[1]])
        stream.send(encode(Flush()))
        heard = receive_until(stream, Final)
        stream.send(SOUND[CUTS[1] : CUTS[2]])
        stream.send(encode(Flush()))
        heard += receive_until(stream, Final)
        stream.send(SOUND[CUTS[2] : LOST_AT])
        while not heard[-1:] or not isinstance(heard[-1], Ack) or byte_of(heard[-1].received_s) <= CUTS[2]:
            heard += receive_until(stream, Ack)
        acknowledged = max(byte_of(message.received_s) for message in heard if isinstance(message, Ack))
        if lost == "before":
            vanish(stream)
            eventually(lambda: _parked(client, ready.session), what="a parked session")
        server.kill()
        if lost == "by the front end":
            stream.send(SOUND[LOST_AT:])
            stream.send(encode(End()))  # none of it is stored: the client has all of it still
            last = receive_all(stream, timeout_s=30)[-1]
            assert isinstance(last, Error)
            assert (last.code, last.fatal) == ("unavailable", True)
            stream.close()
        if lost == "meanwhile":
            vanish(stream)
            eventually(lambda: one.events("stream_summary")[1:], what="the end of the connection")
        server.start()
        again, next_ready = back_at_last(two if elsewhere else one, ready, last_seq=2)
        at = byte_of(next_ready.received_s)
        assert acknowledged <= at <= LOST_AT
        again.send(SOUND[at:])
        again.send(encode(End()))
        messages = receive_all(again)
        assert messages[-1] == Done(audio_s=9.0, finals=3)
        assert [final.seq for final in finals_of(heard + messages)] == [1, 2, 3]
        assert said(heard + messages) == expected
        assert said(heard + messages)[2][2] == text_of(SOUND[CUTS[2] :])
        eventually(lambda: not leftovers(client), what="clean Redis")
        eventually(lambda: not client.exists("hl:{q:main}:parked"), what="nothing parked")
        for front in (one, two):
            assert front.metric("hearline_stream_faults_total") == 0
            assert not [line for line in front.log if "Traceback" in line]


def back_at_last(api: LiveApi, ready: Ready, last_seq: int) -> tuple[ClientConnection, Ready]:
    """As a client does: tried again while the front end says that Redis is away."""
    found: list[tuple[ClientConnection, Ready]] = []

    def attempt() -> bool:
        with suppress(InvalidStatus):
            client = come_back(api, ready, last_seq)
            answer = decode_server(client.recv(10))
            assert isinstance(answer, Ready) or (isinstance(answer, Error) and answer.code == "unavailable"), answer
            if isinstance(answer, Ready):
                found.append((client, answer))
        return bool(found)

    eventually(attempt, timeout_s=20, what="a resumed stream")
    assert found[0][1].resumed
    return found[0]


def _parked(client: redis.Redis, session: str) -> bool:
    return client.zscore("hl:{q:main}:parked", session) is not None
