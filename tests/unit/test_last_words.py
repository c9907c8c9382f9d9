"""What is shown of a process that would not run: why, in words, and not the log lines around it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ops.last_words import last_words


def log(level: str, event: str, **fields: object) -> str:
    return json.dumps({"program": "worker", **fields, "event": event, "level": level, "timestamp": "2026-01-01T00:00Z"})


FOUND = log("info", "redis_found", queue="main")
ENDS = log("info", "worker_ends", status=1, decodes=0)


def test_the_one_useful_line_is_shown_alone() -> None:
    assert last_words([FOUND, "hearline worker: no such model", ENDS]) == ["hearline worker: no such model"]


def test_warnings_and_errors_are_put_into_words() -> None:
    away = log("warning", "redis_away", reason="no answer from redis://db:6379/0", operation="claim")
    assert last_words([FOUND, away, ENDS]) == ["redis away: no answer from redis://db:6379/0, operation claim"]


def test_of_a_traceback_in_a_log_line_its_last_line_is_shown() -> None:
    failed = log("error", "worker_failed", exception="Traceback (most recent call last):\n  ...\nKeyError: 'a'")
    assert last_words([failed]) == ["worker failed: KeyError: 'a'"]


def test_a_traceback_of_its_own_stays_whole() -> None:
    lines = ["Traceback (most recent call last):", '  File "x.py", line 1', "ImportError: no such module"]
    assert last_words([FOUND, *lines]) == lines


@pytest.mark.parametrize("line", ["{", '{"a": 1}', "{1, 2}", "[1]"])
def test_what_only_looks_like_a_log_line_stays_as_it_is(line: str) -> None:
    assert last_words([FOUND, line]) == [line]


def test_where_nothing_tells_why_the_last_line_is_better_than_none() -> None:
    assert last_words([FOUND, ENDS]) == ["worker ends: status 1, decodes 0"]
    assert last_words(["", " "]) == []


PROGRAM = """
import sys, structlog
from queueing.logs import configure_logs
configure_logs("info", sys.argv[1], program="worker")
log = structlog.get_logger()
log.info("redis_found", queue="main")
sys.stderr.write("hearline worker: no such model\\n")
log.error("decode_hung", jobs=["a"])
log.info("worker_ends", status=2)
"""


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_the_programs_own_log_lines_are_told_apart(log_format: str) -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM, log_format], capture_output=True, text=True, check=True)
    plain, hung = last_words(run.stderr.splitlines())
    assert plain == "hearline worker: no such model"
    assert "decode hung" in hung.replace("_", " ")
