"""A session on the real queue, buffer and subscription: what the simulated ones promise is what Redis does."""

from __future__ import annotations

import hashlib
import queue as mailboxes
import random
from collections.abc import Iterator
from itertools import count

import pytest
import redis

from queueing.job import Delivery, LeasedJob
from queueing.job_queue import JobQueue
from queueing.lane import Kind
from sessions.audio_buffer import AudioBuffer
from sessions.effects import (
    AppendAudio,
    CancelPartial,
    CancelSession,
    Close,
    Effect,
    Enqueue,
    OpenBuffer,
    ReadEvents,
    Send,
    TrimAudio,
)
from sessions.errors import AudioLost
from sessions.events import FrontListener
from sessions.keys import SessionKeys
from sessions.limits import SessionLimits
from sessions.results import DecodeResult
from sessions.session import Session
from sessions.wire import Done, End, Error, Final, Flush, Partial, ServerMessage, Start, encode
from tests.support.eventually import eventually
from tests.support.queue_ears import key_names
from tests.support.recordings import recording
from tests.support.session_driver import speechlike

FRONT = "front-1"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


class Stream:
    """One session whose effects are carried out for real, and a worker whose text is the digest of the audio.

    ``endpoint_s``: as for `Driver`.
    """

    def __init__(
        self, client: redis.Redis, listener: FrontListener, session: str = "s1", *, endpoint_s: float | None = None
    ) -> None:
        self.queue = JobQueue(client)
        self.buffer = AudioBuffer(client, ttl_s=60)
        self.now = 100.0
        self.session = Session(session, FRONT, SessionLimits(endpoint_s=endpoint_s), now=self.now)
        self.sent: list[ServerMessage] = []
        self.closed: int | None = None
        self.statuses: list[str] = []
        self.mailbox: mailboxes.Queue[Delivery] = mailboxes.Queue()
        self._id = session
        self._nonces = count()
        listener.register(session, self.mailbox.put)

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case OpenBuffer(meta):
                    self.buffer.create(self._id, meta)
                case AppendAudio(offset, data, follows, keep_from):
                    try:
                        self.buffer.append(self._id, offset, data, follows=follows, keep_from=keep_from)
                    except AudioLost as error:
                        self.run(self.session.on_append_failed(self.now, lost=True, detail=str(error)))
                        return
                case TrimAudio(before):
                    self.buffer.trim(self._id, before)
                case Enqueue(job):
                    answer = self.queue.enqueue(job)
                    self.statuses.append(f"{job.kind}:{answer.status}")
                    self.run(self.session.on_enqueued(self.now, job, answer))
                case CancelPartial():
                    self.queue.cancel_partial(self._id)
                case CancelSession():
                    self.queue.cancel_session(self._id)
                    self.buffer.delete(self._id)
                case ReadEvents(after):
                    self.run(self.session.on_events(self.now, self.queue.events(self._id, after=after)))
                case Send(message):
                    self.sent.append(message)
                case Close(code, _):
                    self.closed = int(code)

    def text(self, message: Start | Flush | End) -> None:
        self.run(self.session.on_text(self.now, encode(message)))

    def audio(self, data: bytes) -> None:
        for at in range(0, len(data), 3_200):
            self.now += 0.1
            self.run(self.session.on_audio(self.now, data[at : at + 3_200]))

    def claim(self) -> LeasedJob:
        (lease,) = self.queue.claim("w1", f"{self._id}-{next(self._nonces)}")
        return lease

    def complete(self, lease: LeasedJob) -> None:
        try:
            data = self.buffer.read(self._id, lease.job.start_byte, lease.job.end_byte)
        except AudioLost as error:
            self.queue.fail(lease, "audio_missing", str(error), retry=False)
        else:
            result = DecodeResult(digest(data), "digest", "en", language_probability=0.9)
            self.queue.complete(lease, result.to_dict(), decode_ms=5)

    def hear(self) -> None:
        """Wait for one delivery and handle it."""
        self.run(self.session.on_delivery(self.now, self.mailbox.get(timeout=10)))

    def said(self, kind: type[Final] | type[Partial]) -> list[str]:
        return [message.text for message in self.sent if isinstance(message, kind)]

    @property
    def errors(self) -> list[str]:
        return [message.code for message in self.sent if isinstance(message, Error)]


@pytest.fixture
def reconnects() -> mailboxes.Queue[tuple[str, ...]]:
    return mailboxes.Queue()


@pytest.fixture
def listener(
    redis_client: redis.Redis, rng: random.Random, reconnects: mailboxes.Queue[tuple[str, ...]]
) -> Iterator[FrontListener]:
    with FrontListener(redis_client, FRONT, rng=rng, on_reconnect=reconnects.put) as listener:
        assert listener.wait_ready(10)
        yield listener


def test_a_stream_from_start_to_done(redis_client: redis.Redis, listener: FrontListener) -> None:
    stream, sound = Stream(redis_client, listener), speechlike(4.0)
    stream.text(Start(language="en"))
    stream.audio(sound[:64_000])
    assert stream.statuses == ["partial:queued", "partial:extended"], "asked at 0.5 and 1.5 s, one entry"
    lease = stream.claim()
    assert lease.job.end_byte == 48_000, "the waiting partial covers the newer audio"
    stream.audio(sound[64_000:96_000])
    assert stream.statuses[2:] == ["partial:busy"]
    stream.complete(lease)
    stream.hear()
    assert stream.statuses[3:] == ["partial:queued"], "asked again at once, now that the queue is free"
    stream.text(Flush())
    assert stream.statuses[4:] == ["final:queued"]
    final = stream.claim()
    assert final.job.kind is Kind.FINAL, "the waiting partial is gone"
    stream.complete(final)
    stream.hear()
    stream.audio(sound[96_000:])
    stream.text(End())
    stream.complete(stream.claim())
    stream.hear()
    assert stream.said(Partial) == [digest(sound[:48_000])]
    assert stream.said(Final) == [digest(sound[:96_000]), digest(sound[96_000:])]
    assert isinstance(stream.sent[-1], Done)
    assert (stream.closed, stream.errors) == (1000, [])
    assert stream.session.summary.partials_superseded == 3, "one extended, two removed by finals"
    assert not [name for name in key_names(redis_client) if ":events:" in name or "{s:" in name]


def test_a_long_stream_of_speech_and_silence_in_constant_memory(
    redis_client: redis.Redis, listener: FrontListener
) -> None:
    """Ten minutes: sentences with pauses, then a minute of silence, over and over."""
    stream = Stream(redis_client, listener, endpoint_s=0.8)
    stream.text(Start(language="en", partials=False))
    minute = (recording("pauses") + bytes(60 * 32_000))[: 100 * 32_000]
    most = 0
    for _ in range(6):
        for at in range(0, len(minute), 32_000):
            stream.audio(minute[at : at + 32_000])
            for lease in stream.queue.claim("w1", f"{at}-{stream.now}", max_jobs=8):
                stream.complete(lease)
                stream.hear()
            most = max(most, redis_client.strlen(SessionKeys("s1").audio))
            assert stream.session.buffered_bytes <= 48_000
    finals = [message for message in stream.sent if isinstance(message, Final)]
    assert len(finals) == 6 * 7, "seven sentences"
    for final in finals:
        assert final.speech_start_s is not None
        assert final.speech_end_s is not None
        start, end = (round(value * 32_000) for value in (final.speech_start_s, final.speech_end_s))
        heard = (minute + minute)[start % len(minute) :][: end - start]
        assert final.text == digest(heard), "the audio of its final is there, wherever the buffer begins"
    assert most <= 10 * 32_000
    assert redis_client.strlen(SessionKeys("s1").audio) <= 32_000
    stream.text(End())
    assert stream.closed == 1000


def test_a_requeued_final_finds_its_audio_behind_later_ones(redis_client: redis.Redis, listener: FrontListener) -> None:
    stream, sound = Stream(redis_client, listener), speechlike(3.0)
    stream.text(Start(language="en", partials=False))
    for at in range(0, len(sound), 32_000):
        stream.audio(sound[at : at + 32_000])
        stream.text(Flush())
    first, second = stream.claim(), stream.claim()
    stream.complete(second)
    stream.hear()
    stream.complete(stream.claim())  # the third is asked for when the second is answered
    stream.hear()
    stream.queue.release([first])
    stream.complete(stream.claim())
    stream.hear()
    assert stream.said(Final) == [digest(sound[at : at + 32_000]) for at in (0, 32_000, 64_000)]
    assert redis_client.strlen(SessionKeys("s1").audio) == 0


def test_a_partial_in_a_workers_hands_is_not_said_after_its_final(
    redis_client: redis.Redis, listener: FrontListener
) -> None:
    stream = Stream(redis_client, listener)
    stream.audio(speechlike(1.0))
    partial = stream.claim()
    stream.text(End())
    stream.complete(partial)
    stream.complete(stream.claim())
    stream.hear()
    assert [type(message).__name__ for message in stream.sent] == ["Ready", "Final", "Done"]


def test_a_final_that_pubsub_lost_comes_from_the_durable_events(
    redis_client: redis.Redis, listener: FrontListener, reconnects: mailboxes.Queue[tuple[str, ...]]
) -> None:
    stream, sound = Stream(redis_client, listener), speechlike(1.0)
    stream.audio(sound)
    stream.text(End())
    lease = stream.claim()
    listener.unregister("s1")  # the delivery finds nobody
    stream.complete(lease)
    redis_client.client_kill_filter(_type="pubsub")
    reconnects.get(timeout=10)
    assert stream.mailbox.empty()
    stream.run(stream.session.on_reconnected(stream.now))
    assert stream.said(Final) == [digest(sound)]
    assert (stream.closed, stream.session.summary.gap_repairs) == (1000, 1)
    assert stream.statuses[-1] == "final:queued", "nothing is due any more, so nothing is asked again"


def test_silence_after_a_final_was_due_reads_the_events(redis_client: redis.Redis, listener: FrontListener) -> None:
    stream, sound = Stream(redis_client, listener), speechlike(1.0)
    stream.audio(sound)
    stream.text(End())
    listener.unregister("s1")
    stream.complete(stream.claim())
    due = stream.session.next_tick()
    assert due is not None
    stream.now = due
    stream.run(stream.session.on_tick(due))
    assert stream.said(Final) == [digest(sound)]


def test_a_redis_that_forgot_everything_is_an_explicit_error_for_those_who_wait(
    redis_client: redis.Redis, listener: FrontListener
) -> None:
    stream = Stream(redis_client, listener)
    stream.audio(speechlike(1.0))
    stream.text(End())
    redis_client.flushall()
    stream.run(stream.session.on_reconnected(stream.now))
    assert stream.statuses[-2:] == ["final:queued", "final:queued"], "the queue learns of the final again"
    stream.complete(stream.claim())
    stream.hear()
    assert stream.errors == ["state_lost"]
    assert stream.closed == 1011


def test_a_redis_that_forgot_everything_is_an_explicit_error_for_those_who_speak(
    redis_client: redis.Redis, listener: FrontListener
) -> None:
    stream = Stream(redis_client, listener)
    stream.audio(speechlike(1.0))
    redis_client.flushall()
    stream.audio(speechlike(0.5))
    assert stream.errors == ["state_lost"]
    assert stream.closed == 1011


def test_a_final_asked_for_again_is_decoded_once(redis_client: redis.Redis, listener: FrontListener) -> None:
    stream = Stream(redis_client, listener)
    stream.audio(speechlike(1.0))
    stream.text(End())
    stream.run(stream.session.on_reconnected(stream.now))
    assert stream.statuses[-1] == "final:duplicate"
    stream.complete(stream.claim())
    stream.hear()
    assert stream.queue.claim("w1", "another") == ()
    assert stream.closed == 1000


def test_many_disconnects_leave_nothing_behind(redis_client: redis.Redis, listener: FrontListener) -> None:
    before = set(key_names(redis_client))
    for number in range(20):
        stream = Stream(redis_client, listener, session=f"s{number}")
        stream.audio(speechlike(0.9))
        if number % 3 == 1:
            stream.text(Flush())
        if number % 3 == 2:
            stream.complete(stream.claim())
        stream.run(stream.session.on_disconnect(stream.now))
        listener.unregister(f"s{number}")
        assert stream.queue.claim("w1", f"after-{number}") == ()
    left = [name for name in set(key_names(redis_client)) - before if "{s:" in name or ":events:" in name]
    assert left == []
    eventually(lambda: listener.connected)
