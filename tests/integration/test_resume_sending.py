"""What a client may send when it comes back: positions that do not fit, numbers that nobody said, headers once more.

The server goes on at ``received_s`` whatever comes: what is sent again is heard again, what is left out is not waited
for, and every limit counts what was accepted, over all connections.
"""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Iterator
from itertools import pairwise

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.lane import Kind
from sessions.wire import Done, End, Error, Final, Flush, Partial, Ready, Start, decode_server, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers, receive_all, receive_until
from tests.support.returning import begin, byte_of, come_back, finals_of, refused, resumed, vanish, working
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of

SOUND = speech(6.0)
MAX_AUDIO_S = 9


@pytest.fixture(scope="module")
def server(redis_server: RedisServer) -> Iterator[LiveApi]:
    settings = {"resume_grace_s": 3, "partial_interval_s": 0.3, "min_partial_audio_s": 0.2}
    with LiveApi(redis_server.url, max_audio_s=MAX_AUDIO_S, **settings) as server:
        yield server


@pytest.fixture
def api(server: LiveApi, redis_client: redis.Redis) -> Iterator[LiveApi]:
    yield server
    eventually(lambda: not leftovers(redis_client), timeout_s=20, what="clean Redis")
    assert server.metric("hearline_stream_faults_total") == 0
    assert not [line for line in server.log if "Traceback" in line]


@pytest.fixture
def worker(api: LiveApi, redis_client: redis.Redis) -> Iterator[QueueWorker]:
    with working(redis_client, api) as worker:
        yield worker


def lost_after(api: LiveApi, sound: bytes, start: Start | None = None) -> Ready:
    """A stream that is gone when all of ``sound``, and a flush behind it, was answered; one final was said."""
    client, ready = begin(api, start)
    client.send(sound)
    client.send(encode(Flush()))
    receive_until(client, Final)
    vanish(client)
    return ready


@pytest.mark.parametrize(
    "sent",
    [SOUND, SOUND[32_000:], SOUND[128_000:], SOUND[130_001:-1], b""],
    ids=["all again", "a part again", "a part left out", "an odd number of bytes", "nothing"],
)
def test_the_stream_goes_on_where_the_server_said_whatever_is_sent(
    api: LiveApi, worker: QueueWorker, sent: bytes
) -> None:
    ready = lost_after(api, SOUND[:96_000])
    again = come_back(api, ready, last_seq=1)
    assert byte_of(resumed(again).received_s) == 96_000
    again.send(sent)
    again.send(encode(End()))
    messages = receive_all(again)
    (final,) = finals_of(messages)
    whole = len(sent) // 2 * 2
    end_s = round((96_000 + whole) / 32_000, 4)
    assert (final.start_s, final.end_s, final.last) == (3.0, end_s, True)
    assert final.text == (text_of(sent[:whole]) if whole else "")
    assert messages[-1] == Done(audio_s=end_s, finals=2)
    jobs = [lease.job for lease in worker.claimed if lease.job.kind is Kind.FINAL]
    assert [(job.start_byte, job.end_byte) for job in jobs[1:]] == ([(96_000, 96_000 + whole)] if whole else [])


def test_the_limit_of_a_stream_counts_what_was_accepted_on_all_connections(api: LiveApi, worker: QueueWorker) -> None:
    ready = lost_after(api, SOUND)
    for _ in range(2):
        again = come_back(api, ready, last_seq=1)
        ready = resumed(again)
        assert byte_of(ready.received_s) == len(SOUND)
        vanish(again)
    again = come_back(api, ready, last_seq=1)
    resumed(again)
    again.send(SOUND)
    messages = receive_all(again)
    assert again.protocol.close_code == 1009
    assert "audio_limit" in [message.code for message in messages if isinstance(message, Error)]
    (final,) = finals_of(messages)
    assert final.text == text_of(SOUND[: (MAX_AUDIO_S - 6) * 32_000])
    assert messages[-1] == Done(audio_s=MAX_AUDIO_S, finals=2)


def test_a_limit_that_was_reached_is_reached_for_good(api: LiveApi, redis_client: redis.Redis) -> None:
    """The connection is lost before the last final: who resumes can send nothing more."""
    with QueueWorker(redis_client, hold=frozenset({Kind.FINAL})) as worker:
        eventually(lambda: api.ready, what="readiness")
        client, ready = begin(api)
        client.send(SOUND + SOUND)
        eventually(lambda: worker.claimed, what="the last final in a worker's hands")
        vanish(client)
        again = come_back(api, ready)
        assert resumed(again).received_s == MAX_AUDIO_S
        again.send(SOUND)
        again.send(encode(End()))
        worker.let_go()
        messages = receive_all(again)
    assert again.protocol.close_code == 1009
    (final,) = finals_of(messages)
    assert final.text == text_of((SOUND + SOUND)[: MAX_AUDIO_S * 32_000])
    assert messages[-1] == Done(audio_s=MAX_AUDIO_S, finals=1)


def test_half_a_sample_that_was_under_way_is_not_kept(api: LiveApi, worker: QueueWorker) -> None:
    client, ready = begin(api)
    client.send(SOUND[:64_001])
    client.send(encode(Flush()))
    receive_until(client, Final)
    vanish(client)
    again = come_back(api, ready, last_seq=1)
    assert byte_of(resumed(again).received_s) == 64_000
    again.send(SOUND[64_000:])
    again.send(encode(End()))
    messages = receive_all(again)
    assert [final.text for final in finals_of(messages)] == [text_of(SOUND[64_000:])]


def test_positions_count_without_the_header_of_a_wav_file(api: LiveApi, worker: QueueWorker) -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, 16_000, 0, "NONE", ""))
        writer.writeframes(SOUND)
    ready = lost_after(api, file.getvalue()[: 44 + 64_000])
    again = come_back(api, ready, last_seq=1)
    at = byte_of(resumed(again).received_s)
    assert at == 64_000
    again.send(SOUND[at:])
    again.send(encode(End()))
    messages = receive_all(again)
    assert [final.text for final in finals_of(messages)] == [text_of(SOUND[at:])]


def test_start_comes_too_late_on_a_connection_that_goes_on(api: LiveApi, worker: QueueWorker) -> None:
    ready = lost_after(api, SOUND[:64_000])
    again = come_back(api, ready, last_seq=1)
    resumed(again)
    again.send(encode(Start(language="fr")))
    error = decode_server(again.recv(10))
    assert isinstance(error, Error)
    assert (error.code, error.fatal) == ("bad_state", False)
    again.send(SOUND[64_000:])
    again.send(encode(End()))
    assert isinstance(receive_all(again)[-1], Done)
    assert worker.claimed[-1].job.options["language"] == "en"


WRONG = {
    "negative": "-1",
    "fraction": "1.5",
    "whole fraction": "1.0",
    "text": '"1"',
    "nothing": "null",
    "true": "true",
    "list": "[1]",
    "not a number": "NaN",
    "2^31": str(2**31),
    "2^64": str(2**64),
    "4,300 digits": "9" * 4_300,
}


@pytest.mark.parametrize("number", WRONG.values(), ids=WRONG)
def test_a_last_seq_that_is_none_is_told_and_costs_the_stream_nothing(
    api: LiveApi, worker: QueueWorker, number: str
) -> None:
    ready = lost_after(api, SOUND[:64_000])
    again = api.connect(legacy=True)
    wrong = json.dumps({"type": "resume", "session": ready.session, "token": ready.token, "last_seq": 0})
    again.send(wrong.replace('"last_seq": 0', f'"last_seq": {number}'))
    error = decode_server(again.recv(10))
    assert isinstance(error, Error), error
    assert (error.code, error.fatal) == ("bad_message", False)
    assert len(error.message) < 300
    again.close()
    true = come_back(api, ready, last_seq=0)
    assert byte_of(resumed(true).received_s) == 64_000
    (first,) = finals_of(receive_until(true, Final))
    assert (first.seq, first.text) == (1, text_of(SOUND[:64_000]))
    true.send(encode(End()))
    assert receive_all(true)[-1] == Done(audio_s=2.0, finals=2)


@pytest.mark.parametrize("number", [2, 1_000, 2**31 - 1])
def test_a_last_seq_beyond_what_was_said_hides_nothing_from_the_true_client(
    api: LiveApi, worker: QueueWorker, number: int
) -> None:
    """The server cannot tell: partials have numbers that nobody keeps. It counts on from there, and who comes back with
    the true number gets what was said under the others."""
    ready = lost_after(api, SOUND[:64_000])
    astray = come_back(api, ready, last_seq=number)
    next_ready = resumed(astray)
    astray.send(SOUND[64_000:128_000])
    astray.send(encode(Flush()))
    final = receive_until(astray, Final)[-1]
    assert isinstance(final, Final)
    assert (final.seq, final.text) == (number + 1, text_of(SOUND[64_000:128_000]))
    vanish(astray)
    true = come_back(api, next_ready, last_seq=1)
    assert byte_of(resumed(true).received_s) == 128_000
    true.send(SOUND[128_000:])
    true.send(encode(End()))
    messages = receive_all(true)
    bounds = [64_000, 128_000, len(SOUND)]
    assert [final.seq for final in finals_of(messages)] == [2, 3]
    assert [final.text for final in finals_of(messages)] == [text_of(SOUND[a:b]) for a, b in pairwise(bounds)]
    assert messages[-1] == Done(audio_s=6.0, finals=3)


def test_a_last_seq_of_partials_counts_on_from_them(api: LiveApi, worker: QueueWorker) -> None:
    client, ready = begin(api, Start(language="en", partials=True))
    client.send(SOUND[:64_000])
    partial = receive_until(client, Partial)[-1]
    assert isinstance(partial, Partial)
    vanish(client)
    again = come_back(api, ready, last_seq=partial.seq)
    again.send(SOUND[byte_of(resumed(again).received_s) :])
    again.send(encode(End()))
    messages = receive_all(again)
    numbers = [message.seq for message in messages if isinstance(message, Partial | Final)]
    assert numbers == list(range(partial.seq + 1, partial.seq + 1 + len(numbers)))
    assert [final.text for final in finals_of(messages)] == [text_of(SOUND)]


def test_who_guesses_sessions_and_tokens_learns_nothing_and_costs_nothing(
    api: LiveApi, worker: QueueWorker, redis_client: redis.Redis
) -> None:
    ready = lost_after(api, SOUND[:64_000])
    eventually(lambda: redis_client.zscore("hl:{q:main}:parked", ready.session) is not None, what="a parked session")
    until = redis_client.zscore("hl:{q:main}:parked", ready.session)
    for number in range(10):
        assert refused(come_back(api, ready, last_seq=1, token=f"guess {number}")) == "resume_refused"
    assert redis_client.zscore("hl:{q:main}:parked", ready.session) == until, "nor does it wait longer for that"
    again = come_back(api, ready, last_seq=1)
    assert byte_of(resumed(again).received_s) == 64_000
    again.send(encode(End()))
    assert isinstance(receive_all(again)[-1], Done)
