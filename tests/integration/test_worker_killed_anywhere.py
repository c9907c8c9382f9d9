"""A worker that is killed at any step between claim and completion costs one lease and no word, and nothing twice.

A proxy before Redis knows where the worker is: it holds the command, or its answer, and the worker dies right there.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from queueing.job_queue import JobQueue, QueueLimits
from queueing.scripts import load_script
from queueing.verbs import VERBS
from sessions.scripts import LUA
from tests.support.eventually import eventually
from tests.support.standstill import stop
from tests.support.tripwire import Tripwire
from tests.support.workers import Desk, ThreadWorker, WorkerProcess, noise_pcm, scripted, tidy_desk_at, worker_process
from workers.lifecycle import EXIT_DONE
from workers.scripted import scripted_text

LEASE_S = 1
LIMITS = QueueLimits(lease_ms=LEASE_S * 1000, max_attempts=4)
FAST = {"base_s": 0.0, "per_audio_s": 0.0}
CLAIM, SWEEP, COMPLETE = (load_script(name).sha for name in ("claim", "sweep", "complete"))
READ = load_script("read", LUA).sha

STEPS = {
    "before the claim arrives": (CLAIM, None, 1),
    "before the claim's reply arrives": (CLAIM, b"JOBS", 2),
    "before it asks for the audio": (READ, None, 2),
    "before the audio arrives": (READ, b"OK", 2),
    "before it completes": (COMPLETE, None, 2),
    "before it hears that it completed": (COMPLETE, b"DONE", 1),
}
"""Script, what its answer holds (None: the command itself is held), and the attempt that is the last one then."""


@pytest.fixture
def desk(redis_url: str, redis_client: redis.Redis) -> Iterator[Desk]:
    for verb in VERBS:  # so that each is named by its digest from the first call on
        redis_client.script_load(load_script(verb.SCRIPT).source)
    redis_client.script_load(load_script("read", LUA).source)
    with tidy_desk_at(redis_url, LIMITS) as desk:
        yield desk


def rescue(desk: Desk, redis_client: redis.Redis, count: int = 1) -> None:
    """Another worker takes over until ``count`` results were published."""
    with ThreadWorker(redis_client, LIMITS, scripted()):

        def published() -> bool:
            desk.queue.sweep()
            return len(desk.listen()) >= count

        eventually(published, 30, f"{count} result(s)")
        assert at_rest(desk.queue)


def at_rest(queue: JobQueue) -> bool:
    eventually(lambda: not queue.stats().leases and not queue.stats().waiting, what="nothing left to do")
    return True


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_step_the_final_comes_once_and_whole(
    desk: Desk, redis_url: str, redis_client: redis.Redis, tmp_path: Path, rng: random.Random, step: str
) -> None:
    digest, reply, attempts = STEPS[step]
    pcm = noise_pcm(rng, 2)
    victims: list[WorkerProcess] = []
    wire = Tripwire(redis_url, digest, lambda: victims[0].send(signal.SIGKILL), reply=reply)
    wire.armed.clear()
    with wire, worker_process(wire.url, tmp_path, FAST, lease_s=LEASE_S, attempts=4) as victim:
        victims.append(victim)
        victim.await_ready(desk.queue)
        wire.armed.set()
        desk.final("s1", pcm)
        assert victim.await_exit() == -signal.SIGKILL
        assert wire.tripped.is_set()
    rescue(desk, redis_client)
    (delivery,) = desk.listen()
    assert delivery.result is not None
    assert (delivery.result["text"], delivery.attempt) == (scripted_text(pcm), attempts)
    assert [event.result for event in desk.queue.events("s1")] == [delivery.result]


@pytest.mark.parametrize("reply", [None, b"OK\r\n:1\r\n"], ids=["before", "after"])
def test_a_sweeper_that_is_killed_while_sweeping_stops_nobody(
    desk: Desk, redis_url: str, redis_client: redis.Redis, tmp_path: Path, rng: random.Random, reply: bytes | None
) -> None:
    pcm = noise_pcm(rng, 1)
    victims: list[WorkerProcess] = []
    wire = Tripwire(redis_url, SWEEP, lambda: victims[0].send(signal.SIGKILL), reply=reply)
    wire.armed.clear()
    with wire, worker_process(wire.url, tmp_path, FAST, lease_s=LEASE_S, attempts=4) as victim:
        victims.append(victim)
        victim.await_ready(desk.queue)
        stop(victim.pid)
        desk.final("s1", pcm)
        (lost,) = desk.queue.claim("gone", "n")
        eventually(lambda: desk.redis_ms() > lost.lease_until_ms, what="the end of its lease")
        wire.armed.set()
        victim.send(signal.SIGCONT)
        assert victim.await_exit() == -signal.SIGKILL
    rescue(desk, redis_client)
    assert [delivery.result and delivery.result["text"] for delivery in desk.listen()] == [scripted_text(pcm)]


def test_sigterm_while_claiming_gives_back_what_comes_with_the_claim(
    desk: Desk, redis_url: str, redis_client: redis.Redis, tmp_path: Path, rng: random.Random
) -> None:
    victims: list[WorkerProcess] = []

    def drain() -> None:
        victims[0].send(signal.SIGTERM)
        victims[0].await_log('"draining"')

    wire = Tripwire(redis_url, CLAIM, drain, reply=b"JOBS", go_on=True)
    with wire, worker_process(wire.url, tmp_path, FAST, drain_s=60) as victim:
        victims.append(victim)
        victim.await_ready(desk.queue)
        job = desk.final("s1", noise_pcm(rng, 1))
        assert victim.await_exit() == EXIT_DONE
        assert wire.tripped.is_set()
    record = desk.queue.job(job)
    assert record is not None
    assert (record.state, record.attempts) == ("queued", 0), "given back as if it had never been claimed"
    rescue(desk, redis_client)
    assert len(desk.listen()) == 1
