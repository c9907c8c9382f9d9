"""Every way to name a Redis: what is understood, what is refused and how, what is shown of it."""

from __future__ import annotations

import pytest
import redis
from redis.connection import SSLConnection
from redis.sentinel import SentinelManagedSSLConnection

from queueing.connect import connect, without_password
from queueing.redis_cluster import ClusterRedis, key_of
from queueing.redis_sentinel import SentinelRedis
from queueing.slot_map import Address


def options(client: redis.Redis) -> dict[str, object]:
    return dict(client.connection_pool.connection_kwargs)


@pytest.mark.parametrize("url", ["redis://h:1/3", "rediss://h:1/3", "redis+sentinel://h/s/3", "redis+cluster://h:1"])
def test_every_client_has_a_bounded_blocking_pool_with_timeouts_and_repeats_nothing(url: str) -> None:
    client = connect(url, max_connections=7, client_name="me")
    pool = client.connection_pool
    assert isinstance(pool, redis.BlockingConnectionPool)
    assert pool.max_connections == 7
    found = options(client)
    assert found["socket_timeout"] == 10
    assert found["socket_connect_timeout"] == 5
    assert found["client_name"] == "me"
    assert found["retry"].get_retries() == 0  # type: ignore[attr-defined]
    client.close()


def test_sentinels_have_a_login_of_their_own_and_short_timeouts() -> None:
    client = connect(
        "rediss+sentinel://app:p%40ss@a:26380,b/speech/2?sentinel_username=watch&sentinel_password=w&ssl_ca_certs=/ca"
    )
    assert isinstance(client, SentinelRedis)
    found = options(client)
    assert (found["username"], found["password"], found["db"]) == ("app", "p@ss", 2)
    assert client.connection_pool.connection_class is SentinelManagedSSLConnection
    first, second = client.finder._sentinels
    asked = options(first)
    assert (asked["host"], asked["port"], asked["username"], asked["password"]) == ("a", 26380, "watch", "w")
    assert asked["socket_timeout"] == asked["socket_connect_timeout"] == 1
    assert asked["ssl_ca_certs"] == found["ssl_ca_certs"] == "/ca"
    assert first.connection_pool.connection_class is SSLConnection
    assert options(second)["port"] == 26379


def test_a_clusters_nodes_share_the_login() -> None:
    client = connect("redis+cluster://app:secret@a:7000,[::1],c:7002/0")
    assert isinstance(client, ClusterRedis)
    node = client.node(Address("c", 7002))
    assert options(node)["username"] == "app"
    assert options(node)["host"] == "c"
    assert client.map._seeds == (Address("a", 7000), Address("::1", 6379), Address("c", 7002))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+sentinel://h:1", "the service's name is missing"),
        ("redis+sentinel:///speech/0", "no host"),
        ("redis+sentinel://h:1/speech/x", "'x' is no number"),
        ("redis+cluster://h:1/3", "database 0 only"),
        ("redis+cluster://h:port", "port"),
        ("redis+clutter://h:1", r"redis\+sentinel:// or redis\+cluster://"),
        ("http://h:1", "redis://"),
        ("redis+cluster://a:1,[::1", "bracket"),
    ],
)
def test_what_is_malformed_is_named(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        connect(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:secret@h:1/0", "redis://:***@h:1/0"),
        ("redis://user@h:1/0", "redis://user@h:1/0"),
        ("redis://u:secret@[h:1/0", "(malformed)"),
        ("redis+cluster://u:secret@a:1,b:2", "redis+cluster://u:***@a:1,b:2"),
        ("redis+cluster://u:secret@a,[::1]:2", "redis+cluster://u:***@a,[::1]:2"),
        ("unix://u:secret@/run/redis.sock?db=1", "unix://u:***@/run/redis.sock?db=1"),
        (
            "redis+sentinel://u:secret@a:1,b:2/s/0?sentinel_password=secret&ssl_ca_certs=/ca",
            "redis+sentinel://u:***@a:1,b:2/s/0?sentinel_password=***&ssl_ca_certs=/ca",
        ),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("HGETALL", "k"), "k"),
        (("BLPOP", "k", 5), "k"),
        (("EVALSHA", "abc", 2, "k", "l", "argument"), "k"),
        (("EVAL", "return 1", 0), None),
        (("TIME",), None),
        (("CLUSTER SLOTS",), None),
        (("CONFIG SET", "save", ""), None),
        (("MEMORY USAGE", "k"), "k"),
        (("TIMESERIES.ADD", "k"), "k"),
    ],
)
def test_where_a_command_goes_follows_from_its_key(command: tuple[object, ...], key: str | None) -> None:
    assert key_of(command) == key
