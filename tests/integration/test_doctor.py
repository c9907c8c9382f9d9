"""``hearline doctor``: each check finds what is wrong and says what helps."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner, Result

from ops import doctor_checks, key_file
from ops.cli import main
from ops.doctor_checks import Level, check_model
from ops.redis_server import NoRedis
from ops.runtime import Runtime
from queueing.clock import SystemClock
from queueing.local_redis import free_port
from sessions.api_keys import KeyRecord
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi


class Stranger(BaseHTTPRequestHandler):
    """Some other web server."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"status": "alive"}')

    def log_message(self, format: str, *args: object) -> None:
        pass


def doctor(*arguments: str, **environment: str) -> Result:
    values = {"HEARLINE_STATE_DIR": "absent", "HEARLINE_PORT": str(free_port()), "PATH": "", **environment}
    return CliRunner().invoke(main, ["doctor", *arguments], obj=Runtime(values, SystemClock()))


def findings(result: Result) -> Mapping[str, Mapping[str, str]]:
    report = json.loads(result.output)
    return {finding["name"]: finding for finding in report["findings"]}


@pytest.fixture(autouse=True)
def no_model_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading the model takes seconds; one test below runs the real thing."""
    skipped = doctor_checks.Finding("model", Level.SKIPPED, "not in this test")
    monkeypatch.setattr(doctor_checks, "check_model", lambda environment: skipped)


def test_a_fit_machine_is_told_so() -> None:
    result = doctor()
    assert result.exit_code == 0, result.output
    assert "This machine can run Hearline" in result.output
    found = findings(doctor("--json"))
    assert set(found) == {"python", "redis", "model", "port", "access", "cpus", "memory", "files", "disk"}
    assert found["redis"]["level"] == "ok"
    assert "Redis" in found["redis"]["found"]


def test_a_taken_port_is_wrong_and_the_fix_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = doctor("--json", HEARLINE_PORT=str(taken.getsockname()[1]))
    assert result.exit_code == 1
    assert findings(result)["port"]["level"] == "wrong"
    assert "--port" in findings(result)["port"]["fix"]


def test_a_port_that_another_hearline_has_is_told_from_a_stranger(redis_url: str) -> None:
    """As with two `hearline up`, of which the run file names the newer one alone."""
    with LiveApi(redis_url) as api:
        eventually(lambda: b"no worker" in api.get("/ready")[1], what="the first look at Redis")
        result = doctor("--json", HEARLINE_PORT=str(api.port))
        port = findings(result)["port"]
        assert (result.exit_code, port["level"]) == (0, "ok"), result.output
        assert "a web process of Hearline runs there" in port["found"]
        assert "is not ready: no worker" in port["found"]
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as other:
        threading.Thread(target=other.serve_forever).start()
        port = findings(doctor("--json", HEARLINE_PORT=str(other.server_port)))["port"]
        other.shutdown()
    assert port["level"] == "wrong", "it answers 200, and so does many a server"


@pytest.mark.parametrize(
    ("said", "setting"),
    [
        ("HEARLINE_DEVICE='cuda', but no CUDA device can be used; set it to cpu or auto", "HEARLINE_DEVICE"),
        ("HEARLINE_MODEL='/nope': no such folder", "HEARLINE_MODEL"),
        ("something else", "HEARLINE_MODEL"),
    ],
)
def test_what_is_wrong_with_the_model_points_to_its_setting(
    monkeypatch: pytest.MonkeyPatch, said: str, setting: str
) -> None:
    def run(command: Sequence[str], **_options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 2, stdout="", stderr=f"{said}\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert check_model({}).fix == f"see {setting} in docs/configuration.md"


def test_no_redis_is_wrong_and_the_three_ways_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise NoRedis("no Redis to be had. Any one of these helps:\n  1. one\n  2. two\n  3. three")

    monkeypatch.setattr(doctor_checks, "find_server", none)
    result = doctor()
    assert result.exit_code == 1
    assert all(f"-> {line}" in result.output for line in ("1. one", "2. two", "3. three"))
    assert "Not fit to run yet" in result.output


def test_a_redis_that_is_named_is_checked(redis_url: str, redis_client: redis.Redis) -> None:
    assert findings(doctor("--json", REDIS_URL=redis_url))["redis"]["level"] == "ok"
    redis_client.config_set("maxmemory-policy", "volatile-lru")
    try:
        evicting = findings(doctor("--json", REDIS_URL=redis_url))["redis"]
        assert doctor(REDIS_URL=redis_url).output.count("CONFIG SET maxmemory-policy") == 1, "the fix is said once"
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    away = findings(doctor("--json", REDIS_URL=f"redis://127.0.0.1:{free_port()}/0"))["redis"]
    malformed = findings(doctor("--json", REDIS_URL="http://127.0.0.1/0"))["redis"]
    assert [evicting["level"], away["level"], malformed["level"]] == ["wrong"] * 3
    assert "noeviction" in evicting["fix"]
    assert "REDIS_URL" in away["fix"]


@pytest.mark.parametrize(
    ("version", "level"), [("6.0.16", "wrong"), ("6.2.0", "ok"), ("7.4.1", "ok"), ("unknown", "ok")]
)
def test_an_old_redis_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, level: str) -> None:
    server = tmp_path / "redis-server"
    server.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0 bits=64'\n")
    server.chmod(0o755)
    monkeypatch.setattr(doctor_checks, "find_server", lambda: server)
    assert findings(doctor("--json"))["redis"]["level"] == level


def test_who_may_use_it_is_looked_at(tmp_path: Path) -> None:
    keys = tmp_path / "keys"

    def access(**environment: str) -> Mapping[str, str]:
        return findings(doctor("--json", **environment))["access"]

    assert access()["level"] == "ok"
    public = access(HEARLINE_HOST="0.0.0.0")
    assert public["level"] == "wrong"
    assert "HEARLINE_API_KEYS" in public["fix"]
    assert access(HEARLINE_HOST="0.0.0.0", HEARLINE_ALLOW_ANONYMOUS="1")["level"] == "warning"
    assert "cannot be read" in access(HEARLINE_API_KEYS=str(keys))["found"]
    keys.write_text("# none yet\n")
    assert access(HEARLINE_API_KEYS=str(keys))["level"] == "warning"
    key_file.add(keys, KeyRecord(label="kiosk", sha256="0" * 64))
    assert access(HEARLINE_HOST="0.0.0.0", HEARLINE_API_KEYS=str(keys))["found"].startswith("1 API keys")


def test_wrong_settings_end_it_with_status_2() -> None:
    result = doctor(HEARLINE_PORT="99999")
    assert result.exit_code == 2
    assert "HEARLINE_PORT='99999'" in result.output
