"""A flood of partials, and a client that floods finals: what others' finals wait, in the queue's own time.

One worker in simulated time on a real queue, so that the figures compare orders and not the machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

import pytest
import redis

from queueing.job import NewJob
from queueing.job_queue import JobQueue
from queueing.lane import Kind
from sessions.decodes import MIN_QUEUED_FINALS
from sessions.limits import MAX_WAITING_FINALS
from tests.support.queue_jobs import START_MS, final, nonce, partial

COST_MS = {Kind.PARTIAL: 150, Kind.FINAL: 200}
SECONDS = 20

Arrivals = list[tuple[int, int, NewJob]]


def waits_ms(
    queue: JobQueue,
    arrivals: Arrivals,
    watched: Callable[[NewJob], bool],
    on_done: Callable[[NewJob], NewJob | None] = lambda _job: None,
) -> list[int]:
    """From enqueue to claim of each watched job. ``on_done`` gives what its session asks for then."""
    heapq.heapify(arrivals)
    now, waits = START_MS, list[int]()
    while arrivals or queue.stats().waiting:
        while arrivals and arrivals[0][0] <= now:
            at, _, job = heapq.heappop(arrivals)
            queue.enqueue(job, now_ms=at)
        leases = queue.claim("w", nonce(), now_ms=now)
        if not leases:
            now = arrivals[0][0]
            continue
        (lease,) = leases
        if watched(lease.job):
            waits.append(now - lease.arrival_ms)
        now += COST_MS[lease.job.kind]
        queue.complete(lease, {"text": ""}, decode_ms=COST_MS[lease.job.kind], now_ms=now)
        if (following := on_done(lease.job)) is not None:
            queue.enqueue(following, now_ms=now)
        if now > START_MS + SECONDS * 1_000:
            break
    return waits


def p95(values: list[int]) -> float:
    return sorted(values)[round(0.95 * (len(values) - 1))]


def some_finals() -> Arrivals:
    return [(START_MS + 1_470 * n, n, final(f"speaker-{n}")) for n in range(1, SECONDS * 1_000 // 1_470)]


def flood_of_partials() -> Iterator[tuple[int, int, NewJob]]:
    """From 27 live streams, each second: four times what the worker can decode."""
    for second in range(SECONDS):
        for number in range(27):
            at = START_MS + 1_000 * second + 37 * number
            yield at, 10_000 + 100 * second + number, partial(f"stream-{number}", second)


@pytest.mark.parametrize("policy", ["priority", "strict", "boost"])
def test_finals_wait_for_the_running_partial_and_for_no_other(redis_client: redis.Redis, policy: str) -> None:
    def is_final(job: NewJob) -> bool:
        return job.kind is Kind.FINAL

    alone = waits_ms(JobQueue(redis_client, policy=policy), some_finals(), is_final)
    redis_client.flushall()
    flooded = waits_ms(JobQueue(redis_client, policy=policy), [*some_finals(), *flood_of_partials()], is_final)
    assert len(flooded) >= len(alone) - 1
    assert p95(flooded) <= p95(alone) + COST_MS[Kind.PARTIAL]
    redis_client.flushall()
    in_order = waits_ms(JobQueue(redis_client, policy="fcfs"), [*some_finals(), *flood_of_partials()], is_final)
    assert p95(in_order) > 10 * p95(flooded), "in arrival order they wait for the flood"


def test_a_client_that_floods_finals_costs_its_neighbour_a_decode_or_two(redis_client: redis.Redis) -> None:
    def beside_a_client_with(most_queued: int) -> float:
        redis_client.flushall()
        asked = iter(range(most_queued, 10_000))
        arrivals = [(START_MS, n, final("greedy", n)) for n in range(most_queued)]
        neighbours = [(at + 53, 1_000 + n, job) for at, n, job in some_finals()]

        def next_of_the_greedy(job: NewJob) -> NewJob | None:
            return final("greedy", next(asked)) if job.session == "greedy" else None

        waits = waits_ms(
            JobQueue(redis_client), [*arrivals, *neighbours], lambda job: job.session != "greedy", next_of_the_greedy
        )
        assert len(waits) > 8
        return p95(waits)

    held_back, all_at_once = beside_a_client_with(MIN_QUEUED_FINALS), beside_a_client_with(MAX_WAITING_FINALS)
    assert held_back <= 2 * COST_MS[Kind.FINAL]
    assert held_back < all_at_once / 3
