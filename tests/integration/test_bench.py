"""The benchmark runs as a user runs it, measures what it says, and leaves a database as it found it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import redis

from queueing.bench import table
from queueing.policies import POLICIES


def _bench(*arguments: str, redis_url: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "REDIS_URL"}  # noqa: TID251
    if redis_url is not None:
        environment["REDIS_URL"] = redis_url
    return subprocess.run(
        [sys.executable, "-m", "queueing.bench", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def _within(spread: dict[str, float], figure: float) -> bool:
    return spread["least"] <= figure <= spread["most"]


@pytest.mark.slow
def test_a_quick_run_prints_every_figure_as_json(redis_url: str, redis_client: redis.Redis) -> None:
    run = _bench("--quick", "--json", redis_url=redis_url)
    assert run.returncode == 0, run.stderr

    report: dict[str, Any] = json.loads(run.stdout)
    assert set(report["claim_us"]) == set(POLICIES)
    for policy, by_size in report["claim_us"].items():
        assert set(by_size) == {"100", "1000"}
        for size, figure in by_size.items():
            assert figure > 0
            assert _within(report["spread"]["claim_us"][policy][size], figure)
    assert report["round_trips"] == {"enqueue": 1.0, "claim": 1.0, "complete": 1.0}
    assert set(report["jobs_per_s"]) == {"hearline", "rq", "huey", "saq"}
    for name, figure in report["jobs_per_s"].items():
        assert figure > 0
        assert _within(report["spread"]["jobs_per_s"][name], figure)
    assert 0 < report["dispatch_ms"]["p50"] <= report["dispatch_ms"]["p95"]
    assert report["environment"]["redis"] == redis_client.info("server")["redis_version"]
    assert report["environment"]["cpus"] >= 1
    assert redis_client.dbsize() == 0
    text = table(report)
    for name in (*POLICIES, "rq", "huey", "saq", *report["jobs_per_s_other"], "p95"):
        assert name in text


def test_it_starts_a_redis_of_its_own_where_none_is_named() -> None:
    run = _bench("--quick", "--only", "round-trips", redis_url=None)

    assert run.returncode == 0, run.stderr
    assert "enqueue 1, claim 1, complete 1" in run.stdout


def test_a_database_that_holds_keys_is_refused_and_left_alone(redis_url: str, redis_client: redis.Redis) -> None:
    redis_client.set("mine", "1", ex=60)

    run = _bench("--quick", "--json", redis_url=redis_url)

    assert run.returncode == 1
    assert "holds 1 keys" in run.stderr
    assert run.stdout == ""
    assert redis_client.get("mine") == b"1"


def test_a_redis_that_does_not_answer_is_named() -> None:
    run = _bench("--quick", redis_url="redis://127.0.0.1:1/0")

    assert run.returncode == 3, "something is missing"
    assert "REDIS_URL" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("arguments", [["--repeats", "0"], ["--sizes", "1000001"], ["--only", "everything"]])
def test_an_argument_out_of_bounds_is_refused(arguments: list[str]) -> None:
    run = _bench(*arguments, redis_url=None)

    assert run.returncode == 2
    assert arguments[0] in run.stderr


def test_the_help_explains_each_figure() -> None:
    text = _bench("--help", redis_url=None).stdout

    for key in ("claim_us", "round_trips", "jobs_per_s", "dispatch_ms", "response_ms", "spread", "environment"):
        assert key in text
