"""Fixtures for every test: a real Redis started by the test run, an empty database per test, a leak check."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ops.redis_server import RedisServer
from queueing.connect import connect
from tests.support.chosen_server import deployed, put_on_path
from tests.support.leaks import keys_without_expiry


def pytest_configure() -> None:
    """Whoever starts the tests in the background has SIGINT, and with nohup SIGHUP, ignored; what the tests start would
    inherit that, and some of it is to be stopped by them. A signal with a handler is not ignored in a new program."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)
    if server := os.environ.get("HEARLINE_REDIS_SERVER"):  # noqa: TID251
        put_on_path(server)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A redis-server of this test run's own."""
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def deployment_url(redis_server: RedisServer) -> Iterator[str]:
    """The server of this run, or the Sentinels or the Cluster that HEARLINE_TEST_DEPLOYMENT asks for."""
    with deployed(os.environ, redis_server.url) as url:  # noqa: TID251
        yield url


@pytest.fixture
def redis_url(deployment_url: str) -> Iterator[str]:
    """The URL of an empty Redis; afterwards no key without expiry may be left but the permanent ones."""
    client = connect(deployment_url)
    client.flushall()
    yield deployment_url
    leaked = keys_without_expiry(client)
    client.flushall()
    client.close()
    assert not leaked, f"keys left without expiry that are not on the permanent list: {leaked}"


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the empty Redis."""
    client = connect(redis_url)
    yield client
    client.close()


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Chance for this test; the seed is printed when it fails, HEARLINE_TEST_SEED replays it."""
    seed = int(os.environ.get("HEARLINE_TEST_SEED") or random.SystemRandom().randrange(2**32))  # noqa: TID251
    print(f"{request.node.name}: HEARLINE_TEST_SEED={seed}")  # noqa: T201
    return random.Random(seed)


@pytest.fixture(scope="session")
def speech_dir() -> Path:
    """The folder of real recordings; skips where it is absent."""
    default = Path(__file__).resolve().parent.parent.parent / "shared" / "speech"
    folder = Path(os.environ.get("HEARLINE_SPEECH") or default)  # noqa: TID251
    if not (folder / "manifest.csv").is_file():
        pytest.skip(f"no recordings at {folder}; set HEARLINE_SPEECH to a folder with manifest.csv")
    return folder
