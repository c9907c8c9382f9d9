"""Whole conversations with a real web process, a real Redis and a scripted worker."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.lane import Kind
from sessions.decodes import MIN_DECODE_BYTES
from sessions.wire import Done, End, Error, Final, Flush, Partial, Ready, ServerMessage, Start, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(
        redis_server.url,
        partial_interval_s=0.4,
        max_audio_s=12,
        handshake_timeout_s=0.5,
        idle_timeout_s=2,
        inference_timeout_s=5,
        max_frame_bytes=200_000,
    ) as server:
        yield server


@pytest.fixture
def api(server: LiveApi, redis_client: redis.Redis) -> Iterator[LiveApi]:
    """The web process; afterwards nothing of any stream may be left."""
    yield server
    eventually(lambda: not leftovers(redis_client), what="clean Redis")
    eventually(lambda: server.metric("hearline_streams_active") == 0, what="no active stream")
    assert server.metric("hearline_stream_faults_total") == 0


@pytest.fixture
def worker(api: LiveApi, redis_client: redis.Redis) -> Iterator[QueueWorker]:
    with QueueWorker(redis_client) as worker:
        eventually(lambda: api.ready, what="readiness")
        yield worker


def finals(messages: list[ServerMessage]) -> list[Final]:
    return [message for message in messages if isinstance(message, Final)]


def assert_gapless(messages: list[ServerMessage]) -> None:
    numbers = [message.seq for message in messages if isinstance(message, Partial | Final)]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.usefixtures("worker")
def test_a_conversation_from_start_to_done(api: LiveApi) -> None:
    audio = speech(3.0)
    with api.connect() as client:
        client.send(encode(Start(language="en", client_ref="talk")))
        for start in range(0, len(audio), 3_200):
            client.send(audio[start : start + 3_200])
            if start == 48_000:
                ready, *_ = receive_until(client, Partial)
                assert isinstance(ready, Ready)
                assert ready.limits.max_audio_s == 12
        client.send(encode(End()))
        messages = receive_all(client)
        assert client.protocol.close_code == 1000
    (final,) = finals(messages)
    assert (final.text, final.start_s, final.end_s, final.last) == (text_of(audio), 0.0, 3.0, True)
    assert final.timing is not None
    assert messages[-1] == Done(audio_s=3.0, finals=1)
    eventually(lambda: any(event["client_ref"] == "talk" for event in api.events("stream_summary")), what="the summary")
    (summary,) = [event for event in api.events("stream_summary") if event["client_ref"] == "talk"]
    assert (summary["outcome"], summary["audio_s"], summary["finals_sent"]) == ("done", 3.0, 1)
    assert summary["partials_sent"] >= 1
    assert not any("heard" in line for line in api.log), "a transcript is in the log"


@pytest.mark.usefixtures("worker")
def test_flush_gives_finals_in_order_that_cover_everything_once(api: LiveApi, rng: random.Random) -> None:
    audio = speech(5.0)
    with api.connect() as client:
        client.send(encode(Start(partials=False)))
        sent = 0
        while sent < len(audio):
            cut = 32 * rng.randrange(1, 1_250)  # whole milliseconds, so that the times name the bytes
            client.send(audio[sent : sent + cut])
            sent += cut
            if rng.random() < 0.4:
                client.send(encode(Flush()))
        client.send(encode(End()))
        messages = receive_all(client)
    assert_gapless(messages)
    edges = [0.0] + [final.end_s for final in finals(messages)]
    assert [final.start_s for final in finals(messages)] == edges[:-1]
    assert edges[-1] == 5.0
    assert [final.last for final in finals(messages)] == [False] * (len(edges) - 2) + [True]
    for final in finals(messages):
        covered = audio[round(final.start_s * 32_000) : round(final.end_s * 32_000)]
        assert final.text == (text_of(covered) if len(covered) >= MIN_DECODE_BYTES else "")


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(("size", "seconds"), [(1, 0.08), (3, 0.2), (641, 0.8), (64_000, 0.8)])
def test_framing_changes_nothing(api: LiveApi, size: int, seconds: float) -> None:
    """(Of the smallest frames few enough: their rate is limited.)"""
    audio = speech(seconds) + b"\x7f"  # an odd total: the lone byte is no sample
    with api.connect() as client:
        for start in range(0, len(audio), size):
            client.send(audio[start : start + size])
        client.send(encode(End()))
        (final,) = finals(receive_all(client))
    assert final.text == text_of(audio[:-1])


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("before", [[], [b""], [b"\x01"], [encode(Flush())], [b"\x01\x00"]])
def test_nothing_said_is_answered_at_once(api: LiveApi, before: list[str | bytes]) -> None:
    with api.connect() as client:
        for message in before:
            client.send(message)
        client.send(encode(End()))
        messages = receive_all(client)
        assert client.protocol.close_code == 1000
    assert isinstance(messages[-1], Done)
    assert finals(messages)[-1].last


@pytest.mark.usefixtures("worker")
def test_a_client_that_says_nothing_is_greeted_and_then_let_go(api: LiveApi) -> None:
    with api.connect() as client:
        messages = receive_all(client)
        assert client.protocol.close_code == 1008
    assert isinstance(messages[0], Ready)
    (error,) = [message for message in messages if isinstance(message, Error)]
    assert error.code == "idle_timeout"


@pytest.mark.usefixtures("worker")
def test_keepalive_keeps_a_quiet_stream(api: LiveApi) -> None:
    with api.connect() as client:
        client.send('{"type":"keepalive"}')
        client.recv(5)  # ready
        for _ in range(4):
            client.send('{"type":"keepalive"}')
            with pytest.raises(TimeoutError):
                client.recv(0.8)
        client.send(encode(End()))
        assert isinstance(receive_all(client)[-1], Done)


@pytest.mark.usefixtures("worker")
def test_beyond_the_audio_limit_everything_before_it_is_kept(api: LiveApi) -> None:
    audio = speech(15.0)
    with api.connect() as client:
        for start in range(0, len(audio), 100_000):
            client.send(audio[start : start + 100_000])
        messages = receive_all(client)
        assert client.protocol.close_code == 1009
    (error,) = [message for message in messages if isinstance(message, Error)]
    assert (error.code, error.fatal) == ("audio_limit", False)
    (final,) = finals(messages)
    assert (final.text, final.last) == (text_of(audio[: 12 * 32_000]), True)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("sent", "code", "close"),
    [
        ("{not json", "bad_message", 1000),
        ("x" * 20_000, "bad_message", 1000),
        ('{"type":"dance"}', "unknown_type", 1000),
        ('{"type":"start","sample_rate":8000}', "unsupported_format", 1003),
        (b"\x1aE\xdf\xa3" + bytes(2_000), "not_pcm16", 1003),
        (b"x" * 200_001, "frame_too_big", 1009),
        ("x" * 70_000, "frame_too_big", 1009),
    ],
)
def test_wrong_messages_are_answered_and_end_a_stream_only_when_they_must(
    api: LiveApi, sent: str | bytes, code: str, close: int
) -> None:
    with api.connect() as client:
        client.send(sent)
        if close == 1000:
            client.send(encode(End()))
        messages = receive_all(client)
        assert client.protocol.close_code == close
    (error,) = [message for message in messages if isinstance(message, Error)]
    assert (error.code, error.fatal) == (code, close != 1000)
    if code == "frame_too_big":
        assert ("65536" if isinstance(sent, str) else "200000") in error.message
        assert str(len(sent)) in error.message
    with api.connect() as client:  # the next one is fine
        client.send(encode(End()))
        assert isinstance(receive_all(client)[-1], Done)


def test_eight_streams_at_once_hear_only_themselves(
    api: LiveApi, worker: QueueWorker, rng: random.Random, redis_client: redis.Redis
) -> None:
    texts = [speech(rng.uniform(0.5, 2.0), seed) for seed in range(8)]
    with ExitStack() as stack:
        stack.enter_context(QueueWorker(redis_client))
        clients = [stack.enter_context(api.connect()) for _ in texts]
        order = [index for index, audio in enumerate(texts) for _ in range(-(-len(audio) // 3_200))]
        rng.shuffle(order)
        sent = [0] * 8
        for index in order:
            clients[index].send(texts[index][sent[index] : sent[index] + 3_200])
            sent[index] += 3_200
        for client in clients:
            client.send(encode(End()))
        for client, audio in zip(clients, texts, strict=True):
            messages = receive_all(client)
            assert [final.text for final in finals(messages)] == [text_of(audio)]
    assert worker.claimed


def test_a_final_that_cannot_be_decoded_is_an_explicit_error(api: LiveApi, worker: QueueWorker) -> None:
    worker.fault = lambda lease: ("decode_failed", "poison") if lease.job.kind is Kind.FINAL else None
    with api.connect() as client:
        client.send(speech(1.0))
        client.send(encode(End()))
        messages = receive_all(client)
        assert client.protocol.close_code == 1011
    assert isinstance(messages[-1], Error)
    assert messages[-1].code == "decode_failed"


def test_a_waiting_stream_hears_that_no_worker_is_there(api: LiveApi, redis_client: redis.Redis) -> None:
    eventually(lambda: not api.says_ready, what="the loss of the last worker")
    with api.connect() as client:
        client.send(speech(1.0))
        client.send(encode(Flush()))
        notice = receive_until(client, Error)[-1]
        assert isinstance(notice, Error)
        assert (notice.code, notice.fatal) == ("no_worker", False)
        with QueueWorker(redis_client):  # one comes after all
            assert isinstance(receive_until(client, Final)[-1], Final)
            client.send(encode(End()))
            assert isinstance(receive_all(client)[-1], Done)


def test_without_a_worker_a_stream_fails_within_the_inference_timeout(api: LiveApi) -> None:
    with api.connect() as client:
        client.send(speech(1.0))
        client.send(encode(End()))
        messages = receive_all(client)
        assert client.protocol.close_code == 1011
    assert [message.code for message in messages if isinstance(message, Error)] == ["no_worker", "inference_timeout"]


@pytest.mark.usefixtures("worker")
def test_metrics_follow_a_stream(api: LiveApi) -> None:
    names = ("hearline_audio_received_seconds_total", "hearline_final_latency_seconds_count")
    before = [api.metric(name) for name in names]
    done = api.metric("hearline_streams_total", outcome="done")
    with api.connect() as client:
        client.send(speech(2.0))
        client.send(encode(End()))
        receive_all(client)
    assert [api.metric(name) for name in names] == [before[0] + 2.0, before[1] + 1]
    assert api.metric("hearline_streams_total", outcome="done") == done + 1
    assert api.metric("hearline_delivery_delay_seconds_count", kind="final") >= 1
    assert json.loads(api.get("/v1/status")[1])["workers"][0]["model"] == "scripted"
