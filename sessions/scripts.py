"""The sessions' Lua scripts: called by digest, sent again when Redis has forgotten them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import NoScriptError

from queueing.scripts import guarded

LUA = Path(__file__).with_name("lua")


@cache
def load(name: str) -> tuple[str, str]:
    """Source and SHA-1 digest of ``lua/NAME.lua``."""
    source = (LUA / f"{name}.lua").read_text(encoding="utf-8")
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


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
    source, digest = load(name)
    tail = (len(keys), *keys, *arguments)
    call: Callable[..., Any] = client.execute_command
    with guarded():
        try:
            reply = call("EVALSHA", digest, *tail)
        except NoScriptError:
            reply = call("EVAL", source, *tail)
    return [as_text(reply[0]), *reply[1:]]
