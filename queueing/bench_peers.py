"""No-op jobs from end to end, in Hearline and in its peers: each run is a process of its own with one worker in it.

    python -m queueing.bench_peers CONTENDER REDIS_URL JOBS

prints ``{"enqueue_s": ..., "drain_s": ..., "cpu_s": ...}``: the seconds to enqueue so many jobs, one call each, then
the seconds in which one worker finishes them all, and this process's CPU seconds in both. A short warm-up goes before,
so imports, connections and script loading are not counted. Each peer runs the way its documentation recommends for
throughput:

- rq: ``SimpleWorker`` (no fork for each job) in burst mode.
- huey: ``PriorityRedisHuey`` (sorted set, BZPOPMIN), its consumer with one worker thread, no periodic tasks.
- saq: its asyncio worker with the default concurrency of 10, jobs enqueued 20 at a time as its own limit allows.
- hearline: finals; enqueue, claim under a lease, fenced completion with durable event and publish.

A job does nothing and returns `RESULT`, which each system stores where its client can fetch it. Not comparable, and
shown apart: ``hearline_batch_8`` claims up to 8 jobs of a lane at once; ``huey_no_result`` returns None, which huey
does not store.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from queueing.bench_claims import LIMITS, QUEUE, RESULT
from queueing.connect import connect
from queueing.job import CompleteStatus, EnqueueStatus, NewJob
from queueing.job_queue import JobQueue
from queueing.lane import Kind
from queueing.records import Completion

WARM_UP_JOBS = 50
PEERS = ("rq", "huey", "saq")
FINISH_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds to enqueue, to finish all jobs, and of this process's CPU."""

    enqueue_s: float
    drain_s: float
    cpu_s: float

    @staticmethod
    def between(began: Instant, queued: Instant, ended: Instant) -> Times:
        """From three readings of `instant`."""
        return Times(queued[0] - began[0], ended[0] - queued[0], ended[1] - began[1])


Instant = tuple[float, float]


def instant() -> Instant:
    """(wall, CPU of this process) in seconds; differences only."""
    return time.perf_counter(), time.process_time()


class Unfinished(Exception):
    """A contender did not run every job."""

    def __init__(self, contender: str, jobs: int, done: int) -> None:
        super().__init__(f"{contender} finished {done} of {jobs} jobs")


def noop() -> dict[str, object]:
    """The job."""
    return RESULT


def run_rq(url: str, jobs: int) -> Times:
    """No-ops with rq."""
    import redis
    from rq import Queue, SimpleWorker

    client = redis.Redis.from_url(url)
    queue = Queue("bench", connection=client)

    def once(count: int) -> Times:
        worker: Any = SimpleWorker([queue], connection=client)
        began = instant()
        for _ in range(count):
            queue.enqueue("queueing.bench_peers.noop")
        queued = instant()
        worker.work(burst=True, logging_level="ERROR")
        ended = instant()
        worker.refresh()
        if (done := worker.successful_job_count) != count:
            raise Unfinished("rq", count, done)
        return Times.between(began, queued, ended)

    once(WARM_UP_JOBS)
    return once(jobs)


def run_huey(url: str, jobs: int, result: object = RESULT) -> Times:
    """No-ops with huey; a job returns ``result``, and only None is not stored."""
    from huey import PriorityRedisHuey

    huey = PriorityRedisHuey("bench", url=url)
    finished = threading.Event()
    left = 0

    def count_down() -> object:
        nonlocal left
        left -= 1
        if left == 0:
            finished.set()
        return result

    task: Callable[[], Any] = huey.task()(count_down)

    def once(count: int) -> Times:
        nonlocal left
        left = count
        finished.clear()
        consumer = huey.create_consumer(workers=1, worker_type="thread", periodic=False)
        began = instant()
        for _ in range(count):
            task()
        queued = instant()
        consumer.start()
        if not finished.wait(FINISH_LIMIT_S):
            raise Unfinished("huey", count, count - left)
        ended = instant()
        consumer.stop(graceful=True)
        return Times.between(began, queued, ended)

    once(WARM_UP_JOBS)
    return once(jobs)


def run_saq(url: str, jobs: int) -> Times:
    """No-ops with saq."""
    from saq import Queue, Worker

    async def empty(_context: object) -> object:
        return RESULT

    async def once(count: int) -> Times:
        queue = Queue.from_url(url, name="bench")
        await queue.connect()
        # a starting worker sweeps, at most once a minute, and takes jobs between "moved" and "active" for stuck
        # ones, which then run twice; so the sweep of this minute is made while nothing is queued
        await queue.sweep()
        finished = asyncio.Event()

        async def count_down(_context: object) -> None:
            if queue.complete == count:
                finished.set()

        # short waits of an idle worker, so that it can be stopped; a busy one never waits
        worker = Worker(
            queue, [("noop", empty)], after_process=count_down, dequeue_timeout=0.2, shutdown_grace_period_s=1
        )
        began = instant()
        await asyncio.gather(*(queue.enqueue("noop") for _ in range(count)))
        queued = instant()
        serving = asyncio.create_task(worker.start())
        await asyncio.wait_for(finished.wait(), FINISH_LIMIT_S)
        ended = instant()
        worker.event.set()
        await serving
        await queue.disconnect()
        return Times.between(began, queued, ended)

    asyncio.run(once(WARM_UP_JOBS))
    return asyncio.run(once(jobs))


def run_hearline(url: str, jobs: int, batch: int = 1) -> Times:
    """No-ops with Hearline: finals of ten segments a session, up to ``batch`` a claim."""
    client = connect(url)
    queue = JobQueue(client, QUEUE, LIMITS)

    def once(name: str, count: int) -> Times:
        began = instant()
        for number in range(count):
            session, segment = f"{name}{number // 10}", number % 10
            job = NewJob(
                id=f"{session}:f:{segment}",
                session=session,
                kind=Kind.FINAL,
                segment=segment,
                start_byte=segment * 64_000,
                end_byte=(segment + 1) * 64_000,
                audio_s=2.0,
                front="bench",
            )
            if queue.enqueue(job).status is not EnqueueStatus.QUEUED:
                raise Unfinished("hearline", count, 0)
        queued = instant()
        done = claims = 0
        while done < count:
            claims += 1
            leases = queue.claim("bench", f"{name}{claims}", max_jobs=batch)
            if not leases:
                raise Unfinished("hearline", count, done)
            statuses = queue.complete_all([Completion.of(lease, RESULT, decode_ms=0.0) for lease in leases])
            if set(statuses) != {CompleteStatus.DONE}:
                raise Unfinished("hearline", count, done)
            done += len(leases)
        ended = instant()
        return Times.between(began, queued, ended)

    once("warm", WARM_UP_JOBS)
    return once("run", jobs)


CONTENDERS: dict[str, Callable[[str, int], Times]] = {
    "hearline": run_hearline,
    "rq": run_rq,
    "huey": run_huey,
    "saq": run_saq,
    "hearline_batch_8": lambda url, jobs: run_hearline(url, jobs, batch=8),
    "huey_no_result": lambda url, jobs: run_huey(url, jobs, result=None),
}


def main(arguments: list[str]) -> None:
    """Run one contender and print its times as JSON."""
    name, url, jobs = arguments[0], arguments[1], int(arguments[2])
    logging.disable(logging.WARNING)
    sys.stdout.write(json.dumps(asdict(CONTENDERS[name](url, jobs))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
