"""A worker's loop against a real Redis: every claimed job ends in exactly one report."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.connect import connect
from queueing.errors import QueueUnavailable
from queueing.job_queue import QueueLimits
from queueing.lane import Kind
from sessions.results import DecodeResult
from tests.support.eventually import eventually
from tests.support.workers import Desk, ThreadWorker, desk_at, noise_pcm, scripted, tidy_desk_at
from workers.scripted import Fault, Script, scripted_text
from workers.transcriber import UNSUPPORTED_LANGUAGE, DecodeError, DecodeRequest, Transcript

LIMITS = QueueLimits(lease_ms=1000, max_attempts=2)


@pytest.fixture
def desk(redis_url: str) -> Iterator[Desk]:
    with tidy_desk_at(redis_url, LIMITS) as desk:
        yield desk


class Gate:
    """A transcriber that decodes only when it is told to."""

    name = "gated"

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self._scripted = scripted()
        self.batches_finals = True
        self.lifts_partials = True
        self.counters: dict[str, int] = {}

    def decode(self, requests: Sequence[DecodeRequest]) -> Sequence[Transcript | DecodeError]:
        self.entered.set()
        assert self.open.wait(20)
        return self._scripted.decode(requests)


def text_of(result: dict[str, Any] | None) -> str:
    assert result is not None
    return DecodeResult.from_dict(result).text


def test_a_final_is_decoded_from_exactly_its_bytes(desk: Desk, redis_client: redis.Redis, rng: random.Random) -> None:
    pcm = noise_pcm(rng, 3.3)
    with ThreadWorker(redis_client, LIMITS, scripted()) as worker:
        desk.store("s1", pcm)
        desk.ask(Kind.FINAL, "s1", 32_000, 80_002, segment=1)
        (delivery,) = desk.await_deliveries(1)
        assert delivery.outcome == "done"
        assert text_of(delivery.result) == scripted_text(pcm[32_000:80_002])
        assert [event.job for event in desk.queue.events("s1")] == ["s1:f:1"]
        eventually(lambda: worker.outcomes() == {"done": 1}, what="the count")


def test_silence_teaches_no_cost(desk: Desk, redis_client: redis.Redis, rng: random.Random) -> None:
    with ThreadWorker(redis_client, LIMITS, scripted()):
        desk.final("s1", bytes(32_000))
        (silent,) = desk.await_deliveries(1)
        assert (silent.outcome, text_of(silent.result)) == ("done", "")
        assert not any(lane.learned for lane in desk.queue.stats().lanes)
        desk.final("s2", noise_pcm(rng, 1))
        desk.await_deliveries(2)
        assert sum(lane.learned for lane in desk.queue.stats().lanes) == 1


def test_an_unsupported_language_is_the_clients_to_know_and_nobody_elses(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    english = scripted()
    refusal = DecodeError("English only", code=UNSUPPORTED_LANGUAGE)
    english.decode = lambda requests: [refusal for _ in requests]  # type: ignore[method-assign]
    with ThreadWorker(redis_client, LIMITS, english):
        desk.final("s1", noise_pcm(rng, 1))
        (delivery,) = desk.await_deliveries(1)
    assert (delivery.outcome, delivery.attempt) == ("dead", 1)
    assert delivery.error == {"code": "unsupported_language", "message": "English only"}
    assert desk.queue.jobs("dead") == ()


def test_many_jobs_of_two_workers_are_each_delivered_once(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    audio = {f"s{number}": noise_pcm(rng, 0.2 + 0.1 * (number % 5)) for number in range(40)}
    with (
        ThreadWorker(redis_client, LIMITS, scripted(), name="w1", max_batch=4),
        ThreadWorker(redis_client, LIMITS, scripted(), name="w2", seed=2),
    ):
        for session, pcm in audio.items():
            desk.final(session, pcm)
        deliveries = desk.await_deliveries(len(audio))
    assert {d.session: text_of(d.result) for d in deliveries} == {s: scripted_text(pcm) for s, pcm in audio.items()}
    assert len(desk.listen()) == len(audio)


def test_decode_three_times_longer_than_the_lease_publishes_once(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    slow = scripted(Script(base_s=3 * LIMITS.lease_ms / 1000, per_audio_s=0))
    with (
        ThreadWorker(redis_client, LIMITS, slow, name="w1") as one,
        ThreadWorker(redis_client, LIMITS, slow, name="w2") as two,
    ):
        desk.final("s1", noise_pcm(rng, 1))
        finished = threading.Event()
        sweeps = threading.Thread(target=lambda: _sweep_until(desk, finished))
        sweeps.start()
        (delivery,) = desk.await_deliveries(1)
        finished.set()
        sweeps.join()
        assert delivery.attempt == 1
        assert not one.lost + two.lost
    assert len(desk.listen()) == 1


def _sweep_until(desk: Desk, finished: threading.Event) -> None:
    while not finished.wait(0.05):
        desk.queue.sweep()


def test_a_result_whose_lease_was_taken_over_is_refused_without_a_fault(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    gate = Gate()
    with ThreadWorker(redis_client, LIMITS, gate, name="late") as late:
        late.keeper.hold = lambda leases: None  # type: ignore[method-assign]  # never renews, like a stopped process
        job = desk.final("s1", noise_pcm(rng, 1))
        assert gate.entered.wait(10)
        eventually(lambda: desk.queue.sweep().requeued == 1, what="the expired lease")
        with ThreadWorker(redis_client, LIMITS, scripted(), name="next"):
            (delivery,) = desk.await_deliveries(1)
            assert delivery.attempt == 2
            gate.open.set()
            eventually(lambda: late.outcomes() == {"stale": 1}, what="the refusal")
    assert len(desk.listen()) == 1
    assert desk.queue.job_state(job) == "done"


def test_a_lost_lease_is_noticed_and_a_fault_after_it_is_not_reported(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    gate = Gate()
    with ThreadWorker(redis_client, LIMITS, gate) as worker:
        desk.final("s1", noise_pcm(rng, 1))
        assert gate.entered.wait(10)
        desk.queue.cancel_session("s1")
        eventually(lambda: not worker.keeper.held(), what="the keeper's notice")
        assert worker.lost == [], "a cancelled job is no lost lease"
        gate.decode = lambda requests: [DecodeError("too late")]  # type: ignore[method-assign]
        gate.open.set()
        eventually(lambda: not worker.keeper.held() and worker.activity.may_end, what="the end of the job")
        assert set(worker.outcomes()) <= {"stale", "cancelled"}
    assert desk.listen() == []


def test_lost_audio_is_an_error_event_at_once(desk: Desk, redis_client: redis.Redis, rng: random.Random) -> None:
    desk.store("s1", noise_pcm(rng, 1))
    desk.ask(Kind.FINAL, "s1", 0, 64_000)
    with ThreadWorker(redis_client, LIMITS, scripted()):
        (delivery,) = desk.await_deliveries(1)
    assert delivery.outcome == "dead"
    assert delivery.error is not None
    assert delivery.error["code"] == "audio_missing"


def test_one_faulty_member_of_a_batch_fails_alone(desk: Desk, redis_client: redis.Redis, rng: random.Random) -> None:
    script = Script(base_s=0, per_audio_s=0, faults={111: Fault(do="error"), 222: Fault(do="raise")})
    audio = {f"s{number}": noise_pcm(rng, 1, first=0) for number in range(4)}
    audio["s1"], audio["s3"] = noise_pcm(rng, 1, first=111), noise_pcm(rng, 1, first=222)
    for session, pcm in audio.items():
        desk.final(session, pcm)
    with ThreadWorker(redis_client, LIMITS, scripted(script), max_batch=4) as worker:
        deliveries = {delivery.session: delivery for delivery in desk.await_deliveries(4)}
        eventually(lambda: worker.outcomes() == {"done": 2, "dead": 2, "requeued": 1}, what="the counts")
    assert [deliveries[session].outcome for session in sorted(audio)] == ["done", "dead", "done", "dead"]
    assert text_of(deliveries["s0"].result) == scripted_text(audio["s0"])
    assert deliveries["s1"].attempt == 1, "a fault of the audio itself is not tried again"
    assert deliveries["s3"].attempt == LIMITS.max_attempts
    assert "library is broken" in str(deliveries["s3"].error)


class DropsReplies(redis.Redis):
    """A client that loses the reply of chosen commands after the server has carried them out."""

    def lose(self, count: int, matches: Callable[[Sequence[Any]], bool]) -> None:
        self.left, self.matches = count, matches

    def execute_command(self, *args: Any, **options: Any) -> Any:
        reply = super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
        if getattr(self, "left", 0) and self.matches(args) and (not isinstance(reply, list) or len(reply) > 1):
            self.left -= 1
            raise redis.ConnectionError("the reply was lost")
        return reply


def test_a_lost_claim_reply_loses_no_job(desk: Desk, redis_url: str, rng: random.Random) -> None:
    base = connect(redis_url)
    client = DropsReplies(connection_pool=base.connection_pool)
    client.lose(1, lambda args: args[0] in ("EVALSHA", "EVAL") and "lossy" in args)
    pcm = noise_pcm(rng, 1)
    desk.final("s1", pcm)
    with ThreadWorker(client, LIMITS, scripted(), name="lossy"):
        (delivery,) = desk.await_deliveries(1)
    assert client.left == 0, "no reply was lost, so nothing was tested"
    assert (delivery.attempt, text_of(delivery.result)) == (1, scripted_text(pcm))
    base.close()


def test_a_restart_of_redis_is_survived(tmp_path: Path, rng: random.Random) -> None:
    """The result of a decode that ended while Redis was away is delivered when it is back with its data."""
    server = RedisServer(data_dir=tmp_path)
    url = server.start()
    client = connect(url)
    gate = Gate()
    limits = QueueLimits(lease_ms=20_000)
    try:
        client.config_set("appendfsync", "always")
        with desk_at(url, limits) as desk:
            pcm = noise_pcm(rng, 1)
            job = desk.final("s1", pcm)
            with ThreadWorker(client, limits, gate) as worker:
                assert gate.entered.wait(10)
                server.kill()
                gate.open.set()
                failed = lambda: worker.metrics.redis_failures.labels("complete")._value.get() >= 1  # noqa: E731
                eventually(failed, 20, "an attempt to report")
                server.start()
                desk.await_state(job, "done")
                (event,) = desk.queue.events("s1")
                assert (event.attempt, text_of(event.result)) == (1, scripted_text(pcm))
                with suppress(QueueUnavailable):  # once for a connection from before, whoever uses it first
                    desk.store("s2", pcm)
                again = desk.final("s2", pcm)
                desk.await_state(again, "done")
    finally:
        client.close()
        server.stop()


def test_a_draining_worker_gives_back_what_it_has_not_begun(
    desk: Desk, redis_client: redis.Redis, rng: random.Random
) -> None:
    job = desk.final("s1", noise_pcm(rng, 1))
    worker = ThreadWorker(redis_client, LIMITS, scripted())
    claim = worker.queue.claim

    def claim_then_stop(*args: Any, **options: Any) -> Any:
        leases = claim(*args, **options)
        worker.stop.request()
        return leases

    worker.queue.claim = claim_then_stop  # type: ignore[method-assign]
    with worker:
        eventually(lambda: worker.outcomes() == {"released": 1}, what="the release")
    assert desk.queue.job_state(job) == "queued"
    with ThreadWorker(redis_client, LIMITS, scripted(), name="w2"):
        (delivery,) = desk.await_deliveries(1)
    assert delivery.attempt == 1, "an attempt that never began is not counted"
