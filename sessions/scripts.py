"""The sessions' Lua scripts, loaded and called as the queue's are (`queueing.scripts`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import redis

from queueing.scripts import call_script, load_script

LUA = Path(__file__).with_name("lua")


def run(client: redis.Redis, name: str, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> tuple[str, int]:
    """Run a script, one round trip where Redis knows it; returns the code and number that its header names.

    Raises `QueueUnavailable` when Redis cannot be reached or take writes.
    """
    code, number = _call(client, name, keys, arguments)
    return code, int(number)


def fetch(client: redis.Redis, name: str, keys: Sequence[str], arguments: Sequence[str | int]) -> tuple[str, bytes]:
    """As `run`, for a script that returns a code and bytes."""
    code, data = _call(client, name, keys, arguments)
    return code, data if isinstance(data, bytes) else str(data).encode()


def ask(
    client: redis.Redis, name: str, keys: Sequence[str], arguments: Sequence[str | int | bytes]
) -> tuple[str, list[Any]]:
    """As `run`, for a script that returns a code and whatever its header says."""
    code, *answer = _call(client, name, keys, arguments)
    return code, answer


def as_text(value: Any) -> str:
    """A reply's string, whichever way the client decodes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _call(client: redis.Redis, name: str, keys: Sequence[str], arguments: Sequence[str | int | bytes]) -> list[Any]:
    tail = (len(keys), *keys, *arguments)
    reply = call_script(client.execute_command, load_script(name, LUA), tail)
    return [as_text(reply[0]), *reply[1:]]
