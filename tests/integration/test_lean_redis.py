"""The short way of scripts to Redis: the same answers and errors, connections that are kept, checked and given back."""

from __future__ import annotations

import threading

import pytest
import redis
from redis.exceptions import NoScriptError, ResponseError

from queueing.clock import ManualClock
from queueing.connect import connect
from queueing.lean import FRESH_S, LeanRedis

NAME = "lean-test"
ECHO = "return {KEYS[1], ARGV[1], 7}"


def lean(url: str, connections: int = 8, clock: ManualClock | None = None) -> tuple[LeanRedis, str]:
    """A client, and the digest of a script that its Redis knows."""
    pool = connect(url, max_connections=connections, client_name=NAME).connection_pool
    assert isinstance(pool, redis.BlockingConnectionPool)
    client = LeanRedis(pool, clock or ManualClock())
    return client, str(client.script_load(ECHO))


def test_scripts_answer_as_ever(redis_url: str) -> None:
    client, digest = lean(redis_url)
    assert isinstance(connect(redis_url), LeanRedis), "nobody would use it"
    assert client.execute_command("EVALSHA", digest, 1, "key", b"\x00\xff") == [b"key", b"\x00\xff", 7]
    with pytest.raises(NoScriptError):
        client.execute_command("EVALSHA", "0" * 40, 0)
    broken = client.script_load("return redis.call('GET')")
    with pytest.raises(ResponseError):
        client.execute_command("EVALSHA", broken, 0)
    assert client.execute_command("EVALSHA", digest, 1, "key", 3) == [b"key", b"3", 7], "an error cost the connection"
    assert client.ping()


def test_one_connection_serves_calls_that_follow_each_other(redis_url: str, redis_client: redis.Redis) -> None:
    client, digest = lean(redis_url)
    before = redis_client.info("clients")["connected_clients"]
    for number in range(50):
        assert client.execute_command("EVALSHA", digest, 1, "key", number)[2] == 7
    assert redis_client.info("clients")["connected_clients"] <= before + 1


def test_threads_share_a_small_pool_with_other_commands(redis_url: str) -> None:
    client, digest = lean(redis_url, connections=3)
    wrong: list[object] = []

    def work(name: str) -> None:
        for number in range(200):
            answer = client.execute_command("EVALSHA", digest, 1, name, number)
            if answer != [name.encode(), str(number).encode(), 7] or not client.ping():
                wrong.append(answer)

    threads = [threading.Thread(target=work, args=(f"thread-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_a_connection_that_was_killed_says_so_once_or_not_at_all(redis_url: str, redis_client: redis.Redis) -> None:
    def kill() -> None:
        mine = [one["id"] for one in redis_client.client_list() if one["name"] == NAME]
        assert mine
        for number in mine:
            redis_client.client_kill_filter(_id=number)

    clock = ManualClock()
    client, digest = lean(redis_url, clock=clock)
    assert client.execute_command("EVALSHA", digest, 1, "k", 1)[1] == b"1"
    kill()
    with pytest.raises(redis.ConnectionError):
        client.execute_command("EVALSHA", digest, 1, "k", 2)
    assert client.execute_command("EVALSHA", digest, 1, "k", 3)[1] == b"3"
    kill()
    clock.advance(2 * FRESH_S)
    assert client.execute_command("EVALSHA", digest, 1, "k", 4)[1] == b"4", "an idle connection is looked at first"


def test_a_pool_of_one_is_left_to_everybody(redis_url: str) -> None:
    client, digest = lean(redis_url, connections=1)
    for number in range(3):
        assert client.execute_command("EVALSHA", digest, 1, "key", number)[2] == 7
        assert client.ping()
