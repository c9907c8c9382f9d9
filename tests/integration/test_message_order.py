"""Messages in an order that nobody meant: each answer is defined, and the stream goes on unless it must not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
import redis
from websockets.exceptions import ConnectionClosed

from ops.redis_server import RedisServer
from sessions.wire import Done, End, Error, Final, Flush, Keepalive, Ready, Start, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of

SOUND = speech(1.0)
START, FLUSH, KEEPALIVE, END = (encode(message) for message in (Start(), Flush(), Keepalive(), End()))


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(redis_server.url, max_frame_bytes=2_000_000) as server:
        yield server


@pytest.fixture
def api(server: LiveApi, redis_client: redis.Redis) -> Iterator[LiveApi]:
    """The web process; afterwards nothing of any stream may be left."""
    with QueueWorker(redis_client):
        eventually(lambda: server.ready, what="readiness")
        yield server
    eventually(lambda: not leftovers(redis_client), what="clean Redis")
    assert server.metric("hearline_stream_faults_total") == 0


GOES_ON: dict[str, tuple[list[str | bytes], list[str]]] = {
    "audio before start": ([SOUND], []),
    "start after audio": ([SOUND, START], ["bad_state"]),
    "options after audio": ([SOUND, '{"type":"start","language":"de","words":true}'], ["bad_state"]),
    "start twice": ([START, START, SOUND], ["bad_state"]),
    "start after flush": ([FLUSH, START, SOUND], []),
    "keepalive, then audio": ([KEEPALIVE, SOUND], []),
    "an unknown type": (['{"type":"dance"}', SOUND], ["unknown_type"]),
    "no type": (['{"dance":1}', SOUND], ["bad_message"]),
    "invalid JSON": (['{"type":', SOUND], ["bad_message"]),
    "JSON that is no object": (["[1]", SOUND], ["bad_message"]),
    "a wrong option": (['{"type":"start","language":7}', SOUND], ["bad_message"]),
    "JSON in a binary frame after audio": ([SOUND, b'{"type":"flush"}'], ["bad_message"]),
    "frames without a byte": ([b"", SOUND, b""], []),
}


@pytest.mark.parametrize("name", GOES_ON)
def test_it_is_answered_and_the_stream_goes_on(api: LiveApi, name: str) -> None:
    messages, codes = GOES_ON[name]
    with api.connect() as client:
        for message in messages:
            client.send(message)
        client.send(END)
        heard = receive_all(client)
        assert client.protocol.close_code == 1000
    errors = [message for message in heard if isinstance(message, Error)]
    assert [(error.code, error.fatal) for error in errors] == [(code, False) for code in codes]
    assert sum(isinstance(message, Ready) for message in heard) == 1
    finals = [message for message in heard if isinstance(message, Final)]
    assert "".join(final.text for final in finals) == text_of(SOUND)
    assert finals[-1].words is None, "options after audio change nothing"
    assert heard[-1] == Done(audio_s=1.0, finals=len(finals))


ENDS: dict[str, tuple[list[str | bytes], str, int]] = {
    "JSON in a binary frame instead of audio": ([b'{"type":"start"}'], "not_pcm16", 1003),
    "another format": (['{"type":"start","encoding":"opus"}'], "unsupported_format", 1003),
    "a text of a megabyte": (["x" * 1_000_000], "frame_too_big", 1009),
    "a hundred wrong messages": (["{"] * 101, "too_many_errors", 1008),
}


@pytest.mark.parametrize("name", ENDS)
def test_it_ends_the_stream_with_a_reason_and_the_next_is_fine(api: LiveApi, name: str) -> None:
    messages, code, close = ENDS[name]
    with api.connect() as client:
        with suppress(ConnectionClosed):  # the server need not wait for the rest
            for message in messages:
                client.send(message)
        heard = receive_all(client)
        assert client.protocol.close_code == close
    errors = [message for message in heard if isinstance(message, Error)]
    assert (errors[-1].code, errors[-1].fatal) == (code, True)
    assert errors[-1].message
    with api.connect() as client:
        client.send(SOUND)
        client.send(END)
        assert isinstance(receive_all(client)[-1], Done)


def test_after_end_nothing_counts_and_nothing_hangs(api: LiveApi) -> None:
    with api.connect() as client:
        for message in (START, SOUND, END, SOUND, FLUSH, END):
            client.send(message)
        heard = receive_all(client)
        assert client.protocol.close_code == 1000
    assert [message.text for message in heard if isinstance(message, Final)] == [text_of(SOUND)]
    assert heard[-1] == Done(audio_s=1.0, finals=1)
    assert {message.code for message in heard if isinstance(message, Error)} <= {"bad_state"}
