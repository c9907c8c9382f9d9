"""Waiting without polling: ready work implies a worker that wakes, and an idle queue costs next to nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import redis

from queueing.clock import ManualClock
from queueing.connect import connect
from queueing.errors import QueueUnavailable
from queueing.job_queue import JobQueue, QueueLimits
from queueing.rescue import Rescuer
from tests.support.eventually import eventually
from tests.support.queue_jobs import START_MS, claim_one, final, nonce, partial

Crew = Callable[..., list[str]]


@pytest.fixture
def queue(redis_client: redis.Redis) -> JobQueue:
    return JobQueue(redis_client)


def tokens(client: redis.Redis, queue: JobQueue) -> int:
    return client.llen(queue.keys.wake)


def blocked(client: redis.Redis) -> int:
    return int(client.info("clients")["blocked_clients"])


@pytest.fixture
def crew(redis_url: str) -> Iterator[Crew]:
    """``crew(n)``: n workers that wait and claim, each on its own connection; returns the list of ids they took.
    ``crew(n, busy)``: each claims only when it is woken, and is at work on what it took until the event is set."""
    stop = threading.Event()
    threads: list[threading.Thread] = []
    clients: list[redis.Redis] = []
    taken: list[str] = []

    def work(client: redis.Redis, name: str, busy: threading.Event | None) -> None:
        queue = JobQueue(client)
        while not stop.is_set():
            if busy is not None and not queue.wait(5.0):
                continue
            leases = queue.claim(name, nonce())
            taken.extend(lease.job.id for lease in leases)
            if busy is not None:
                busy.wait(20)
            elif not leases:
                queue.wait(5.0)

    def hire(count: int, busy: threading.Event | None = None) -> list[str]:
        for number in range(count):
            clients.append(connect(redis_url))
            threads.append(threading.Thread(target=work, args=(clients[-1], f"crew-{number}", busy)))
            threads[-1].start()
        return taken

    yield hire
    stop.set()
    with connect(redis_url) as client:
        client.lpush(JobQueue(client).keys.wake, *["stop"] * max(1, len(threads)))
    for thread in threads:
        thread.join()
    for client in clients:
        client.close()


def test_an_enqueue_wakes_a_blocked_worker(queue: JobQueue, redis_client: redis.Redis, crew: Crew) -> None:
    taken = crew(1)
    eventually(lambda: blocked(redis_client) == 1, what="the worker blocks")
    queue.enqueue(final("s"))
    eventually(lambda: taken == ["s:f:0"], timeout_s=2, what="the job is taken well before the wait would end")


def test_one_coalesced_token_is_passed_on_until_no_work_is_left(
    queue: JobQueue, redis_client: redis.Redis, crew: Crew
) -> None:
    for number in range(3):
        queue.enqueue(final(f"s{number}"))
    redis_client.ltrim(queue.keys.wake, 0, 0)
    taken = crew(3)
    eventually(lambda: len(taken) == 3 and blocked(redis_client) == 3, timeout_s=3, what="all jobs are taken")
    assert tokens(redis_client, queue) == 0


def test_one_coalesced_token_wakes_three_workers_one_after_the_other(
    queue: JobQueue, redis_client: redis.Redis, crew: Crew
) -> None:
    """Each is at work on what it took: only the token that a claim leaves behind can wake the next."""
    for number in range(3):
        queue.enqueue(final(f"s{number}"))
    redis_client.delete(queue.keys.wake)
    busy = threading.Event()
    taken = crew(3, busy)
    eventually(lambda: blocked(redis_client) == 3, what="all block")
    redis_client.lpush(queue.keys.wake, 1)
    try:
        eventually(lambda: len(taken) == 3, what="each is woken")
    finally:
        busy.set()
    assert sorted(taken) == ["s0:f:0", "s1:f:0", "s2:f:0"]


def test_a_burst_reaches_every_idle_worker(queue: JobQueue, redis_client: redis.Redis, crew: Crew) -> None:
    taken = crew(4)
    eventually(lambda: blocked(redis_client) == 4, what="all block")
    for number in range(40):
        queue.enqueue(final(f"s{number}"))
    eventually(lambda: len(taken) == 40 and blocked(redis_client) == 4, timeout_s=5, what="all are taken")
    assert sorted(taken) == sorted(f"s{number}:f:0" for number in range(40))


def test_waiting_ends_when_the_time_is_up(queue: JobQueue) -> None:
    assert queue.wait(0.05) is False
    assert queue.wait(0) is False
    queue.enqueue(final("s"))
    assert queue.wait(0) is True


def test_a_wait_is_shorter_than_the_socket_timeout(redis_url: str) -> None:
    """Else the client would give up first, and a client that retries would send the wait again and again."""
    with redis.Redis.from_url(redis_url, socket_timeout=0.5) as client:
        assert JobQueue(client).wait(5.0) is False


def test_an_unreachable_redis_ends_the_wait(redis_url: str) -> None:
    client = connect("redis://127.0.0.1:1/0")
    with pytest.raises(QueueUnavailable):
        JobQueue(client).wait(1.0)
    client.close()


def test_claims_rearm_while_work_is_left_and_clear_when_none_is(queue: JobQueue, redis_client: redis.Redis) -> None:
    for number in range(2):
        queue.enqueue(final(f"s{number}"))
    redis_client.delete(queue.keys.wake)
    claim_one(queue)
    assert tokens(redis_client, queue) == 1
    claim_one(queue)
    assert tokens(redis_client, queue) == 0


def test_the_wake_list_is_capped(queue: JobQueue, redis_client: redis.Redis) -> None:
    for number in range(200):
        queue.enqueue(final(f"s{number}"))
    assert tokens(redis_client, queue) == 64


def test_every_way_back_into_a_lane_wakes(queue: JobQueue, redis_client: redis.Redis) -> None:
    def comes_back(how: Callable[[], object]) -> None:
        redis_client.delete(queue.keys.wake)
        how()
        assert tokens(redis_client, queue) >= 1

    queue.enqueue(final("s"), now_ms=START_MS)
    lease = claim_one(queue, now_ms=START_MS)
    comes_back(lambda: queue.release([lease]))
    again = claim_one(queue, now_ms=START_MS)
    comes_back(lambda: queue.fail(again, "decode_failed", "x"))
    claim_one(queue, now_ms=START_MS)
    comes_back(lambda: queue.sweep(now_ms=START_MS + 10_001))
    comes_back(lambda: queue.set_policy("edf"))
    comes_back(lambda: queue.sweep(now_ms=START_MS + 10_002))
    queue.fail(claim_one(queue), "decode_failed", "x", retry=False)
    comes_back(lambda: queue.retry_dead("s:f:0"))
    queue.enqueue(partial("t", 1), now_ms=START_MS)
    comes_back(lambda: queue.enqueue(partial("t", 2, 9.0)))


def test_an_idle_worker_costs_under_two_commands_a_second(redis_client: redis.Redis, rng: object) -> None:
    """Counted by Redis itself, commands inside scripts included, for a minute of an idle worker's calls."""
    clock, queue = ManualClock(), JobQueue(redis_client, limits=QueueLimits(lease_ms=10_000))
    queue.enqueue(final("s"))
    queue.complete(claim_one(queue), {}, decode_ms=1)
    queue.cancel_session("s")
    queue.heartbeat("w", {"state": "ready"})
    rescuer = Rescuer(queue, clock, rng)  # type: ignore[arg-type]
    seconds = 60
    queue.sweep()
    queue.claim("w", nonce())
    before = int(redis_client.info("stats")["total_commands_processed"])
    for second in range(seconds):
        clock.advance(1)
        rescuer.tick()
        if second % 2 == 0:
            queue.heartbeat("w", {"state": "ready"})
        if second % 5 == 0:
            assert queue.claim("w", nonce()) == ()
            assert queue.wait(0) is False
    commands = int(redis_client.info("stats")["total_commands_processed"]) - before
    assert commands / seconds < 2, f"{commands} commands in {seconds} s"
