"""The worked example in docs/scheduling.md is what Redis really holds."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import redis

from queueing.job import NewJob
from queueing.job_queue import JobQueue
from queueing.lane import Kind

DOC = Path(__file__).resolve().parents[2] / "docs" / "scheduling.md"
START_MS = 1_760_000_000_000
JOBS = [
    # id, kind, audio s, arrival ms
    ("ann:p:1", Kind.PARTIAL, 5.8, 0),
    ("bob:p:1", Kind.PARTIAL, 5.9, 900),
    ("cy:f:0", Kind.FINAL, 7.5, 1_500),
    ("dee:f:0", Kind.FINAL, 2.0, 10_600),
]


def _examples() -> list[tuple[list[str], list[str]]]:
    """(command, printed values) of every prompt in the console blocks, in order."""
    found: list[tuple[list[str], list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", DOC.read_text(), re.DOTALL):
        for part in block.split("$ ")[1:]:
            command, *output = part.strip().splitlines()
            found.append((shlex.split(command), [re.sub(r'^\d+\) "(.*)"$', r"\1", line) for line in output]))
    return found


def _fill(queue: JobQueue) -> None:
    for name, kind, audio_s, after in JOBS:
        end = int(audio_s * 32_000)
        session = name.split(":")[0]
        job = NewJob(name, session, kind, 0, start_byte=0, end_byte=end, audio_s=audio_s, front="web")
        queue.enqueue(job, now_ms=START_MS + after)


def test_the_console_blocks_print_what_redis_holds(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, "main", policy="priority")
    _fill(queue)

    examples = [
        (command, output) for command, output in _examples() if command[:3] != ["python", "-m", "queueing.bench"]
    ]
    call: Any = redis_client.execute_command
    assert len(examples) >= 6
    for command, output in examples:
        if command[:3] == ["hearline", "queue", "policy"]:
            queue.set_policy(command[3], now_ms=START_MS + 11_000)
            continue
        assert command[0] == "redis-cli"
        reply = call(*command[1:])
        assert [value.decode() for value in reply] == output, " ".join(command)


def test_the_claims_come_in_the_order_it_explains(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, "main", policy="priority")
    _fill(queue)
    claimed = [queue.claim("w", str(n), now_ms=START_MS + 11_000)[0] for n in range(2)]
    assert [lease.job.id for lease in claimed] == ["cy:f:0", "ann:p:1"]
    queue.release(claimed)

    in_order = [queue.claim("w", f"p{n}", now_ms=START_MS + 11_000)[0].job.id for n in range(4)]
    assert in_order == ["cy:f:0", "ann:p:1", "dee:f:0", "bob:p:1"]


def test_the_other_policy_claims_as_it_explains(redis_client: redis.Redis) -> None:
    queue = JobQueue(redis_client, "main", policy="hrrn")
    _fill(queue)

    in_order = [queue.claim("w", str(n), now_ms=START_MS + 11_000)[0].job.id for n in range(4)]
    assert in_order == ["cy:f:0", "dee:f:0", "ann:p:1", "bob:p:1"]
