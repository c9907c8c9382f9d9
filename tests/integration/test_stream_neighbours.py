"""One client's options, faults and floods never touch another's stream."""

from __future__ import annotations

import gzip
import json
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest
import redis
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from ops.redis_server import RedisServer
from queueing.job import LeasedJob
from queueing.job_queue import JobQueue
from queueing.lane import Kind
from queueing.policies import POLICIES
from sessions.limits import MAX_WAITING_FINALS
from sessions.results import DecodedWord, DecodeOptions, DecodeResult
from sessions.wire import Done, End, Error, Final, Flush, Partial, Ready, Start, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.recordings import recording
from tests.support.returning import finals_of
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import text_of

SECOND = 32_000
FRAME = 3_200


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    with LiveApi(redis_server.url, endpoint_ms=800, partial_interval_s=0.5) as server:
        yield server


@pytest.fixture
def api(server: LiveApi, redis_client: redis.Redis) -> Iterator[LiveApi]:
    """The web process; afterwards nothing of any stream may be left."""
    yield server
    eventually(lambda: server.metric("hearline_streams_active") == 0, what="no active stream")
    eventually(lambda: not leftovers(redis_client), what="clean Redis")
    assert server.metric("hearline_stream_faults_total") == 0


def sent_of(final: Final, audio: bytes) -> bytes:
    """What of the audio was decoded for a final."""
    assert final.speech_start_s is not None
    assert final.speech_end_s is not None
    return audio[round(final.speech_start_s * 16_000) * 2 : round(final.speech_end_s * 16_000) * 2]


OPTIONS: tuple[Start, ...] = (
    Start(language="en", words=True),
    Start(language="de", partials=False),
    Start(language="fr", task="translate"),
    Start(language="es", initial_prompt="the prompt of the fourth"),
    Start(language="it", hotwords="words of the fifth"),
    Start(language="nl", endpoint_ms=False),
    Start(language="sv", endpoint_ms=300, words=True, partials=False),
    Start(language="pt", words=True, initial_prompt="the prompt of the eighth", hotwords="words of the eighth"),
)


def expected_options(start: Start) -> dict[str, Any]:
    return DecodeOptions(
        language=start.language,
        words=start.words,
        translate=start.task == "translate",
        initial_prompt=start.initial_prompt,
        hotwords=start.hotwords,
    ).to_dict()


def test_eight_option_sets_stay_with_their_eight_clients_in_any_order_of_arrival(
    api: LiveApi, redis_client: redis.Redis, rng: random.Random
) -> None:
    """Workers answer with the options and the bytes that they were given."""

    def answer(lease: LeasedJob, data: bytes) -> DecodeResult:
        threading.Event().wait(rng.uniform(0, 0.02))  # so that results come in another order than jobs
        options = DecodeOptions.from_dict(lease.job.options)
        text = json.dumps([options.to_dict(), text_of(data)])
        words = (DecodedWord(f"{options.language}-word", 0.0, 0.1, 1.0),) if options.words else ()
        return DecodeResult(text, "scripted", options.language, words=words, language_probability=1.0)

    audio = {index: recording("pauses")[index * 4 * SECOND :][: 9 * SECOND] for index in range(len(OPTIONS))}
    with ExitStack() as stack:
        for _ in range(3):
            worker = stack.enter_context(QueueWorker(redis_client))
            worker.result = answer
        eventually(lambda: api.ready, what="readiness")
        clients = [stack.enter_context(api.connect()) for _ in OPTIONS]
        turns = [index for index in audio for _ in range(1 + 9 * SECOND // FRAME)]
        rng.shuffle(turns)
        sent = dict.fromkeys(audio, -FRAME)
        for index in turns:
            at = sent[index]
            clients[index].send(encode(OPTIONS[index]) if at < 0 else audio[index][at : at + FRAME])
            sent[index] += FRAME
        for index in rng.sample(list(audio), len(audio)):
            clients[index].send(encode(End()))
        heard = [receive_all(client) for client in clients]
    for index, (start, messages) in enumerate(zip(OPTIONS, heard, strict=True)):
        ready = messages[0]
        assert isinstance(ready, Ready)
        assert ready.limits.endpoint_ms == (800 if start.endpoint_ms is None else start.endpoint_ms)
        said = [final for final in finals_of(messages) if final.text]
        assert said
        for final in said:
            assert json.loads(final.text) == [expected_options(start), text_of(sent_of(final, audio[index]))]
            words = [word.text for word in final.words or ()]
            assert words == ([f"{start.language}-word"] if start.words else [])
        partials = [message for message in messages if isinstance(message, Partial)]
        assert start.partials or not partials
        for partial in partials:
            assert f'"{start.language}"' in partial.text
        assert messages[-1] == Done(audio_s=9.0, finals=len(finals_of(messages)))


PCM = np.frombuffer(recording("sample"), "<i2")[: 4 * 16_000]


def wav(rate: int, channels: int = 1, data: bytes = PCM.tobytes()) -> bytes:
    header = np.array([36 + len(data)], "<u4").tobytes()
    sizes = np.array([rate, rate * channels * 2], "<u4").tobytes()
    shape = np.array([1, channels], "<u2").tobytes()
    block = np.array([channels * 2, 16], "<u2").tobytes()
    return (
        b"RIFF" + header + b"WAVEfmt \x10\x00\x00\x00" + shape + sizes + block
        + b"data" + np.array([len(data)], "<u4").tobytes() + data
    )  # fmt: skip


MP3 = (b"\xff\xfb\x90\x64" + bytes(413)) * 8
WRONG: dict[str, tuple[bytes, str, str]] = {
    "float32": ((PCM / 32_768).astype("<f4").tobytes(), "not_pcm16", "32-bit float"),
    "big-endian": (PCM.byteswap().tobytes(), "not_pcm16", "big-endian"),
    "stereo": (np.stack([PCM, PCM // 2 + 3], axis=1).tobytes(), "not_pcm16", "stereo"),
    "WAV of 8 kHz": (wav(8_000), "unsupported_format", "8000 Hz"),
    "WAV in stereo": (wav(16_000, 2), "unsupported_format", "2 channels"),
    "WebM": (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01" + bytes(2_000), "not_pcm16", "WebM"),
    "MP3 with tags": (b"ID3\x04\x00\x00\x00\x00\x0f\x76" + MP3, "not_pcm16", "MP3"),
    "MP3 frames": (MP3, "not_pcm16", "MP3"),
    "gzip": (gzip.compress(PCM.tobytes()), "not_pcm16", "gzip"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_bytes_are_told_their_likely_cause_and_the_neighbour_hears_nothing_of_it(
    api: LiveApi, redis_client: redis.Redis, name: str
) -> None:
    data, code, cause = WRONG[name]
    audio = recording("sample")
    with QueueWorker(redis_client) as worker, api.connect() as neighbour, api.connect() as client:
        eventually(lambda: api.ready, what="readiness")
        neighbour.send(encode(Start(language="en", endpoint_ms=False, partials=False)))
        neighbour.send(audio[: 3 * SECOND])
        with suppress(ConnectionClosed):
            for start in range(0, len(data), FRAME):
                client.send(data[start : start + FRAME])
            client.send(encode(End()))
        messages = receive_all(client)
        assert client.protocol.close_code == 1003
        (error,) = [message for message in messages if isinstance(message, Error)]
        assert (error.code, error.fatal) == (code, True)
        assert cause in error.message
        assert "16" in error.message, "what to send instead"
        assert not finals_of(messages), "never decoded as sound"
        neighbour.send(audio[3 * SECOND :])
        neighbour.send(encode(End()))
        (final,) = finals_of(receive_all(neighbour))
        assert final.text == text_of(audio)
    # A partial may be asked for before the first seconds have told what they are.
    assert sum(lease.job.kind is Kind.FINAL for lease in worker.claimed) == 1, "no final of sound that is none"


def test_a_wav_of_the_right_format_is_its_samples(api: LiveApi, redis_client: redis.Redis) -> None:
    with QueueWorker(redis_client), api.connect() as client:
        eventually(lambda: api.ready, what="readiness")
        client.send(encode(Start(language="en", endpoint_ms=False)))
        for start in range(0, len(wav(16_000)), 641):
            client.send(wav(16_000)[start : start + 641])
        client.send(encode(End()))
        (final,) = finals_of(receive_all(client))
    assert final.text == text_of(PCM.tobytes())


ROUNDS = 12


@pytest.mark.parametrize("policy", POLICIES)
def test_a_flood_of_finals_puts_a_handful_of_jobs_before_a_neighbours(
    api: LiveApi, redis_client: redis.Redis, policy: str
) -> None:
    """Counted in jobs, not in seconds: while a neighbour's final waits, no more is decoded than the flooding client may
    have in the queue at once, however much it sends. (Finals of one size: who can starve by size is said in
    queueing.policies.)"""
    second = recording("sample")[2 * SECOND : 3 * SECOND]
    queue = JobQueue(redis_client)
    queue.set_policy(policy)

    def slow(lease: LeasedJob, data: bytes) -> DecodeResult:
        threading.Event().wait(0.01)
        return DecodeResult(text_of(data), "scripted", "en", language_probability=1.0)

    def flood(client: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            while not over.is_set():
                client.send(second)
                client.send(encode(Flush()))

    def swallow(client: ClientConnection) -> None:
        with suppress(ConnectionClosed, TimeoutError):
            while True:
                client.recv(5)

    over = threading.Event()
    before: list[int] = []
    with ExitStack() as stack:
        worker = stack.enter_context(QueueWorker(redis_client))
        worker.result = slow
        eventually(lambda: api.ready, what="readiness")
        flooding = stack.enter_context(api.connect())
        neighbour = stack.enter_context(api.connect())
        for client in (flooding, neighbour):
            # Nothing is held for the flooding one, which may be gone before its close is read behind all it sent.
            client.send(encode(Start(language="en", endpoint_ms=False, partials=False, resume=False)))
        threads = [threading.Thread(target=step, args=(flooding,), daemon=True) for step in (flood, swallow)]
        for thread in threads:
            thread.start()
        eventually(lambda: len(worker.claimed) > 20, what="the flood")
        own = receive_until(neighbour, Ready)[-1]
        assert isinstance(own, Ready)
        for segment in range(ROUNDS):
            neighbour.send(second)
            neighbour.send(encode(Flush()))
            assert isinstance(receive_until(neighbour, Final)[-1], Final)
            (mine,) = [lease for lease in worker.claimed if lease.job.id == f"{own.session}:f:{segment}"]
            before.append(sum(mine.arrival_ms < lease.claimed_ms <= mine.claimed_ms for lease in worker.claimed) - 1)
        flooded = len(worker.claimed)
        over.set()
        flooding.close()
        for thread in threads:
            thread.join(10)
        neighbour.send(encode(End()))
        assert isinstance(receive_all(neighbour)[-1], Done)
    assert flooded > 2 * ROUNDS, "there was a flood"
    assert max(before) <= MAX_WAITING_FINALS, before
    assert max(before) > 0, "and it was in the neighbour's way"
