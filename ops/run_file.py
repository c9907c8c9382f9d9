"""The file by which other commands find a running ``hearline up``.

``up.json`` in ``$HEARLINE_STATE_DIR``, else ``$XDG_STATE_HOME/hearline``, else ``~/.local/state/hearline``
(else a folder of this user under the temporary directory). One JSON object:

    {"url": "http://127.0.0.1:8000", "redis_url": "redis://127.0.0.1:40123/0", "pid": 4711, "started_ms": 1767225600000}

``url`` is null when no web process runs here. Readable by its owner alone, for ``redis_url`` may hold a
password. A file whose process is gone (or whose id now belongs to a younger process) is stale and ignored.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

FILE_NAME = "up.json"

CLOCK_SLACK_MS = 2_000
"""A process's creation time is known to about a clock tick, and clocks get stepped a little."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Where a running service is. ``started_ms`` is wall time in milliseconds since the epoch."""

    url: str | None
    redis_url: str
    pid: int
    started_ms: int

    @staticmethod
    def from_json(text: str) -> RunRecord:
        """Raises ValueError for anything that is not such a record; unknown keys are ignored."""
        fields = json.loads(text)
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        url, redis_url = fields.get("url"), fields.get("redis_url")
        pid, started_ms = fields.get("pid"), fields.get("started_ms")
        if not (url is None or isinstance(url, str)) or not isinstance(redis_url, str):
            raise ValueError("url or redis_url is not a text")
        if type(pid) is not int or type(started_ms) is not int or pid <= 0:
            raise ValueError("pid or started_ms is not a positive whole number")
        return RunRecord(url, redis_url, pid, started_ms)

    def alive(self) -> bool:
        """Whether the process that wrote this still runs."""
        try:
            created_ms = psutil.Process(self.pid).create_time() * 1000
        except psutil.Error:
            return False
        return bool(created_ms <= self.started_ms + CLOCK_SLACK_MS)


def run_file(environment: Mapping[str, str]) -> Path:
    """The path of the file for this environment (whether or not it exists)."""
    if own := environment.get("HEARLINE_STATE_DIR"):
        return Path(own) / FILE_NAME
    if state := environment.get("XDG_STATE_HOME"):
        return Path(state) / "hearline" / FILE_NAME
    if home := environment.get("HOME"):
        return Path(home) / ".local" / "state" / "hearline" / FILE_NAME
    return Path(tempfile.gettempdir()) / f"hearline-{os.getuid()}" / FILE_NAME


def find_running(path: Path) -> RunRecord | None:
    """The running service that the file names; None when there is no file, no sense in it, or it is stale."""
    record = _read(path)
    return record if record is not None and record.alive() else None


def publish(path: Path, record: RunRecord) -> RunRecord | None:
    """Write the record (atomically); returns that of another service still running, to be given to `withdraw`.

    Raises OSError when the folder cannot be written.
    """
    previous = find_running(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write(path, record)
    return previous if previous is None or previous.pid != record.pid else None


def withdraw(path: Path, record: RunRecord, previous: RunRecord | None) -> None:
    """Remove the file if it is still this service's, or give it back to ``previous`` if that still runs."""
    if _read(path) != record:
        return
    if previous is not None and previous.alive():
        _write(path, previous)
    else:
        path.unlink(missing_ok=True)


def _read(path: Path) -> RunRecord | None:
    try:
        return RunRecord.from_json(path.read_text())
    except (OSError, ValueError):
        return None


def _write(path: Path, record: RunRecord) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w") as file:
        json.dump(asdict(record), file)
        file.write("\n")
    Path(name).replace(path)
