"""A primary dies in the middle of streams: each ends whole, or with an explicit error; new ones work again at once.

Real processes: Sentinels or a Cluster, a web process, a worker with the scripted transcriber.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import redis
from websockets.exceptions import InvalidStatus

from queueing.connect import connect
from queueing.keys import QueueKeys
from sessions.keys import SessionKeys
from sessions.wire import Done, End, Error, Final, Flush, Ready, ServerMessage, encode
from tests.support.deployments import Cluster, Sentinels
from tests.support.eventually import eventually
from tests.support.leaks import keys_without_expiry
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.sound import speech
from tests.support.workers import WorkerProcess, worker_process
from workers.scripted import scripted_text

SOUND = speech(1.0)
FAST = {"base_s": 0.0, "per_audio_s": 0.0}


@contextmanager
def service(url: str, folder: Path) -> Iterator[tuple[LiveApi, WorkerProcess, redis.Redis]]:
    """A web process and a worker, ready; afterwards nothing may be left in Redis and no thread may have failed."""
    with ExitStack() as stack:
        client = connect(url)
        stack.callback(client.close)
        worker = stack.enter_context(worker_process(url, folder, FAST, lease_s=2))
        api = stack.enter_context(LiveApi(url, inference_timeout_s=20, resume_grace_s=5))
        eventually(lambda: api.ready, timeout_s=20, what="readiness")
        yield api, worker, client
        eventually(lambda: is_clean(client), timeout_s=20, what="clean Redis")
        assert not keys_without_expiry(client)
        assert api.metric("hearline_stream_faults_total") == 0
        assert worker.running(), worker.text()
        assert not any("Traceback" in line for line in [*api.log, *worker.text().splitlines()])


def is_clean(client: redis.Redis) -> bool:
    try:
        return not leftovers(client)
    except redis.RedisError:  # a client that stood by has yet to notice who is the primary now
        return False


def whole_stream(api: LiveApi) -> list[ServerMessage]:
    """One short stream from its first byte to its end."""
    with api.connect() as stream:
        stream.send(SOUND)
        stream.send(encode(End()))
        return receive_all(stream)


def assert_whole(messages: list[ServerMessage], pcm: bytes = SOUND) -> None:
    assert isinstance(messages[-1], Done), messages[-1]
    said = " ".join(message.text for message in messages if isinstance(message, Final))
    assert said.strip() == scripted_text(pcm), "every sample in one final, none twice"


def works_again(api: LiveApi) -> bool:
    """Whether a new stream ends whole."""
    try:
        assert_whole(whole_stream(api))
    except (InvalidStatus, AssertionError):
        return False
    return True


def assert_explicit(messages: list[ServerMessage], pcm: bytes) -> None:
    """The stream ended whole, or with a fatal error that says why."""
    if isinstance(messages[-1], Error):
        assert messages[-1].fatal
        assert messages[-1].code in {"unavailable", "state_lost", "decode_failed"}, messages[-1]
    else:
        assert_whole(messages, pcm)


def test_a_stream_through_sentinels_survives_its_primary_or_is_told(tmp_path: Path) -> None:
    with Sentinels() as redis_servers, service(redis_servers.url, tmp_path) as (api, worker, _client):
        assert_whole(whole_stream(api))
        with api.connect() as speaking:
            for _ in range(3):
                speaking.send(SOUND)
            receive_until(speaking, Ready)
            redis_servers.primary.kill()
            speaking.send(SOUND)
            speaking.send(encode(Flush()))
            speaking.send(encode(End()))
            assert_explicit(receive_all(speaking, timeout_s=30), SOUND * 4)
        eventually(lambda: works_again(api), timeout_s=30, what="a stream on the new primary")
        assert redis_servers.primary_port() == redis_servers.replica.port
        redis_servers.primary.start()  # it takes itself for the primary until a Sentinel tells it; nobody asks it
        assert_whole(whole_stream(api))
        assert len(api.events("redis_lost")) <= 2, "one line per change, not per attempt"
        assert worker.text().count("redis_away") <= 4


def test_a_stream_on_a_cluster_from_start_to_end_and_a_lost_node(tmp_path: Path) -> None:
    with Cluster(replicas=True) as cluster, service(cluster.url, tmp_path) as (api, _worker, client):
        for _ in range(4):
            assert_whole(whole_stream(api))
        with api.connect() as leaving:
            leaving.send(SOUND)
            receive_until(leaving, Ready)
        with api.connect() as speaking:
            speaking.send(SOUND)
            (ready,) = receive_until(speaking, Ready)
            assert isinstance(ready, Ready)
            queue, audio = QueueKeys("main").policy, SessionKeys(ready.session).audio
            eventually(lambda: client.exists(audio), what="its audio")
            cluster.owner(queue).kill()
            speaking.send(SOUND)
            speaking.send(encode(End()))
            assert_explicit(receive_all(speaking, timeout_s=30), SOUND * 2)
        eventually(lambda: works_again(api), timeout_s=30, what="a stream on what is left of the cluster")


@pytest.mark.slow
def test_a_primary_that_hangs_is_left_for_the_new_one(tmp_path: Path) -> None:
    with Sentinels() as redis_servers, service(redis_servers.url, tmp_path) as (api, _worker, _client):
        with api.connect() as speaking:
            speaking.send(SOUND)
            receive_until(speaking, Ready)
            redis_servers.primary.freeze()
            speaking.send(SOUND)
            speaking.send(encode(End()))
            assert_explicit(receive_all(speaking, timeout_s=40), SOUND * 2)
        eventually(lambda: works_again(api), timeout_s=40, what="a stream on the new primary")
