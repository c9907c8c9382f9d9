"""Redis is looked at before anything is trusted to it; each refusal says what helps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import redis

from queueing.connect import check_redis, connect
from queueing.errors import QueueUnavailable, UnsafeRedis
from queueing.redis_check import Deployment, _refuse, inspect_redis, version_numbers
from tests.support.deployments import Sentinels


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    with Sentinels() as sentinels:
        yield sentinels


def test_one_server_is_described(redis_client: redis.Redis) -> None:
    report = inspect_redis(redis_client)
    assert (report.deployment, report.unknown) == (Deployment.SINGLE, "")
    (server,) = report.servers
    assert (server.policy, server.persistence, server.replicas) == ("noeviction", "none", 0)
    assert version_numbers(report.version) >= (6, 2)


def test_the_primary_behind_sentinels_is_described(sentinels: Sentinels) -> None:
    with connect(sentinels.url) as client:
        report = inspect_redis(client)
    assert report.deployment is Deployment.SENTINEL
    assert [server.replicas for server in report.servers] == [1]


def test_a_replica_is_refused(sentinels: Sentinels) -> None:
    with connect(f"redis://{sentinels.replica.place}/0") as client:
        message = rf"a replica of 127.0.0.1:{sentinels.primary.port}.*redis\+sentinel://"
        with pytest.raises(UnsafeRedis, match=message):
            check_redis(client)


def test_a_service_that_no_sentinel_knows_is_no_redis(sentinels: Sentinels) -> None:
    with (
        connect(sentinels.url.replace("/hearline/", "/absent/")) as client,
        pytest.raises(QueueUnavailable, match=r"no Sentinel names a primary of 'absent'.*No such master"),
    ):
        check_redis(client)


@pytest.mark.parametrize("version", ["5.0.14", "6.0.16"])
def test_an_old_version_is_refused(redis_client: redis.Redis, version: str) -> None:
    (server,) = inspect_redis(redis_client).servers
    with pytest.raises(UnsafeRedis, match=rf"{version}; use Redis 6.2 or newer, or Valkey"):
        _refuse(replace(server, version=version), {}, Deployment.SINGLE)


def test_versions_compare_as_numbers() -> None:
    assert version_numbers("6.2.14") < version_numbers("7.0") < version_numbers("10.1")
    assert version_numbers("unknown") > version_numbers("99.0")


def test_where_info_is_forbidden_the_check_is_left_out_and_says_so(
    redis_client: redis.Redis, redis_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    redis_client.acl_setuser(
        "limited", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"], commands=["-info"]
    )
    try:
        with connect(redis_url.replace("redis://", "redis://limited:secret@")) as client:
            report = inspect_redis(client)
            assert "INFO" in report.unknown
            assert report.servers == ()
            assert check_redis(client) == "unknown"
        assert "redis_not_checked" in capsys.readouterr().out
    finally:
        redis_client.acl_deluser("limited")


def test_where_config_is_forbidden_all_that_matters_is_still_checked(redis_client: redis.Redis, redis_url: str) -> None:
    redis_client.acl_setuser(
        "managed", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"], commands=["-config"]
    )
    redis_client.config_set("maxmemory-policy", "volatile-lru")
    try:
        with (
            connect(redis_url.replace("redis://", "redis://managed:secret@")) as client,
            pytest.raises(UnsafeRedis, match=r"volatile-lru.*where a provider forbids CONFIG"),
        ):
            check_redis(client)
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
        redis_client.acl_deluser("managed")


def test_a_wrong_password_is_no_answer_with_its_reason(redis_client: redis.Redis, redis_url: str) -> None:
    with (
        connect(redis_url.replace("redis://", "redis://nobody:wrong@")) as client,
        pytest.raises(QueueUnavailable, match="invalid username-password"),
    ):
        check_redis(client)


def test_a_server_that_was_demoted_is_left_also_when_only_a_script_meets_it() -> None:
    """By hand, so that nobody cuts its clients off: their connections are whole, but nothing can be written there."""
    with Sentinels() as servers, connect(servers.url) as client:
        assert client.set("k", "1", ex=60)
        servers.primary.call("REPLICAOF", "127.0.0.1", servers.replica.port)
        with pytest.raises(redis.ConnectionError, match="a replica now"):
            client.eval("return redis.call('SET', KEYS[1], '2')", 1, "k")
        with pytest.raises(redis.ConnectionError, match="is not the primary"):
            client.set("k", "3", ex=60)  # the Sentinels still name it; its role is asked for before it is trusted
