"""TLS to Redis, and the user of docs/operations/security.md: enough for everything, and for nothing else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner

from ops.cli import main
from ops.redis_server import RedisServer
from ops.runtime import Runtime
from queueing.clock import SystemClock
from queueing.connect import check_redis, connect
from queueing.errors import QueueUnavailable
from queueing.job_queue import JobQueue
from sessions.wire import Done, End, Error, Final, Flush, Start, encode
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, receive_all, receive_until
from tests.support.sound import speech
from tests.support.tls_proxy import TlsProxy
from tests.support.workers import worker_process

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations" / "security.md").read_text(encoding="utf-8")
SECRET = "correct-horse"


def acl_line() -> list[str]:
    """The page's own command, with a password."""
    (line,) = re.findall(r"^ACL SETUSER .*$", PAGE, re.MULTILINE)
    return shlex.split(line.replace("PASSWORD", SECRET))


def allowed() -> set[str]:
    return {word[1:] for word in acl_line() if word.startswith("+")}


@pytest.fixture(scope="module")
def guarded_redis() -> Iterator[RedisServer]:
    """A Redis of its own: its users are none of the other tests' business."""
    with RedisServer() as server:
        with connect(server.url) as admin:
            admin.execute_command(*acl_line())
        yield server


@pytest.fixture
def admin(guarded_redis: RedisServer) -> Iterator[redis.Redis]:
    client = connect(guarded_redis.url)
    client.flushall()
    client.execute_command("ACL", "LOG", "RESET")  # type: ignore[no-untyped-call]
    yield client
    client.close()


def test_every_command_of_the_scripts_is_granted() -> None:
    sources = [path.read_text(encoding="utf-8") for path in ROOT.glob("*/lua/**/*.lua")]
    called = {name.lower() for source in sources for name in re.findall(r"redis\.p?call\('(\w+)'", source)}
    assert len(called) > 20
    assert called <= allowed(), "add these to the line in docs/operations/security.md"
    assert all(re.search(r"redis\.p?call\((?!')", source) is None for source in sources), "a name that nobody can see"


def test_nothing_dangerous_is_granted() -> None:
    dangerous = {"flushall", "flushdb", "keys", "scan", "config", "config|set", "shutdown", "debug", "save", "bgsave"}
    dangerous |= {"monitor", "acl", "replicaof", "slaveof", "migrate", "restore", "module", "script", "client", "dump"}
    assert not allowed() & dangerous
    assert not [word for word in acl_line() if word.startswith("+@") or word in ("~*", "&*", "nopass")]


def hearline(url: str, *arguments: str) -> str:
    environment = {"REDIS_URL": url, "HEARLINE_STATE_DIR": "absent", "PATH": "", "HEARLINE_TRANSCRIBER": "scripted"}
    result = CliRunner().invoke(main, list(arguments), obj=Runtime(environment, SystemClock()))
    assert result.exit_code == 0, f"hearline {' '.join(arguments)}: {result.output}"
    return result.output


def denied(admin: redis.Redis) -> list[str]:
    """What Redis refused since the log was emptied."""
    entries: list[Any] = admin.execute_command("ACL", "LOG", "100")  # type: ignore[no-untyped-call]
    found = []
    for entry in entries:
        fields = entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2], strict=True))
        named = {str(_text(key)): _text(value) for key, value in fields.items()}
        found.append(f"{named['reason']} {named['object']} ({named['context']}) of {named['client-info']}")
    return found


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def test_the_whole_service_runs_as_this_user_over_tls(
    guarded_redis: RedisServer, admin: redis.Redis, tmp_path: Path
) -> None:
    script = {"base_s": 0, "per_audio_s": 0, "faults": {"-32768": {"do": "error"}}}
    with TlsProxy(guarded_redis.port) as proxy:
        url = proxy.url(f"hearline:{SECRET}")
        with (
            LiveApi(url, partial_interval_s=0.2, min_partial_audio_s=0.1) as api,
            worker_process(url, tmp_path, script) as worker,
        ):
            eventually(lambda: api.ready, timeout_s=30, what="readiness")
            with api.connect() as client:
                client.send(encode(Start(language="en")))
                for _ in range(4):
                    client.send(speech(0.5))
                client.send(encode(Flush()))
                receive_until(client, Final)
                client.send(speech(1.0))
                client.send(encode(End()))
                assert isinstance(receive_all(client)[-1], Done)
            with api.connect() as client:  # cancelled, with jobs
                client.send(speech(1.0))
            with api.connect() as client:  # ends among the dead
                client.send(b"\x00\x80" + speech(1.0)[2:])
                client.send(encode(End()))
                last = receive_all(client)[-1]
                assert isinstance(last, Error)
                assert last.code == "decode_failed"
            assert api.get("/metrics")[0] == 200
            assert api.json("/v1/status")["ready"]
            for arguments in (
                ("queue",), ("queue", "--json"), ("queue", "jobs"), ("queue", "jobs", "--leased"), ("queue", "policy"),
                ("queue", "policy", "hrrn"), ("queue", "dead"), ("queue", "dead", "retry", "--all"),
                ("queue", "dead", "drop", "--all"), ("doctor", "--json"),
            ):  # fmt: skip
                hearline(url, *arguments)
            worker.end()
            assert SECRET not in worker.text()
        assert SECRET not in "\n".join(api.log)
        assert proxy.connections > 5
    assert denied(admin) == []


def test_nothing_else_is_this_users_to_do(guarded_redis: RedisServer, admin: redis.Redis) -> None:
    admin.set("other", "1")
    with connect(guarded_redis.url.replace("redis://", f"redis://hearline:{SECRET}@")) as user:
        check_redis(user)
        JobQueue(user).policy()
        forbidden: list[tuple[str, ...]] = [
            ("FLUSHALL",), ("FLUSHDB",), ("KEYS", "*"), ("SCAN", "0"), ("CONFIG", "SET", "maxmemory", "1"), ("SAVE",),
            ("SHUTDOWN", "NOSAVE"), ("MONITOR",), ("ACL", "LIST"), ("CLIENT", "LIST"), ("CLIENT", "KILL", "ID", "1"),
            ("SCRIPT", "FLUSH"), ("DEBUG", "SLEEP", "0"), ("GET", "other"), ("SET", "other", "2"),
            ("EVAL", "return redis.call('FLUSHALL')", "0"), ("EVAL", "return redis.call('GET', 'other')", "0"),
            ("PUBLISH", "elsewhere", "x"), ("SUBSCRIBE", "elsewhere"),
        ]  # fmt: skip
        for command in forbidden:
            with pytest.raises(redis.ResponseError, match=r"(?i)permission|can't run this command|can't access"):
                user.execute_command(*command)
    assert admin.get("other") == b"1"


def test_a_certificate_that_does_not_fit_is_an_error(guarded_redis: RedisServer) -> None:
    user = f"hearline:{SECRET}"
    with TlsProxy(guarded_redis.port) as proxy:
        with connect(proxy.url(user)) as client:
            assert client.ping()
        wrong = [
            proxy.url(user, ca="other-ca.pem"),  # signed by somebody else
            proxy.url(user, certificate=False),  # the server does not know the client
            proxy.url(user, host="127.0.0.2"),  # not the name that the certificate has
            proxy.url("hearline:wrong"),
            f"redis://{user}@localhost:{proxy.port}/0",  # without TLS
        ]
        for url in wrong:
            with pytest.raises((QueueUnavailable, redis.RedisError)), connect(url) as client:
                check_redis(client)
