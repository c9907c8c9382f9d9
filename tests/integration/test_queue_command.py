"""``hearline queue`` on a seeded real queue: what a person sees, what a program reads, what an operator may change."""

from __future__ import annotations

import json
import random
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from ops.cli import main
from ops.runtime import Runtime
from queueing.clock import SystemClock
from queueing.job import NewJob
from queueing.job_queue import JobQueue
from queueing.lane import Kind, all_lanes
from queueing.local_redis import free_port
from queueing.policies import POLICIES
from tests.support.up_process import HearlineProcess


def job(name: str, kind: Kind, audio_s: float, *, session: str | None = None) -> NewJob:
    return NewJob(
        id=name, session=session or f"session-{name}", kind=kind, segment=0, start_byte=0,
        end_byte=int(audio_s * 32_000), audio_s=audio_s, front="web-1",
    )  # fmt: skip


@pytest.fixture
def queue(redis_client: redis.Redis) -> JobQueue:
    """One lease, one dead job, five waiting jobs in four lanes, two workers."""
    queue = JobQueue(redis_client)
    queue.enqueue(job("poison", Kind.FINAL, 3.0))
    (lease,) = queue.claim("worker-a", "n1")
    queue.fail(lease, "decode_failed", "the model could not read it", retry=False)
    queue.enqueue(job("running", Kind.FINAL, 7.5))
    queue.claim("worker-a", "n2")
    for name, kind, audio_s in (
        ("f1", Kind.FINAL, 7.5),
        ("f2", Kind.FINAL, 7.9),
        ("p1", Kind.PARTIAL, 1.5),
        ("p2", Kind.PARTIAL, 6.0),
        ("x1", Kind.FILE, 27.0),
    ):
        queue.enqueue(job(name, kind, audio_s))
    queue.heartbeat("worker-a", {"state": "busy", "model": "tiny.en", "decodes": 12, "last_decode_ms": 310.4})
    queue.heartbeat("worker-b", {"state": "loading"})
    return queue


@pytest.fixture
def hearline(redis_url: str, tmp_path: Path) -> Callable[..., Result]:
    """Runs ``hearline ARGUMENTS`` on the test's Redis."""

    def run(*arguments: str, status: int = 0, **environment: str) -> Result:
        values = {"REDIS_URL": redis_url, "HEARLINE_STATE_DIR": str(tmp_path), **environment}
        result = CliRunner().invoke(main, list(arguments), obj=Runtime(values, SystemClock()))
        assert result.exit_code == status, result.output
        return result

    return run


def as_json(result: Result) -> Any:
    return json.loads(result.stdout)


def test_the_overview_shows_lanes_workers_leases_dead_and_counts(
    queue: JobQueue, hearline: Callable[..., Result]
) -> None:
    lines = hearline("queue").output.splitlines()
    text = "\n".join(lines)
    assert "policy priority" in lines[0]
    assert {"Lanes", "Workers", "Leases", "Jobs since the queue exists"} <= {line.rstrip() for line in lines}
    assert "5 waiting" in lines[1]
    assert "1 leased" in lines[1]
    assert "1 dead" in lines[1]
    assert re.fullmatch(r"a final that comes now waits about [\d.]+ m?s", lines[2])
    (final_lane,) = [line.split() for line in lines if line.startswith("final:10 ")]
    assert final_lane[1] == "2", "two jobs wait in final:10"
    assert [line.split()[0] for line in lines if line.startswith(("partial:", "file:"))] == [
        "partial:4",
        "partial:8",
        "file:30",
    ]
    assert "lanes are empty and never measured" in text
    (lease,) = [line.split() for line in lines if line.startswith("running ")]
    assert lease[1:3] == ["final:10", "worker-a"]
    (busy,) = [line.split() for line in lines if line.startswith("worker-a ")]
    assert busy[1:6] == ["busy", "tiny.en", "12", "310", "ms"]
    assert "loading" in text
    (counts,) = [line.split() for line in lines if line.startswith("final ")]
    assert counts == ["final", "4", "1"], "queued and dead"
    assert all(f"{lane.name} " in hearline("queue", "--all").output for lane in all_lanes())


def test_the_overview_as_json_has_every_lane_and_agrees_with_the_queue(
    queue: JobQueue, hearline: Callable[..., Result]
) -> None:
    fields = as_json(hearline("queue", "--json"))
    assert fields["policy"]["name"] == "priority"
    assert fields["waiting"] == 5
    assert 600 <= fields["predicted_wait_ms"] <= 900, "two finals by the prior of 300 ms, and what is left of the lease"
    assert fields["dead"] == 1
    assert fields["open_partials"] == 2
    assert [lane["lane"] for lane in fields["lanes"]] == [lane.name for lane in all_lanes()]
    waiting = {lane["lane"]: lane["waiting"] for lane in fields["lanes"] if lane["waiting"]}
    assert waiting == {"final:10": 2, "partial:4": 1, "partial:8": 1, "file:30": 1}
    final = next(lane for lane in fields["lanes"] if lane["lane"] == "final:10")
    rank = queue.policy().ranks[queue.stats().leases[0].lane]
    assert (final["tier"], final["head_start_ms"], final["rate"]) == (rank.tier, rank.head_start_ms, rank.rate)
    assert final["oldest_age_ms"] >= 0
    assert final["cost_learned"] is False
    assert [lease["id"] for lease in fields["leases"]] == ["running"]
    assert {worker["id"]: worker["state"] for worker in fields["workers"]} == {
        "worker-a": "busy",
        "worker-b": "loading",
    }
    assert fields["counts"]["final:queued"] == 4


def test_no_worker_is_said_loudly(redis_client: redis.Redis, hearline: Callable[..., Result]) -> None:
    JobQueue(redis_client).enqueue(job("f", Kind.FINAL, 1.0))
    assert "no worker: nothing is decoded" in hearline("queue").output


def test_looking_at_an_unused_redis_changes_nothing(redis_client: redis.Redis, hearline: Callable[..., Result]) -> None:
    for arguments in ((), ("jobs",), ("dead",), ("policy",)):
        hearline("queue", *arguments, HEARLINE_POLICY="hrrn")
    assert "never used" in hearline("queue").output
    assert as_json(hearline("queue", "--json"))["used"] is False
    assert redis_client.dbsize() == 0


def test_jobs_are_listed_by_lane_session_and_limit(queue: JobQueue, hearline: Callable[..., Result]) -> None:
    def ids(*arguments: str) -> list[str]:
        return [entry["id"] for entry in as_json(hearline("queue", "jobs", "--json", *arguments))]

    assert ids() == ["f1", "f2", "p1", "p2", "x1"]
    assert ids("--limit", "2") == ["f1", "f2"]
    assert ids("--lane", "final:10") == ["f1", "f2"]
    assert ids("--session", "session-p2") == ["p2"]
    assert ids("--session", "session-p2", "--lane", "final:10") == []
    assert ids("--leased") == ["running"]
    text = hearline("queue", "jobs").output
    assert [line.split()[0] for line in text.splitlines()[-5:]] == ["f1", "f2", "p1", "p2", "x1"]
    assert "running" in hearline("queue", "jobs", "--leased").output
    assert hearline("queue", "jobs", "--session", "nobody").output == "no such job\n"


def test_dead_jobs_are_listed_retried_and_dropped(queue: JobQueue, hearline: Callable[..., Result]) -> None:
    text = hearline("queue", "dead").output
    assert "poison" in text
    assert "decode_failed" in text
    assert "the model could not read it" in text
    (entry,) = as_json(hearline("queue", "dead", "--json"))
    assert as_json(hearline("queue", "dead", "list", "--json")) == [entry]
    assert (entry["id"], entry["state"], entry["error_code"]) == ("poison", "dead", "decode_failed")

    assert hearline("queue", "dead", "retry", "poison").output == "retried 1 dead job\n"
    assert queue.job_state("poison") == "queued"
    assert hearline("queue", "dead").output == "no dead job\n"
    failed = hearline("queue", "dead", "retry", "poison", status=1)
    assert "no dead job poison" in failed.output

    claimed = queue.claim("worker-a", "n3", max_jobs=10)
    for lease in claimed:
        queue.fail(lease, "timeout", "too long", retry=False)
    report = as_json(hearline("queue", "dead", "drop", "--all", "--json"))
    assert sorted(report["dropped"]) == sorted(lease.job.id for lease in claimed)
    assert queue.stats().dead == 0
    assert hearline("queue", "dead", "drop", "--all").output == "dropped 0 dead jobs\n"


def test_dead_jobs_are_limited_in_either_way(queue: JobQueue, hearline: Callable[..., Result]) -> None:
    for lease in queue.claim("worker-a", "n3", max_jobs=10):
        queue.fail(lease, "timeout", "too long", retry=False)
    assert len(as_json(hearline("queue", "dead", "--json"))) > 1
    for arguments in (("--limit", "1", "--json"), ("list", "--limit", "1", "--json")):
        assert len(as_json(hearline("queue", "dead", *arguments))) == 1
    for option in (("--json",), ("--limit", "50")):
        said = hearline("queue", "dead", *option, "drop", "--all", status=2).output
        assert "give the options of `queue dead drop` after its name" in said


@pytest.mark.parametrize("verb", ["retry", "drop"])
def test_a_job_that_is_not_dead_is_an_error_and_nothing_else(
    queue: JobQueue, hearline: Callable[..., Result], verb: str
) -> None:
    failed = hearline("queue", "dead", verb, "nobody", status=1)
    assert failed.output == "Error: no dead job nobody; `hearline queue dead` lists them\n"


def test_an_outage_is_said_in_the_same_words_by_every_command(tmp_path: Path) -> None:
    values = {"REDIS_URL": f"redis://127.0.0.1:{free_port()}/0", "HEARLINE_STATE_DIR": str(tmp_path)}
    said = {
        CliRunner().invoke(main, ["queue", *arguments], obj=Runtime(values, SystemClock())).output
        for arguments in ((), ("policy",), ("policy", "hrrn"), ("dead",), ("dead", "retry", "a"), ("jobs",))
    }
    assert len(said) == 1, said
    assert "no answer from Redis at" in said.pop()


@pytest.mark.parametrize("arguments", [("retry",), ("drop",), ("retry", "a", "--all")])
def test_settling_dead_jobs_needs_a_choice(
    queue: JobQueue, hearline: Callable[..., Result], arguments: tuple[str, ...]
) -> None:
    assert "name the jobs, or give --all" in hearline("queue", "dead", *arguments, status=2).output
    assert queue.stats().dead == 1


def test_a_policy_change_keeps_every_job_and_rescores_it(
    redis_client: redis.Redis, hearline: Callable[..., Result], rng: random.Random
) -> None:
    queue = JobQueue(redis_client)
    names = [f"job-{number}" for number in range(60)]
    for name in names:
        kind = rng.choice([Kind.FINAL, Kind.FILE])
        queue.enqueue(job(name, kind, rng.uniform(0.5, 25.0)))
    for policy in rng.sample(sorted(POLICIES), len(POLICIES)):
        report = as_json(hearline("queue", "policy", policy, "--json"))
        assert report["name"] == policy == queue.policy().name
        assert report["known"] == list(POLICIES)
        assert sorted(record.job.id for record in queue.jobs(limit=1000)) == sorted(names)
        ranks = queue.policy().ranks
        for record in queue.jobs(limit=1000):
            score = redis_client.zscore(queue.keys.lane(record.lane), record.job.id)
            assert score == pytest.approx(ranks[record.lane].score(record.arrival_ms), abs=0.01)
    claimed: list[str] = []
    while leases := queue.claim("w", f"n{len(claimed)}", max_jobs=8):
        claimed += [lease.job.id for lease in leases]
    assert sorted(claimed) == sorted(names)


def test_the_policy_in_force_is_shown_whatever_the_setting_says(
    queue: JobQueue, hearline: Callable[..., Result]
) -> None:
    assert "policy priority (version" in hearline("queue", "policy", HEARLINE_POLICY="edf").output
    assert "hrrn" in hearline("queue", "policy").output
    unknown = hearline("queue", "policy", "lifo", status=2)
    assert "unknown policy 'lifo'; choose one of fcfs" in unknown.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("jobs", "--lane", "final:7"), "KIND:WINDOW"),
        (("jobs", "--lane", "final"), "KIND:WINDOW"),
        (("jobs", "--limit", "0"), "1<=x<=1000"),
        (("--watch", "jobs"), "after its name"),
        (("--interval", "0"), "0.1<=x<=3600"),
    ],
)
def test_wrong_arguments_are_said(hearline: Callable[..., Result], arguments: tuple[str, ...], message: str) -> None:
    assert message in hearline("queue", *arguments, status=2).output


def test_no_redis_is_one_line_with_the_fix_and_without_the_password(hearline: Callable[..., Result]) -> None:
    url = f"redis://user:secret@127.0.0.1:{free_port()}/0"
    output = hearline("queue", status=3, REDIS_URL=url).output
    assert "no answer from Redis at redis://user:***@127.0.0.1:" in output
    assert "REDIS_URL names it" in output
    assert "secret" not in output
    assert len(output.strip().splitlines()) == 1


def test_watch_shows_it_again_until_ctrl_c(queue: JobQueue, redis_url: str, tmp_path: Path) -> None:
    arguments = ["queue", "--watch", "--json", "--interval", "0.1"]
    with HearlineProcess(arguments, state=tmp_path, environment={"REDIS_URL": redis_url}) as watch:
        watch.wait_for('"waiting": 5', times=2)
        queue.enqueue(job("late", Kind.FINAL, 2.0))
        watch.wait_for('"waiting": 6')
        watch.signal(signal.SIGINT)
        assert watch.end() == 0
    assert all(json.loads(line)["used"] for line in watch.lines)


def test_watch_into_a_pipe_writes_one_view_after_the_other(queue: JobQueue, redis_url: str, tmp_path: Path) -> None:
    arguments = ["queue", "--watch", "--interval", "0.1"]
    with HearlineProcess(arguments, state=tmp_path, environment={"REDIS_URL": redis_url}) as watch:
        watch.wait_for("5 waiting", times=2)
        watch.signal(signal.SIGINT)
        assert watch.end() == 0
    assert not any("\x1b" in line for line in watch.lines)


def test_watch_on_a_screen_redraws(queue: JobQueue, redis_url: str, tmp_path: Path) -> None:
    environment = {"REDIS_URL": redis_url, "FORCE_COLOR": "1", "COLUMNS": "120", "LINES": "50"}
    with HearlineProcess(["queue", "--watch", "--interval", "0.1"], state=tmp_path, environment=environment) as watch:
        watch.wait_for("5 waiting", times=2)
        watch.signal(signal.SIGINT)
        assert watch.end() == 0
