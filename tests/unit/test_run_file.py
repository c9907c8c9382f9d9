"""The file by which commands find a running service: fresh, stale, broken, shared."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import psutil
import pytest

from ops.run_file import RunRecord, find_running, publish, run_file, withdraw


def record(pid: int | None = None, *, url: str | None = "http://127.0.0.1:8000", age_ms: int = 0) -> RunRecord:
    process = psutil.Process(pid or os.getpid())
    return RunRecord(url, "redis://127.0.0.1:1/0", process.pid, int(process.create_time() * 1000) + 5_000 - age_ms)


def test_what_is_published_is_found_by_others_and_gone_after_withdrawal(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "up.json"
    mine = record()
    assert publish(path, mine) is None
    assert find_running(path) == mine
    assert set(json.loads(path.read_text())) == {"url", "redis_url", "pid", "started_ms"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    withdraw(path, mine, None)
    assert not path.exists()
    withdraw(path, mine, None)


def test_a_file_of_a_dead_process_is_stale(tmp_path: Path) -> None:
    path = tmp_path / "up.json"
    gone = RunRecord(None, "redis://127.0.0.1:1/0", 2**22 + 1, 1)
    publish(path, gone)
    assert find_running(path) is None


def test_a_process_id_that_was_given_to_a_younger_process_is_stale(tmp_path: Path) -> None:
    path = tmp_path / "up.json"
    publish(path, record(age_ms=60_000))
    assert find_running(path) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '"x"', "{}", '{"url": null, "redis_url": "r", "pid": true, "started_ms": 1}',
     '{"url": 5, "redis_url": "r", "pid": 1, "started_ms": 1}',
     '{"url": null, "redis_url": "r", "pid": -1, "started_ms": 1}'],
)  # fmt: skip
def test_nonsense_is_no_service(tmp_path: Path, text: str) -> None:
    path = tmp_path / "up.json"
    path.write_text(text)
    assert find_running(path) is None


def test_the_newer_service_shows_and_gives_back(tmp_path: Path) -> None:
    path = tmp_path / "up.json"
    older, newer = record(os.getppid()), record()
    publish(path, older)
    previous = publish(path, newer)
    assert previous == older
    assert find_running(path) == newer
    withdraw(path, older, None)
    assert find_running(path) == newer, "only the owner removes its file"
    withdraw(path, newer, previous)
    assert find_running(path) == older


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HEARLINE_STATE_DIR": "/s", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/s/up.json"),
        ({"HEARLINE_STATE_DIR": "", "XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/hearline/up.json"),
        ({"HOME": "/h"}, "/h/.local/state/hearline/up.json"),
    ],
)
def test_where_the_file_is(environment: dict[str, str], expected: str) -> None:
    assert run_file(environment) == Path(expected)
    assert str(os.getuid()) in str(run_file({}))
