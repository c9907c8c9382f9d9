"""What a process that ended said last, for people: warnings and errors in words, and what was no log line at all."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

BESIDES = frozenset({"event", "program", "level", "timestamp", "exception"})
"""Fields of a log line that are not the matter itself."""

TELLING = frozenset({"warning", "error", "critical"})

CONSOLE_LINE = re.compile(r"^\d{4}-\d\d-\d\dT\S+ \[(debug|info) *\] ")
"""What HEARLINE_LOG_FORMAT=console makes of a line that tells nothing about the end."""


def last_words(tail: Iterable[str]) -> list[str]:
    """The lines of ``tail`` that tell why, log lines in words; where none does, the last line."""
    lines = [(line, _log_line(line)) for line in tail if line.strip()]
    telling = [
        line if entry is None else in_words(entry)
        for line, entry in lines
        if (not CONSOLE_LINE.match(line) if entry is None else entry.get("level") in TELLING)
    ]
    if telling or not lines:
        return telling
    line, entry = lines[-1]
    return [line if entry is None else in_words(entry)]


def in_words(entry: Mapping[str, Any]) -> str:
    """A log line without its braces: the event, the other fields, and of a traceback its last line."""
    said = [
        f"{name} {value}" if name != "reason" else str(value) for name, value in entry.items() if name not in BESIDES
    ]
    traceback = str(entry.get("exception", "")).strip().splitlines()
    return ": ".join([str(entry["event"]).replace("_", " "), *filter(None, [", ".join(said), *traceback[-1:]])])


def _log_line(line: str) -> dict[str, Any] | None:
    if not line.startswith("{"):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "event" in entry else None
