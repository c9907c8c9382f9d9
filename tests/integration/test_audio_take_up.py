"""Who may take up a stored session, and that nobody before writes into it any more: one connection at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from sessions.audio_buffer import AudioBuffer
from sessions.errors import ResumeRefused, TakenOver

FIRST = {"token": "t0", "label": "kiosk", "epoch": "1", "front": "w1"}


@pytest.fixture
def buffer(redis_client: redis.Redis) -> AudioBuffer:
    buffer = AudioBuffer(redis_client)
    buffer.create("s", FIRST, epoch=1)
    buffer.append("s", 0, bytes(100), epoch=1)
    return buffer


def held(client: redis.Redis) -> dict[bytes, bytes | None]:
    return {key: client.dump(key) for key in client.scan_iter()}


@pytest.mark.parametrize(
    ("session", "token", "label"),
    [
        ("s", "t1", "kiosk"),
        ("s", "", "kiosk"),
        ("s", "t0", "other"),
        ("s", "t0", ""),
        ("unknown", "t0", "kiosk"),
    ],
    ids=["wrong token", "no token", "another key", "no key", "no such session"],
)
def test_whoever_is_not_its_client_changes_nothing(
    buffer: AudioBuffer, redis_client: redis.Redis, session: str, token: str, label: str
) -> None:
    before = held(redis_client)
    with pytest.raises(ResumeRefused):
        buffer.take_up(session, token, "t2", label=label, front="w2")
    assert held(redis_client) == before


def test_a_session_without_a_token_is_nobodys(redis_client: redis.Redis) -> None:
    buffer = AudioBuffer(redis_client)
    buffer.create("s", FIRST | {"token": ""}, epoch=1)
    with pytest.raises(ResumeRefused):
        buffer.take_up("s", "", "t1", label="kiosk", front="w2")


def test_a_token_is_void_once_the_one_after_it_was_used(buffer: AudioBuffer) -> None:
    for number in (1, 2, 3):  # its answers were lost: the token stays good while nobody has the newer
        assert buffer.take_up("s", "t0", f"t{number}", label="kiosk", front="w2").epoch == 1 + number
    assert buffer.take_up("s", "t3", "t4", label="kiosk", front="w2").epoch == 5
    for void in ("t0", "t1", "t2"):
        with pytest.raises(ResumeRefused):
            buffer.take_up("s", void, "t5", label="kiosk", front="w3")


@pytest.mark.parametrize(
    "write",
    [
        lambda buffer: buffer.append("s", 100, bytes(100), epoch=1),
        lambda buffer: buffer.append("s", 100, b"", epoch=1, fields={"final:0": "[]"}),
        lambda buffer: buffer.remember("s", {"final:0": "[]"}, epoch=1),
        lambda buffer: buffer.trim("s", 50, epoch=1),
        lambda buffer: buffer.delete("s", epoch=1),
    ],
    ids=["audio", "a field with it", "a field", "a trim", "the end"],
)
def test_an_older_connection_writes_nothing(
    buffer: AudioBuffer, redis_client: redis.Redis, write: Callable[[AudioBuffer], object]
) -> None:
    buffer.take_up("s", "t0", "t1", label="kiosk", front="w2")
    before = held(redis_client)
    with pytest.raises(TakenOver):
        write(buffer)
    assert held(redis_client) == before


def test_of_many_at_the_same_moment_one_has_the_session(buffer: AudioBuffer) -> None:
    def come_back(number: int) -> int:
        return buffer.take_up("s", "t0", f"n{number}", label="kiosk", front=f"w{number}").epoch

    with ThreadPoolExecutor(8) as pool:
        epochs = list(pool.map(come_back, range(8)))
    assert sorted(epochs) == list(range(2, 10))
    for epoch in range(2, 9):
        with pytest.raises(TakenOver):
            buffer.append("s", 100, bytes(2), epoch=epoch)
    assert buffer.append("s", 100, bytes(2), epoch=9) == 102
