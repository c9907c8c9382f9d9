"""docs/redis-keys.md lists every key with its type and expiry: compared with the code and with a live queue."""

from __future__ import annotations

import inspect
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from queueing.job_queue import JobQueue
from queueing.keys import FRONT_CHANNEL_PREFIX, PERMANENT, QueueKeys
from queueing.lane import Kind, Lane
from queueing.records import JobRecord
from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer
from sessions.keys import SessionKeys
from sessions.owners import Owner, StreamOwners
from sessions.parking import Parking
from tests.support.queue_ears import key_names
from tests.support.queue_jobs import claim_one, final, partial

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "redis-keys.md").read_text(encoding="utf-8")
PLACEHOLDER = re.compile(r"KIND:WINDOW|[A-Z]{2,}")


@dataclass(frozen=True)
class Row:
    key: str
    type: str
    expires: str

    @property
    def permanent(self) -> bool:
        return self.expires.startswith("never")

    def matches(self, name: str) -> bool:
        pattern = re.escape(self.key)
        for placeholder, wild in (("NAME", "main"), ("KIND:WINDOW", "[a-z]+:[0-9]+"), ("MINUTE", "[0-9]+")):
            pattern = pattern.replace(re.escape(placeholder), wild)
        return re.fullmatch(re.sub(r"ID|WORKER|SESSION|OWNER", r"[^{}]+", pattern), name) is not None


ROWS = [Row(*found) for found in re.findall(r"^\| `(hl:\{[^`]+)` \| (\w+) \| .* \| ([^|]+) \|$", PAGE, re.MULTILINE)]


def documented(name: str) -> Row:
    rows = [row for row in ROWS if row.matches(name)]
    assert len(rows) == 1, f"{name} has {len(rows)} rows in docs/redis-keys.md"
    return rows[0]


def keys_of_the_code() -> dict[str, str]:
    """attribute -> key, for everything that `QueueKeys` and `SessionKeys` can name."""
    arguments: dict[str, object] = {"lane": Lane(Kind.FINAL, 8), "minute": 29_000_000}
    found = {}
    for keys in (QueueKeys("main"), SessionKeys("abc")):
        for attribute, member in inspect.getmembers(type(keys)):
            if attribute.startswith("_") or (attribute in ("name", "session") and isinstance(keys, SessionKeys)):
                continue
            value = getattr(keys, attribute)
            if inspect.isfunction(member):
                (parameter,) = list(inspect.signature(value).parameters)
                found[f"{type(keys).__name__}.{attribute}"] = value(arguments.get(parameter, "abc"))
            elif isinstance(member, property) and not attribute.endswith("prefix"):
                found[f"{type(keys).__name__}.{attribute}"] = value
    return found


def test_every_key_of_the_code_has_one_row_and_every_row_a_key() -> None:
    keys = keys_of_the_code()
    assert len(keys) > 15
    assert {documented(name) for name in keys.values()} == set(ROWS)


def test_the_permanent_rows_are_the_permanent_keys() -> None:
    for name in keys_of_the_code().values():
        assert documented(name).permanent == bool(PERMANENT.match(name)), name


@pytest.fixture
def busy(redis_client: redis.Redis) -> redis.Redis:
    """A Redis in which every kind of key exists."""
    queue = JobQueue(redis_client)
    for segment in range(3):
        queue.enqueue(final("abc", segment))
    queue.enqueue(partial("abc", 1, segment=3))
    queue.complete(claim_one(queue), {"text": ""}, decode_ms=1)
    queue.fail(claim_one(queue), "decode_failed", "x", retry=False)
    claim_one(queue)
    queue.heartbeat("worker-1", {"state": "ready"})
    StreamSlots(redis_client, "main", cap=5).acquire("abc")
    StreamOwners(redis_client, "main").add("abc", [Owner("key:kiosk", max_streams=1, max_tries=1)])
    Parking(redis_client, "main", grace_s=30).park("abc", keep_slot=True)
    buffer = AudioBuffer(redis_client)
    buffer.create("abc", {"front": "front-1"})
    buffer.append("abc", 0, b"\0\0")
    return redis_client


def test_types_and_expiries_are_as_documented(busy: redis.Redis) -> None:
    seen = set()
    for name in key_names(busy):
        row = documented(name)
        seen.add(row)
        assert busy.type(name) == row.type.encode(), name
        assert (busy.ttl(name) == -1) == row.permanent, name
    assert seen == set(ROWS)


def test_the_fields_of_a_job_are_documented(busy: redis.Redis) -> None:
    table = PAGE.split("Fields of a job's hash:")[1].split("\n## ")[0]
    listed = {name for row in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    hashes: list[Any] = [busy.hkeys(name) for name in key_names(busy) if ":job:" in name]
    used = {field.decode() for fields in hashes for field in fields}
    assert used == listed
    assert {"error_code", "error_message", "died_ms"} <= listed & set(JobRecord.__slots__)


def test_every_outcome_is_documented(busy: redis.Redis) -> None:
    (listed,) = re.findall(r"outcomes: `([a-z ]+)`", PAGE)
    scripts = "".join(path.read_text() for path in (Path(__file__).parents[2] / "queueing" / "lua").rglob("*.lua"))
    counted = set(re.findall(r"'(?:partial)?:([a-z]+)'", scripts)) | {"stale", "dead", "dropped"}
    assert counted == set(listed.split())


def test_every_key_has_an_example_that_redis_understands(busy: redis.Redis) -> None:
    shown = set()
    for line in re.findall(r"^redis-cli (.+)$", PAGE, re.MULTILINE):
        command, key, *rest = shlex.split(line.replace("$(($(date +%s) / 60))", "29000000"))
        if key.startswith(FRONT_CHANNEL_PREFIX):
            continue
        real = key.replace("WORKER", "worker-1").replace("SESSION", "abc").replace("{s:ID}", "{s:abc}")
        busy.execute_command(command, real, *rest)  # type: ignore[no-untyped-call]
        shown.add(documented(real))
    assert shown == set(ROWS)
