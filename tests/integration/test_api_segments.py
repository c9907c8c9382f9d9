"""Real speech through a real web process with its default settings: segments, back-pressure, an unlimited stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.lane import Kind
from sessions.decodes import MIN_QUEUED_FINALS
from sessions.limits import MAX_WAITING_AUDIO_S
from sessions.wire import Done, End, Error, Final, Partial, Ready, Start, Status, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, heard_within, leftovers, receive_all, receive_until
from tests.support.recordings import recording
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import text_of

SENTENCES = 7


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(redis_server.url, endpoint_ms=800, idle_timeout_s=2) as server:
        yield server


@pytest.fixture
def api(server: LiveApi, redis_client: redis.Redis) -> Iterator[LiveApi]:
    """The web process; afterwards nothing of any stream may be left."""
    yield server
    eventually(lambda: not leftovers(redis_client), what="clean Redis")
    eventually(lambda: server.metric("hearline_streams_active") == 0, what="no active stream")
    assert server.metric("hearline_stream_faults_total") == 0


def audio_of(final: Final, sent: bytes) -> bytes:
    """What was decoded for a final."""
    if final.speech_start_s is None or final.speech_end_s is None:
        return b""
    return sent[round(final.speech_start_s * 16_000) * 2 : round(final.speech_end_s * 16_000) * 2]


@pytest.mark.parametrize("size", [641, 3_200, 65_536, 1_000_000])
def test_sentences_become_finals_however_the_audio_is_cut(api: LiveApi, redis_client: redis.Redis, size: int) -> None:
    audio = recording("pauses")
    with QueueWorker(redis_client) as worker:
        eventually(lambda: api.ready, what="readiness")
        with api.connect() as client:
            client.send(encode(Start()))
            for start in range(0, len(audio), size):
                client.send(audio[start : start + size])
            client.send(encode(End()))
            messages = receive_all(client)
            assert client.protocol.close_code == 1000
    assert isinstance(messages[0], Ready)
    assert (messages[0].limits.endpoint_ms, messages[0].limits.max_audio_s) == (800, None)
    finals = [message for message in messages if isinstance(message, Final)]
    assert len(finals) == SENTENCES
    assert [final.text for final in finals] == [text_of(audio_of(final, audio)) for final in finals]
    assert [final.start_s for final in finals] == [0.0, *(final.end_s for final in finals[:-1])]
    assert messages[-1] == Done(audio_s=round(len(audio) / 32_000, 4), finals=SENTENCES)
    decoded = [lease.job for lease in worker.claimed if lease.job.kind is Kind.FINAL]
    assert all(job.speech_s is not None and 0 < job.speech_s <= job.audio_s for job in decoded)


def test_a_final_comes_while_the_client_goes_on_sending_silence(api: LiveApi, redis_client: redis.Redis) -> None:
    audio = recording("pauses")[: 5 * 32_000] + bytes(3 * 32_000)
    with QueueWorker(redis_client) as worker:
        eventually(lambda: api.ready, what="readiness")
        with api.connect() as client:
            for start in range(0, len(audio), 3_200):
                client.send(audio[start : start + 3_200])
            for _ in range(2):
                final = receive_until(client, Final)[-1]
                assert isinstance(final, Final)
                assert final.text
                assert not final.last
            claims = len(worker.claimed)
            for _ in range(20):
                client.send(bytes(3_200))
            client.send(encode(End()))
            rest = receive_all(client)
    assert [(message.text, message.last) for message in rest if isinstance(message, Final)] == [("", True)]
    assert not [message for message in rest if isinstance(message, Partial)]
    assert len(worker.claimed) == claims, "silence makes no job"


def test_a_client_far_ahead_of_its_finals_is_held_back_and_loses_nothing(
    api: LiveApi, redis_client: redis.Redis
) -> None:
    """Longer than a client may be idle, too: it is the server who does not read."""
    audio = recording("pauses") * 5

    def send() -> None:
        for start in range(0, len(audio), 64_000):
            client.send(audio[start : start + 64_000])
        client.send(encode(End()))

    with ExitStack() as stack:
        worker = stack.enter_context(QueueWorker(redis_client, hold=frozenset({Kind.FINAL})))
        eventually(lambda: api.ready, what="readiness")
        client = stack.enter_context(api.connect())
        client.send(encode(Start(language="en", partials=False)))
        receive_until(client, Ready)  # this client takes nothing in while its own sending is held back
        sender = threading.Thread(target=send)
        sender.start()

        def due() -> int:
            return sum(redis_client.zcard(key) for key in redis_client.keys("hl:{q:main}:lane:final:*")) + len(
                worker.claimed
            )

        eventually(lambda: due() == MIN_QUEUED_FINALS, what="as many finals as may be in the queue")
        assert {type(message) for message in heard_within(client, 2.5)} == {Status}, "that it lags is all it hears"
        assert due() == MIN_QUEUED_FINALS
        (buffer,) = redis_client.keys("hl:{s:*}:audio")
        assert redis_client.strlen(buffer) <= (MAX_WAITING_AUDIO_S + 5) * 32_000
        worker.let_go()
        messages = receive_all(client)
        sender.join(10)
        assert client.protocol.close_code == 1000
    assert not [message for message in messages if isinstance(message, Error)]
    finals = [message for message in messages if isinstance(message, Final)]
    assert len(finals) > 4 * SENTENCES, "where two recordings meet there is no pause"
    jobs = sorted((lease.job for lease in worker.claimed), key=lambda job: job.segment)
    texts = [text_of(audio[job.start_byte : job.end_byte]) for job in jobs]
    assert [final.text for final in finals if final.text] == texts
    assert messages[-1] == Done(audio_s=round(len(audio) / 32_000, 4), finals=len(finals))
