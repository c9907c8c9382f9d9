"""What the queue's verbs cost: Redis time of a claim, round trips of each verb, time until an idle worker has a job."""

from __future__ import annotations

import itertools
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import redis

from queueing.bench_redis import BenchError, CountedClient, Summary, blocked_clients, script_time
from queueing.connect import WAIT_LIMIT_S, connect
from queueing.job import CompleteStatus, EnqueueStatus, NewJob
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import PADDING_S, all_lanes

Progress = Callable[[str], None]

LIMITS = QueueLimits(lease_ms=600_000, max_queued=1_000_000)
RESULT: dict[str, object] = {
    "text": "after early nightfall the yellow lamps would light up here and there",
    "language": "en",
    "model": "tiny.en",
    "words": [],
}
"""A result of ordinary size."""

QUEUE = "bench"
BURST = 10
"""Claims between two readings of the server's clock."""
AUDIO_BYTES_PER_S = 32_000
LANES = [lane for lane in all_lanes() if lane.window_s > PADDING_S]
"""The lanes that audio can be in."""


def job(session: str, number: int, rng: random.Random) -> NewJob:
    """A job of a random lane, the only one of its session."""
    lane = rng.choice(LANES)
    audio_s = float(lane.window_s) - PADDING_S - 0.5 * rng.random()
    return NewJob(
        id=f"{session}:{lane.kind[0]}:{number}",
        session=session,
        kind=lane.kind,
        segment=0,
        start_byte=0,
        end_byte=int(audio_s * AUDIO_BYTES_PER_S) // 2 * 2,
        audio_s=audio_s,
        front="bench",
    )


def fill(queue: JobQueue, begin: int, end: int, rng: random.Random) -> None:
    """Enqueue jobs number ``begin`` to ``end`` - 1, spread over all lanes."""
    for number in range(begin, end):
        status = queue.enqueue(job(f"s{number}", number, rng)).status
        if status is not EnqueueStatus.QUEUED:
            raise BenchError(f"job {number} was not queued but {status}")


def claim_us(
    url: str, policies: Sequence[str], sizes: Sequence[int], repeats: int, claims: int, progress: Progress
) -> dict[str, dict[int, Summary]]:
    """Redis's own microseconds for a claim of one job, by policy and number of queued jobs.

    One queue is filled size after size, and each policy is put in force on it (queued jobs are rescored). The server's
    time is read after every `BURST` claims, and the jobs are then given back, so that at least 90 % of the
    named number stay queued. One repeat is the median of its bursts: a burst during which the server lost its CPU to
    another process says nothing about the claim.
    """
    client = connect(url)
    queue = JobQueue(client, QUEUE, LIMITS)
    rng = random.Random(1)
    figures: dict[str, dict[int, Summary]] = {policy: {} for policy in policies}
    queued = 0
    for size in sorted(sizes):
        progress(f"claim: queueing {size} jobs")
        fill(queue, queued, size, rng)
        queued = size
        for policy in policies:
            queue.set_policy(policy)
            burst = min(BURST, max(1, size // 10))
            figures[policy][size] = Summary.of(
                [statistics.median(_bursts(client, queue, claims // burst, burst)) for _ in range(repeats)]
            )
            progress(f"claim: {policy} with {size} queued: {figures[policy][size].median:.1f} us")
    client.flushdb()
    client.close()
    return figures


def _bursts(client: redis.Redis, queue: JobQueue, count: int, burst: int) -> list[float]:
    samples = []
    for number in range(count):
        _, before = script_time(client)
        leases = [lease for n in range(burst) for lease in queue.claim(QUEUE, f"{number}-{n}")]
        _, after = script_time(client)
        if len(leases) != burst:
            raise BenchError(f"{burst} claims returned {len(leases)} jobs")
        samples.append((after - before) / burst)
        queue.release(leases)
    return samples


def round_trips(url: str, jobs: int) -> dict[str, float]:
    """Round trips for one enqueue, claim and complete: the mean over ``jobs`` jobs after a first one."""
    counted = CountedClient(url)
    queue = JobQueue(counted.client, QUEUE, LIMITS)
    rng = random.Random(2)
    sums = {"enqueue": 0, "claim": 0, "complete": 0}
    for number in range(jobs + 1):
        marks = [counted.round_trips]
        queue.enqueue(job(f"r{number}", number, rng))
        marks.append(counted.round_trips)
        (lease,) = queue.claim(QUEUE, f"n{number}")
        marks.append(counted.round_trips)
        status = queue.complete(lease, RESULT, decode_ms=1.0)
        marks.append(counted.round_trips)
        if status is not CompleteStatus.DONE:
            raise BenchError(f"job {number} was not completed but {status}")
        if number > 0:  # the first call loads the scripts
            for verb, (start, end) in zip(sums, itertools.pairwise(marks), strict=True):
                sums[verb] += end - start
    counted.client.flushdb()
    counted.client.close()
    return {verb: total / jobs for verb, total in sums.items()}


def dispatch_ms(url: str, samples: int) -> list[float]:
    """Milliseconds from the call of enqueue to the return of the claim in another, idle, process; sorted.

    The worker process is blocked in `JobQueue.wait` before each enqueue: the server says so. Both processes
    read the machine's one monotonic clock.
    """
    client = connect(url)
    queue = JobQueue(client, QUEUE, LIMITS)
    rng = random.Random(3)
    others = blocked_clients(client)
    pause = threading.Event()
    times: list[float] = []
    with subprocess.Popen(
        [sys.executable, "-m", "queueing.bench_claims", url, str(samples)], stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        for number in range(samples):
            while blocked_clients(client) <= others:
                if worker.poll() is not None:
                    raise BenchError(f"the idle worker ended with status {worker.returncode}")
                pause.wait(0.002)
            began = time.monotonic_ns()
            queue.enqueue(job(f"d{number}", number, rng))
            times.append((int(worker.stdout.readline()) - began) / 1e6)
    client.flushdb()
    client.close()
    return sorted(times)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which ``share`` (0 to 1) of the sorted values lie, interpolated."""
    return statistics.quantiles(ordered, n=100, method="inclusive")[round(share * 100) - 1]


def idle_worker(url: str, jobs: int) -> None:
    """Wait for work, claim it, say when, complete it; ``jobs`` times."""
    queue = JobQueue(connect(url), QUEUE, LIMITS)
    done = attempts = 0
    while done < jobs:
        attempts += 1
        leases = queue.claim("idle", str(attempts))
        if not leases:
            queue.wait(WAIT_LIMIT_S)
            continue
        sys.stdout.write(f"{time.monotonic_ns()}\n")
        sys.stdout.flush()
        for lease in leases:
            queue.complete(lease, RESULT, decode_ms=1.0)
            done += 1


if __name__ == "__main__":
    idle_worker(sys.argv[1], int(sys.argv[2]))
