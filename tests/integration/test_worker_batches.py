"""A worker's batches against a real Redis: who is decoded together, what it teaches, what is read and reported."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import redis

from queueing.errors import QueueUnavailable
from queueing.job_queue import QueueLimits
from queueing.lane import Kind, Lane
from sessions.results import DecodeResult
from tests.support.eventually import eventually
from tests.support.workers import Desk, ThreadWorker, noise_pcm, scripted, tidy_desk_at
from workers.scripted import Fault, Script, ScriptedTranscriber, scripted_text
from workers.transcriber import DecodeError, DecodeRequest, Transcript

LIMITS = QueueLimits(lease_ms=5_000, max_attempts=2)
INSTANT = Script(base_s=0, per_audio_s=0)


@pytest.fixture
def desk(redis_url: str) -> Iterator[Desk]:
    with tidy_desk_at(redis_url, LIMITS) as desk:
        yield desk


class Recorder:
    """A transcriber that notes each call's audio lengths; ``alone_s`` by length is said of the answers."""

    name = "recorder"

    def __init__(self, script: Script = INSTANT, alone_s: dict[float, float] | None = None) -> None:
        self._scripted: ScriptedTranscriber = scripted(script)
        self._alone_s = alone_s or {}
        self.batches_finals = script.batches_finals
        self.lifts_partials = True
        self.counters: dict[str, int] = {}
        self.calls: list[list[float]] = []

    def decode(self, requests: Sequence[DecodeRequest]) -> Sequence[Transcript | DecodeError]:
        self.calls.append([request.audio_s for request in requests])
        answers = self._scripted.decode(requests)
        return [
            replace(answer, alone_s=self._alone_s.get(request.audio_s, 0.0))
            if isinstance(answer, Transcript)
            else answer
            for request, answer in zip(requests, answers, strict=True)
        ]


def ask(desk: Desk, rng: random.Random, kind: Kind, *seconds: float, first: int = 0) -> dict[str, bytes]:
    """A job of a session of its own for each length, no two in one millisecond; returns the audio by session."""
    audio = {f"{kind.value}-{place}-{length}": noise_pcm(rng, length, first) for place, length in enumerate(seconds)}
    for session, pcm in audio.items():
        desk.store(session, pcm)
        before = desk.redis_ms()
        eventually(lambda before=before: desk.redis_ms() > before, what="the next millisecond")  # type: ignore[misc]
        desk.ask(kind, session, 0, len(pcm))
    return audio


def texts(deliveries: Sequence[Any]) -> dict[str, str]:
    return {delivery.session: DecodeResult.from_dict(delivery.result).text for delivery in deliveries}


def test_partials_that_wait_are_decoded_together_and_told_apart(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    recorder = Recorder()
    audio = ask(desk, rng, Kind.PARTIAL, *[1.0] * 5)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8) as worker:
        deliveries = desk.await_deliveries(5)
        eventually(lambda: worker.outcomes() == {"done": 5}, what="the counts")
    assert texts(deliveries) == {session: scripted_text(pcm) for session, pcm in audio.items()}
    assert recorder.calls == [[1.0] * 5]


def test_partials_of_smaller_windows_fill_a_batch_up(desk: Desk, redis_client: redis.Redis, rng: random.Random) -> None:
    recorder = Recorder()
    audio = ask(desk, rng, Kind.PARTIAL, 4.9, 2.9, 3.9, 2.9)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8):
        deliveries = desk.await_deliveries(4)
    assert texts(deliveries) == {session: scripted_text(pcm) for session, pcm in audio.items()}
    assert recorder.calls == [[4.9, 3.9, 2.9, 2.9]], "the head, then window by window down"


def test_partials_stay_in_their_windows_where_the_model_does_not_lift_them(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    recorder = Recorder()
    recorder.lifts_partials = False
    ask(desk, rng, Kind.PARTIAL, 3.9, 1.9, 1.9)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8):
        desk.await_deliveries(3)
    assert sorted(recorder.calls) == [[1.9, 1.9], [3.9]]


@pytest.mark.parametrize(("together", "calls"), [(False, [[1.0]] * 4), (True, [[1.0] * 4])])
def test_finals_are_claimed_together_only_where_they_share_the_models_time(
    desk: Desk, redis_client: redis.Redis, rng: random.Random, together: bool, calls: list[list[float]]
) -> None:
    recorder = Recorder(Script(base_s=0, per_audio_s=0, batches_finals=together))
    audio = ask(desk, rng, Kind.FINAL, *[1.0] * 4)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8):
        deliveries = desk.await_deliveries(4)
    assert texts(deliveries) == {session: scripted_text(pcm) for session, pcm in audio.items()}
    assert recorder.calls == calls


def test_finals_of_different_windows_never_share_a_call(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    recorder = Recorder()
    ask(desk, rng, Kind.FINAL, 3.9, 1.9, 1.9)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8):
        desk.await_deliveries(3)
    assert sorted(recorder.calls) == [[1.9, 1.9], [3.9]]


def test_batches_shrink_to_what_their_time_allows(desk: Desk, redis_client: redis.Redis, rng: random.Random) -> None:
    """200 ms a job, 500 ms a batch: by the prior eight fit at once, by what was measured two."""
    recorder = Recorder(Script(base_s=0, per_job_s=0.2, per_audio_s=0))
    ask(desk, rng, Kind.PARTIAL, *[0.5] * 12)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8):
        desk.await_deliveries(12)
    sizes = [len(call) for call in recorder.calls]
    assert sizes[0] >= 6
    assert set(sizes[1:]) <= {1, 2}


def cost_of(desk: Desk, lane: Lane) -> float:
    (stats,) = (stats for stats in desk.queue.stats().lanes if stats.lane == lane and stats.learned)
    return stats.cost_ms


def test_a_lane_learns_its_share_of_the_batch(desk: Desk, redis_client: redis.Redis, rng: random.Random) -> None:
    recorder = Recorder(Script(base_s=0.4, per_audio_s=0))
    ask(desk, rng, Kind.PARTIAL, *[1.0] * 4)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8):
        deliveries = desk.await_deliveries(4)
    assert 100 <= cost_of(desk, Lane(Kind.PARTIAL, 3)) < 250, "400 ms over four jobs"
    assert {delivery.decode_ms for delivery in deliveries} == {deliveries[0].decode_ms}


def test_what_one_member_took_alone_is_not_its_companions_cost(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    """One of three asks for a second decode of 0.6 s: a call of 0.9 s, of which 0.3 s are shared."""
    recorder = Recorder(Script(base_s=0.9, per_audio_s=0), alone_s={3.9: 0.6})
    ask(desk, rng, Kind.PARTIAL, 3.9, 2.9, 2.9)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8):
        desk.await_deliveries(3)
    assert recorder.calls == [[3.9, 2.9, 2.9]]
    assert 100 <= cost_of(desk, Lane(Kind.PARTIAL, 5)) < 300
    assert 700 <= cost_of(desk, Lane(Kind.PARTIAL, 6)) < 900


def test_silence_in_a_batch_takes_no_share_and_teaches_nothing(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    recorder = Recorder(Script(base_s=0.4, per_audio_s=0))
    ask(desk, rng, Kind.PARTIAL, 1.0)
    for session in ("quiet-1", "quiet-2"):
        desk.store(session, bytes(16_000))
        desk.ask(Kind.PARTIAL, session, 0, 16_000)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8):
        deliveries = {delivery.session: delivery for delivery in desk.await_deliveries(3)}
    assert recorder.calls == [[1.0, 0.5, 0.5]]
    assert cost_of(desk, Lane(Kind.PARTIAL, 3)) >= 400
    assert deliveries["quiet-1"].decode_ms == 0


def test_a_call_that_failed_as_a_whole_teaches_nothing_and_fails_the_culprit_alone(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    recorder = Recorder(Script(base_s=0.1, per_audio_s=0, faults={222: Fault(do="raise")}))
    audio = ask(desk, rng, Kind.PARTIAL, 1.0, 1.0, 1.0)
    ask(desk, rng, Kind.PARTIAL, 0.9, first=222)
    with ThreadWorker(redis_client, LIMITS, recorder, max_batch=8):
        deliveries = desk.await_deliveries(4)
        eventually(lambda: len(recorder.calls) == 5, what="the second tries")
    done = [delivery for delivery in deliveries if delivery.outcome == "done"]
    assert texts(done) == {session: scripted_text(pcm) for session, pcm in audio.items()}
    assert not any(lane.learned for lane in desk.queue.stats().lanes)


def test_a_lost_reply_to_a_batchs_report_publishes_each_result_once(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    ask(desk, rng, Kind.PARTIAL, 1.0, 1.0, 1.0)
    worker = ThreadWorker(redis_client, LIMITS, Recorder(), max_batch=8)
    complete_all = worker.queue.complete_all
    lost: list[object] = []

    def lose_once(*args: Any, **options: Any) -> Any:
        statuses = complete_all(*args, **options)
        if not lost:
            lost.append(statuses)
            raise QueueUnavailable("the reply was lost")
        return statuses

    worker.queue.complete_all = lose_once  # type: ignore[method-assign]
    with worker:
        eventually(lambda: worker.outcomes() == {"done": 3}, what="the second report")
    assert len(lost) == 1
    assert len(desk.await_deliveries(3)) == 3


def counted(worker: ThreadWorker, source: str) -> float:
    return float(worker.metrics.audio_bytes.labels(source)._value.get())


def test_a_growing_segment_is_read_from_redis_once(desk: Desk, redis_client: redis.Redis, rng: random.Random) -> None:
    pcm = noise_pcm(rng, 4.0)
    with ThreadWorker(redis_client, LIMITS, Recorder()) as worker:
        for number, end in enumerate((32_000, 64_000, 96_000)):
            desk.audio.append("s1", end - 32_000, pcm[end - 32_000 : end])
            desk.ask(Kind.PARTIAL, "s1", 0, end, number=number)
            deliveries = desk.await_deliveries(number + 1)
            assert texts(deliveries[-1:]) == {"s1": scripted_text(pcm[:end])}
        desk.audio.append("s1", 96_000, pcm[96_000:])
        desk.ask(Kind.FINAL, "s1", 0, 128_000)
        deliveries = desk.await_deliveries(4)
        assert texts(deliveries[-1:]) == {"s1": scripted_text(pcm)}
        assert counted(worker, "redis") == 128_000
        assert counted(worker, "cache") == 32_000 + 64_000 + 96_000


def test_two_streams_in_one_cache_keep_their_own_bytes(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    streams = {f"s{number}": noise_pcm(rng, 3.0) for number in range(6)}
    told = 0
    with ThreadWorker(redis_client, LIMITS, Recorder(), max_batch=4, audio_cache_bytes=450_000) as worker:
        for second in range(3):
            for session, pcm in streams.items():
                start, end = second * 32_000, (second + 1) * 32_000
                desk.audio.append(session, start, pcm[start:end])
                desk.ask(Kind.PARTIAL, session, 0, end, number=second)
            told += len(streams)
            latest = desk.await_deliveries(told)[-len(streams) :]
            expected = {session: scripted_text(pcm[: (second + 1) * 32_000]) for session, pcm in streams.items()}
            assert texts(latest) == expected
        assert counted(worker, "cache") >= 6 * 32_000, "two seconds of all fit"
        assert counted(worker, "redis") > 6 * 96_000, "three do not: some is read again"


def test_second_decodes_are_exported_by_reason(desk: Desk, redis_client: redis.Redis, rng: random.Random) -> None:
    recorder = Recorder()
    with ThreadWorker(redis_client, LIMITS, recorder) as worker:
        for told, seen in enumerate((2, 2, 5), start=1):
            recorder.counters["full_window"] = seen
            ask(desk, rng, Kind.FINAL, told / 2)
            desk.await_deliveries(told)
        assert worker.metrics.fallbacks.labels("full_window")._value.get() == 5
