"""The audio of sessions in a real Redis."""

from __future__ import annotations

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.connect import connect
from queueing.errors import QueueUnavailable
from sessions.audio_buffer import AudioBuffer
from sessions.errors import AudioLost
from sessions.keys import SessionKeys


@pytest.fixture
def buffer(redis_client: redis.Redis) -> AudioBuffer:
    return AudioBuffer(redis_client, ttl_s=60)


def test_what_is_appended_is_read_back_in_any_range(buffer: AudioBuffer) -> None:
    buffer.create("s1", {"language": "en"})
    assert buffer.append("s1", 0, b"abcd") == 4
    assert buffer.append("s1", 4, b"\x00\xff\r\n") == 8
    assert buffer.read("s1", 0, 8) == b"abcd\x00\xff\r\n"
    assert buffer.read("s1", 2, 6) == b"cd\x00\xff"
    assert buffer.read("s1", 3, 3) == b""


def test_a_repeated_append_changes_nothing(buffer: AudioBuffer) -> None:
    for _ in range(2):
        assert buffer.append("s1", 0, b"abcd") == 4
    for _ in range(3):
        assert buffer.append("s1", 4, b"efgh") == 8
    assert buffer.append("s1", 0, b"abcd") == 8
    assert buffer.read("s1", 0, 8) == b"abcdefgh"


def test_audio_that_is_gone_is_noticed_by_both_sides(buffer: AudioBuffer, redis_client: redis.Redis) -> None:
    buffer.append("s1", 0, b"abcd")
    redis_client.flushall()
    with pytest.raises(AudioLost) as caught:
        buffer.append("s1", 4, b"efgh")
    assert (caught.value.session, caught.value.held, caught.value.needed) == ("s1", 0, 4)
    with pytest.raises(AudioLost):
        buffer.read("s1", 0, 4)
    with pytest.raises(AudioLost):
        buffer.append("s1", 4, b"")  # what keeps a quiet stream's buffer alive tells as well
    assert redis_client.keys() == []


def test_a_read_beyond_the_end_is_lost_audio(buffer: AudioBuffer) -> None:
    buffer.append("s1", 0, b"abcd")
    with pytest.raises(AudioLost) as caught:
        buffer.read("s1", 2, 6)
    assert (caught.value.held, caught.value.needed) == (4, 6)
    with pytest.raises(ValueError, match="no byte range: 4 to 2"):
        buffer.read("s1", 4, 2)


def test_every_key_expires_and_an_append_renews_both(buffer: AudioBuffer, redis_client: redis.Redis) -> None:
    keys = SessionKeys("s1")
    buffer.create("s1", {"client_ref": "r", "language": "en", "front": "f1", "started_ms": "1"})
    buffer.append("s1", 0, b"abcd")
    for key in (keys.meta, keys.audio):
        redis_client.pexpire(key, 500)
    buffer.append("s1", 4, b"")
    for key in (keys.meta, keys.audio):
        assert 50_000 < redis_client.pttl(key) <= 60_000
    assert redis_client.hgetall(keys.meta)[b"front"] == b"f1"


def test_an_append_is_one_round_trip(buffer: AudioBuffer, redis_client: redis.Redis) -> None:
    buffer.append("s1", 0, b"ab")  # Redis knows the script from here on
    before = redis_client.info("commandstats")
    buffer.append("s1", 2, b"cd")
    after = redis_client.info("commandstats")
    assert after["cmdstat_evalsha"]["calls"] - before["cmdstat_evalsha"]["calls"] == 1
    assert after.get("cmdstat_eval", {}).get("calls", 0) == before.get("cmdstat_eval", {}).get("calls", 0)


def test_the_scripts_come_back_after_a_flush(buffer: AudioBuffer, redis_client: redis.Redis) -> None:
    buffer.append("s1", 0, b"ab")
    redis_client.script_flush()
    assert buffer.append("s1", 2, b"cd") == 4


def test_a_session_is_bounded(redis_client: redis.Redis) -> None:
    buffer = AudioBuffer(redis_client, ttl_s=60, max_bytes=6)
    buffer.append("s1", 0, b"abcdef")
    with pytest.raises(ValueError, match="up to byte 8, held up to 6; at most 6 bytes fit: trim"):
        buffer.append("s1", 6, b"gh")
    assert buffer.read("s1", 0, 6) == b"abcdef"
    buffer.trim("s1", 4)
    assert buffer.append("s1", 6, b"gh") == 8, "what is trimmed makes room"


def test_positions_count_from_the_start_whatever_was_trimmed(buffer: AudioBuffer, redis_client: redis.Redis) -> None:
    buffer.create("s1", {"language": "en"})
    buffer.append("s1", 0, b"abcdefgh")
    assert buffer.trim("s1", 4) == 4
    assert buffer.read("s1", 4, 8) == b"efgh"
    with pytest.raises(AudioLost):
        buffer.read("s1", 2, 6)
    assert buffer.append("s1", 8, b"ij", keep_from=4) == 10
    assert buffer.trim("s1", 10) == 0
    assert buffer.append("s1", 10, b"", keep_from=10) == 10, "a quiet stream is kept alive"
    buffer.create("s1", {"language": "de"})
    assert buffer.append("s1", 10, b"kl", keep_from=10) == 12
    assert buffer.read("s1", 10, 12) == b"kl"
    assert redis_client.strlen(SessionKeys("s1").audio) == 2
    for key in (SessionKeys("s1").audio, SessionKeys("s1").meta):
        assert redis_client.pttl(key) > 0


def test_silence_that_was_left_out_is_no_loss_but_a_loss_is(buffer: AudioBuffer, redis_client: redis.Redis) -> None:
    buffer.append("s1", 0, b"abcd")
    assert buffer.append("s1", 10, b"kl", follows=4, keep_from=0) == 12, "the final of the first four is due"
    assert buffer.read("s1", 0, 4) == b"abcd"
    assert buffer.append("s1", 10, b"kl", follows=4, keep_from=0) == 12, "again, after a lost reply"
    redis_client.flushall()
    with pytest.raises(AudioLost):
        buffer.append("s1", 20, b"uv", follows=12, keep_from=10)
    assert buffer.append("s1", 20, b"uv", follows=12, keep_from=20) == 22, "nothing that is needed is gone"
    assert buffer.read("s1", 20, 22) == b"uv"


def test_audio_whose_position_is_forgotten_is_lost(buffer: AudioBuffer, redis_client: redis.Redis) -> None:
    buffer.append("s1", 0, b"abcd")
    redis_client.delete(SessionKeys("s1").meta)
    for wrong in (lambda: buffer.append("s1", 4, b"ef"), lambda: buffer.read("s1", 0, 4)):
        with pytest.raises(AudioLost):
            wrong()


def test_delete_leaves_nothing_and_may_be_repeated(buffer: AudioBuffer, redis_client: redis.Redis) -> None:
    buffer.create("s1", {"language": ""})
    buffer.append("s1", 0, b"ab")
    buffer.delete("s1")
    buffer.delete("s1")
    assert redis_client.keys() == []


def test_an_absent_redis_is_unavailable_for_every_verb() -> None:
    with RedisServer() as server:
        url = server.url
    buffer = AudioBuffer(connect(url), ttl_s=60)
    for verb in (
        lambda: buffer.create("s1", {"a": "b"}),
        lambda: buffer.append("s1", 0, b"ab"),
        lambda: buffer.read("s1", 0, 2),
        lambda: buffer.trim("s1", 2),
        lambda: buffer.delete("s1"),
    ):
        with pytest.raises(QueueUnavailable):
            verb()
