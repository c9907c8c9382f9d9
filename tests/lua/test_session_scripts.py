"""The headers of the sessions' scripts say what the scripts take and give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import redis

from queueing.scripts import guarded, load_script
from sessions.scripts import LUA, fetch, run

KEYS = ["hl:{q:m}:streams", "hl:{q:m}:parked"]
SCRIPTS = sorted(path.stem for path in LUA.glob("*.lua"))


def section(source: str, title: str) -> str:
    """The numbered lines of one part of a header."""
    header = "\n".join(line for line in source.splitlines() if line.startswith("--"))
    match = re.search(rf"^-- {title}\b.*?$(.*?)(?=^-- [A-Z]{{4,}}|\Z)", header, re.MULTILINE | re.DOTALL)
    assert match, f"no {title} in the header"
    return match[1]


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_header_numbers_every_key_and_argument(name: str) -> None:
    source = load_script(name, LUA).source
    body = "\n".join(line for line in source.splitlines() if not line.startswith("--"))
    for title in ("KEYS", "ARGV"):
        listed = [int(number) for number in re.findall(r"^--\s+(\d+) ", section(source, title), re.MULTILINE)]
        used = {int(number) for number in re.findall(rf"{title}\[(\d+)\]", body)}
        assert listed == list(range(1, len(listed) + 1)), title
        assert used <= set(listed), f"{title} not in the header: {used - set(listed)}"
        unused = set(listed) - used
        assert len(unused) <= 1, f"{title} in the header but not used: {unused}"  # the last may be taken in a loop


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_header_names_every_code_that_is_returned(name: str) -> None:
    source = load_script(name, LUA).source
    listed = set(re.findall(r"^--   ([A-Z]+)\b", source[source.index("-- RETURNS") :], re.MULTILINE))
    assert set(re.findall(r"return \{'([A-Z]+)'", source)) == listed


def test_every_script_is_called_by_the_package() -> None:
    package = Path(LUA).parent
    called = set(
        re.findall(
            r'(?:run|fetch|ask)\(\s*self\._client,\s*"(\w+)"', "".join(p.read_text() for p in package.glob("*.py"))
        )
    )
    assert called == set(SCRIPTS)


def test_append_answers_each_code_with_the_position_held(redis_client: redis.Redis) -> None:
    def append(
        offset: int, data: bytes, follows: int | None = None, keep_from: int = 0, max_bytes: int = 100
    ) -> tuple[str, int]:
        follows = offset if follows is None else follows
        return run(redis_client, "append", ["audio", "meta"], [offset, follows, keep_from, data, 60_000, max_bytes, 0])

    assert append(2, b"ab") == ("LOST", 0)
    assert append(0, b"abcd") == ("OK", 4)
    assert append(2, b"cdef") == ("OK", 6), "an overlap with what is held is written once"
    assert append(0, b"ab") == ("OK", 6)
    assert append(6, b"gh", max_bytes=7) == ("FULL", 6)
    assert append(8, b"ij", follows=7) == ("LOST", 6)
    with guarded():
        assert redis_client.get("audio") == b"abcdef"
    assert append(8, b"ij", follows=6, keep_from=4) == ("OK", 10)
    with guarded():
        assert redis_client.get("audio") == b"abcdef\0\0ij", "what was left out is silence while the rest is needed"
    assert append(20, b"kl", follows=10, keep_from=20) == ("OK", 22)
    with guarded():
        assert redis_client.get("audio") == b"kl", "else the buffer begins anew"
        assert redis_client.hget("meta", "base") == b"20"


def test_read_and_trim_count_from_the_start_of_the_stream(redis_client: redis.Redis) -> None:
    keys = ["audio", "meta"]

    def trim(before: int) -> tuple[str, int]:
        return run(redis_client, "remember", keys, [before, 60_000, 0, 0])

    assert trim(4) == ("OK", 0)
    assert fetch(redis_client, "read", keys, [0, 4]) == ("LOST", b"")
    run(redis_client, "append", keys, [0, 0, 0, b"abcdef", 60_000, 100, 0])
    assert fetch(redis_client, "read", keys, [2, 9]) == ("OK", b"cdef")
    assert trim(4) == ("OK", 2)
    assert trim(3) == ("OK", 2)
    assert fetch(redis_client, "read", keys, [2, 6]) == ("LOST", b"")
    assert fetch(redis_client, "read", keys, [4, 6]) == ("OK", b"ef")
    assert trim(99) == ("OK", 0)
    with guarded():
        assert redis_client.hget("meta", "base") == b"6", "what was never held was not trimmed"


def test_acquire_and_refresh_use_the_given_time_or_that_of_redis(redis_client: redis.Redis) -> None:
    assert run(redis_client, "acquire", KEYS, [1_000, "a", 1, 500, 9_000, 0]) == ("TAKEN", 1)
    assert run(redis_client, "acquire", KEYS, [1_499, "b", 1, 500, 9_000, 0]) == ("FULL", 1)
    assert run(redis_client, "refresh", KEYS, [1_499, 500, 9_000, "a"]) == ("OK", 1)
    assert run(redis_client, "acquire", KEYS, [1_998, "b", 1, 500, 9_000, 0]) == ("FULL", 1)
    assert run(redis_client, "acquire", KEYS, [0, "b", 1, 500, 9_000, 0]) == ("TAKEN", 1)
