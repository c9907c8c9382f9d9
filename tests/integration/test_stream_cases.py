"""What went wrong elsewhere, with real speech through a real web process: tails, pauses, quiet, an hour."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import psutil
import pytest
import redis
from websockets.sync.client import ClientConnection

from ops.redis_server import RedisServer
from queueing.job import LeasedJob
from queueing.lane import Kind
from sessions.limits import MAX_SEGMENT_S, MAX_WAITING_AUDIO_S
from sessions.wire import (
    Done,
    End,
    Error,
    Final,
    Flush,
    Keepalive,
    Partial,
    ServerMessage,
    Start,
    decode_server,
    encode,
)
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, heard_within, leftovers, receive_all, receive_until
from tests.support.recordings import recording
from tests.support.returning import finals_of
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import text_of

SECOND = 32_000
BUSY = 2


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(redis_server.url, endpoint_ms=800) as server:
        yield server


@pytest.fixture
def api(server: LiveApi, redis_client: redis.Redis) -> Iterator[LiveApi]:
    """The web process; afterwards nothing of any stream may be left."""
    yield server
    eventually(lambda: server.metric("hearline_streams_active") == 0, what="no active stream")
    eventually(lambda: not leftovers(redis_client), what="clean Redis")
    assert server.metric("hearline_stream_faults_total") == 0


def ending_with_speech(seconds: float, tail_s: float = 0.1) -> bytes:
    """The last ``seconds`` of real speech; the last word ends ``tail_s`` before the end."""
    samples = np.frombuffer(recording("pauses") * 2, "<i2")
    end = int(np.flatnonzero(np.abs(samples) > 300)[-1]) + 1
    spoken = samples[end - round((seconds - tail_s) * 16_000) : end].tobytes()
    return spoken + bytes(round(seconds * SECOND) - len(spoken))


def pour(client: ClientConnection, audio: bytes, size: int = 64_000) -> None:
    for start in range(0, len(audio), size):
        client.send(audio[start : start + size])


def jobs_of(worker: QueueWorker, kind: Kind = Kind.FINAL) -> list[LeasedJob]:
    return [lease for lease in worker.claimed if lease.job.kind is kind]


@pytest.mark.parametrize("seconds", [0.3, 0.9, 1.1, 29.9, 30.1, 59.9])
def test_the_tail_is_in_a_final_also_while_all_workers_are_busy(
    api: LiveApi, redis_client: redis.Redis, seconds: float
) -> None:
    audio = ending_with_speech(seconds)
    with ExitStack() as stack:
        workers = [stack.enter_context(QueueWorker(redis_client, hold=frozenset(Kind))) for _ in range(BUSY)]
        eventually(lambda: api.ready, what="readiness")
        occupied = [stack.enter_context(api.connect()) for _ in workers]
        for other in occupied:
            other.send(encode(Start(partials=False, language="en")))
            pour(other, ending_with_speech(2.0))
            other.send(encode(End()))
        eventually(lambda: all(worker.claimed for worker in workers), what="every worker at work")
        client = stack.enter_context(api.connect())
        client.send(encode(Start(language="en")))
        pour(client, audio)
        client.send(encode(End()))
        eventually(lambda: redis_client.keys("hl:{q:main}:lane:final:*"), what="a final that waits")
        for worker in workers:
            worker.let_go()
        messages = receive_all(client)
        for other in occupied:
            assert isinstance(receive_all(other)[-1], Done)
    finals = finals_of(messages)
    assert messages[-1] == Done(audio_s=round(seconds, 4), finals=len(finals))
    assert [final.start_s for final in finals] == [0.0, *(final.end_s for final in finals[:-1])]
    assert finals[-1].end_s == pytest.approx(seconds)
    assert finals[-1].last
    *_, spoken = (final for final in finals if final.text)
    assert spoken.speech_start_s is not None
    assert spoken.speech_end_s is not None
    assert spoken.speech_end_s >= seconds - 0.1 - 0.016, "the last word, to the frame that it ends in"
    heard = audio[round(spoken.speech_start_s * 16_000) * 2 : round(spoken.speech_end_s * 16_000) * 2]
    assert spoken.text == text_of(heard)


def test_after_a_long_silence_speech_is_as_prompt_and_its_times_are_right(
    api: LiveApi, redis_client: redis.Redis
) -> None:
    """5 s of speech, 6 min of silence, 5 s of speech, faster than real time; the same messages are waited for."""
    speech, silence = ending_with_speech(5.0, 0.0), bytes(360 * SECOND)
    with QueueWorker(redis_client) as worker:
        eventually(lambda: api.ready, what="readiness")
        with api.connect() as client:
            client.send(encode(Start(language="en")))
            pour(client, speech + bytes(SECOND))
            first = receive_until(client, Final)[-1]
            pour(client, silence)
            eventually(lambda: not any(held_bytes(redis_client)), what="nothing of the silence held")
            jobs = len(worker.claimed)
            pour(client, speech + bytes(SECOND))
            again = receive_until(client, Final)
            client.send(encode(End()))
            rest = receive_all(client)
    second = again[-1]
    assert isinstance(first, Final)
    assert isinstance(second, Final)
    assert first.speech_start_s is not None
    assert second.speech_start_s is not None
    assert second.speech_end_s is not None
    assert first.speech_end_s is not None
    shift = 5.0 + 1.0 + 360.0
    assert second.speech_start_s == pytest.approx(first.speech_start_s + shift, abs=0.35), "but for the margin before"
    assert second.speech_end_s == pytest.approx(first.speech_end_s + shift, abs=0.05)
    assert (first.end_s, second.start_s) == (first.end_s, first.end_s), "the silence belongs to what follows it"
    assert jobs <= 8, "the silence made no job"
    lengths = [lease.job.audio_s for lease in jobs_of(worker)]
    assert lengths[1] == pytest.approx(lengths[0], abs=0.4), "as short as the first: as prompt as the first"
    assert rest[-1] == Done(audio_s=372.0, finals=3)


def held_bytes(client: redis.Redis) -> list[int]:
    """Bytes of audio that sessions hold, beyond the second that a word to come may begin in."""
    return [length for key in client.keys("hl:{s:*}:audio") if (length := client.strlen(key)) > 2 * SECOND]


@pytest.mark.parametrize("quiet", ["nothing at all", "keepalives", "silence"])
def test_nothing_new_causes_no_job_and_no_message(api: LiveApi, redis_client: redis.Redis, quiet: str) -> None:
    with QueueWorker(redis_client) as worker, api.connect() as client:
        eventually(lambda: api.ready, what="readiness")
        pour(client, ending_with_speech(3.0))
        client.send(encode(Flush()))
        assert isinstance(receive_until(client, Final)[-1], Final)
        jobs, counts = len(worker.claimed), redis_client.hgetall("hl:{q:main}:counts")
        for _ in range(20):
            if quiet == "keepalives":
                client.send(encode(Keepalive()))
            elif quiet == "silence":
                client.send(bytes(SECOND // 4))
            assert heard_within(client, 0.1) == []
        client.send(encode(Flush()))
        assert heard_within(client, 0.3) == []
        assert (len(worker.claimed), redis_client.hgetall("hl:{q:main}:counts")) == (jobs, counts)
        client.send(encode(End()))
        *_, last, done = receive_all(client)
    assert isinstance(last, Final)
    assert (last.text, last.last) == ("", True)
    assert isinstance(done, Done)
    assert len(worker.claimed) == jobs


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_hour_is_as_flat_as_its_first_minutes(api: LiveApi, redis_client: redis.Redis) -> None:
    """As fast as the service takes it. The web process, Redis and each job are as small at the end as early on, and
    nothing of minute 0 is lost."""
    lesson, minutes = recording("pauses") * 16, 60  # ten minutes and a little
    lesson = lesson[: 600 * SECOND]
    (web,) = api.web_processes()
    sizes: list[tuple[int, int]] = []
    received: list[ServerMessage] = []

    def listen(client: ClientConnection) -> None:
        while not received or not isinstance(received[-1], Done):
            received.append(decode_server(client.recv(120)))

    with QueueWorker(redis_client) as worker, api.connect() as client:
        eventually(lambda: api.ready, what="readiness")
        client.send(encode(Start(language="en")))
        reader = threading.Thread(target=listen, args=(client,))
        reader.start()
        for minute in range(minutes):
            pour(client, lesson[minute % 10 * 60 * SECOND : (minute % 10 + 1) * 60 * SECOND])
            held = sum(redis_client.strlen(key) for key in redis_client.keys("hl:{s:*}:audio"))
            sizes.append((held, psutil.Process(web.pid).memory_info().rss))
        client.send(encode(End()))
        reader.join(120)
    finals = finals_of(received)
    assert not [message for message in received if isinstance(message, Error)]
    assert received[-1] == Done(audio_s=3600.0, finals=len(finals))
    assert [final.start_s for final in finals] == [0.0, *(final.end_s for final in finals[:-1])]
    (opening,) = [lease.job for lease in jobs_of(worker) if lease.job.segment == 0]
    assert finals[0].text == text_of(lesson[opening.start_byte : opening.end_byte]), "minute 0 is in the transcript"
    assert max(held for held, _ in sizes) <= (MAX_WAITING_AUDIO_S + MAX_SEGMENT_S) * SECOND
    early, late = (max(rss for _, rss in part) for part in (sizes[5:15], sizes[-10:]))
    assert late - early < 15_000_000, f"the web process grew: {json.dumps([rss for _, rss in sizes])}"
    partials = [lease.job.audio_s for lease in jobs_of(worker, Kind.PARTIAL)]
    assert max(partials) <= MAX_SEGMENT_S + 0.1, "a partial decodes the segment being spoken, however long the stream"
    assert sum(isinstance(message, Partial) for message in received) > 0
