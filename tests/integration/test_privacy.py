"""What people say stays between them and the service: in no log line, no metric, no listing, and in Redis no longer
than needed. A canary text is said, hinted at and failed on, at the chattiest log level."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import redis
from click.testing import CliRunner

from ops.cli import main
from ops.runtime import Runtime
from queueing.clock import SystemClock
from queueing.job import LeasedJob
from sessions.wire import Done, End, Error, Final, Flush, Start, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech

SAID = "the zebra's password is quagmire"
PROMPT = "Minutes of the walrus committee"
HOTWORDS = "Xanthippe, Popocatepetl"
CANARIES = re.compile(r"(?i)zebra|quagmire|walrus|xanthippe|popocatepetl|!!bad-canary!!")
START = Start(language="en", initial_prompt=PROMPT, hotwords=HOTWORDS, words=True)


@pytest.fixture
def api(redis_url: str, redis_client: redis.Redis) -> Iterator[LiveApi]:
    with LiveApi(redis_url, log_level="debug", partial_interval_s=0.2, min_partial_audio_s=0.1) as api:
        yield api


@pytest.fixture
def worker(redis_client: redis.Redis) -> Iterator[QueueWorker]:
    with QueueWorker(redis_client) as worker:
        worker.text = lambda _data: SAID
        yield worker


def in_redis(client: redis.Redis) -> list[str]:
    """Names of keys that hold a canary, whatever their type."""
    return sorted(name.decode() for name in client.scan_iter(count=1_000) if CANARIES.search(content(client, name)))


def content(client: redis.Redis, name: bytes) -> str:
    match client.type(name):
        case b"hash":
            return str(client.hgetall(name))
        case b"stream":
            return str(client.xrange(name))
        case b"string":
            return str(client.get(name))
        case b"list":
            return str(client.lrange(name, 0, -1))
        case b"set":
            return str(client.smembers(name))
    return ""


def hearline(url: str, *arguments: str) -> str:
    runtime = Runtime({"REDIS_URL": url, "HEARLINE_STATE_DIR": "absent"}, SystemClock())
    result = CliRunner().invoke(main, ["queue", *arguments], obj=runtime)
    assert result.exit_code == 0, result.output
    return result.output


def test_nothing_that_is_said_stays(
    api: LiveApi, worker: QueueWorker, redis_client: redis.Redis, redis_url: str
) -> None:
    eventually(lambda: api.ready, what="readiness")
    with api.connect() as client:
        client.send(encode(START))
        for _ in range(3):
            client.send(speech(0.5))
        client.send(encode(Flush()))
        final = receive_until(client, Final)[-1]
        assert isinstance(final, Final)
        assert final.text == SAID
        for wrong in ("!!bad-canary!!", '{"type":"!!bad-canary!!"}', '{"type":"start","language":"!!bad-canary!!"}'):
            client.send(wrong)
        client.send(speech(0.5))
        client.send(encode(End()))
        assert isinstance(receive_all(client)[-1], Done)
    eventually(lambda: not leftovers(redis_client), what="the end of the stream in Redis")
    assert in_redis(redis_client) == []

    def fails(_lease: LeasedJob) -> tuple[str, str]:
        return "decode_failed", "no attempt worked"

    worker.fault = fails
    with api.connect() as client:
        client.send(encode(START))
        client.send(speech(1.0))
        client.send(encode(End()))
        assert isinstance(receive_all(client)[-1], Error)
    eventually(lambda: bool(api.events("stream_summary")[1:]), what="both streams' log lines")

    listed = [hearline(redis_url, *words) for words in (("dead",), ("dead", "list", "--json"), ("jobs",), ("--json",))]
    metrics = api.get("/metrics")[1].decode()
    told = [*api.log, *listed, metrics, api.get("/v1/status")[1].decode()]
    assert ":f:0" in listed[0], "there is no dead job to look at"
    assert not [text for text in told if CANARIES.search(text)]

    # What a dead job needs to be tried again; nothing of what was decoded. Forgotten when an operator says so.
    eventually(lambda: not leftovers(redis_client), what="the end of both streams in Redis")
    kept = in_redis(redis_client)
    assert all(re.fullmatch(r"hl:\{q:main\}:job:\w+:f:0", name) for name in kept)
    assert all(0 < redis_client.ttl(name) <= 86_400 for name in kept)
    hearline(redis_url, "dead", "drop", "--all")
    assert in_redis(redis_client) == []


def test_a_fault_of_the_stream_itself_quotes_nothing(
    api: LiveApi, worker: QueueWorker, redis_client: redis.Redis
) -> None:
    eventually(lambda: api.ready, what="readiness")
    with api.connect() as client:
        client.send(encode(START))
        client.send(speech(0.5))
        client.send(encode(Flush()))
        receive_until(client, Final)
        redis_client.flushall()  # under its feet
        client.send(speech(0.5))
        client.send(encode(End()))
        receive_all(client)
    eventually(lambda: bool(api.events("stream_summary")), what="the stream's log line")
    assert not [line for line in api.log if CANARIES.search(line)]
    # What the client was told goes when the connection is closed, which is after the log line.
    eventually(lambda: not leftovers(redis_client), what="the end of the stream in Redis")
    assert in_redis(redis_client) == []


def test_audio_goes_as_soon_as_it_is_final(api: LiveApi, worker: QueueWorker, redis_client: redis.Redis) -> None:
    eventually(lambda: api.ready, what="readiness")
    with api.connect() as client:
        client.send(encode(START))
        client.send(speech(2.0))
        client.send(encode(Flush()))
        receive_until(client, Final)

        def held() -> int:
            return sum(redis_client.strlen(name) for name in redis_client.scan_iter("hl:{s:*}:audio"))

        client.send(speech(0.5))  # what is stored next forgets what is final
        eventually(lambda: 0 < held() <= 32_000, what=f"the finished two seconds to be gone, not {held()} bytes")
        client.send(encode(End()))
        receive_all(client)
    eventually(lambda: not leftovers(redis_client), what="the end of the stream in Redis")
