"""The harness itself: one seed with real processes, what it does to connections and clocks, what it finds left."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import redis

from ops.chaos.clocks import Clocks
from ops.chaos.programs import Program, Programs
from ops.chaos.proxy import Proxy
from ops.chaos.watch import QUEUE, Watch
from queueing.job_queue import JobQueue
from sessions.audio_buffer import AudioBuffer
from tests.support.eventually import eventually
from tests.support.queue_jobs import final
from tests.support.up_process import clean_environment

MINUTES = 1.0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_seed_of_chaos_leaves_balanced_books(rng: random.Random) -> None:
    """HEARLINE_TEST_SEED replays it; `python -m ops.chaos --seed N --minutes 1` with the printed N as well."""
    seed = rng.getrandbits(32)
    command = [sys.executable, "-m", "ops.chaos", "--seed", str(seed), "--minutes", str(MINUTES), "--json"]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=280, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert report["violations"] == []
    assert report["seed"] == seed
    assert sum(report["faults"].values()) >= 5
    assert report["streams"] >= 15
    assert report["finals"] > report["streams"] / 2
    assert report["outcomes"]["done"] > 0
    assert report["recovery_s"]["n"] > 0
    assert report["looks"] > 20, "Redis was watched"


def test_the_watch_finds_what_streams_left_behind(redis_client: redis.Redis) -> None:
    watch = Watch(redis_client)
    assert watch.leftovers(0, strict=True) == []
    JobQueue(redis_client).enqueue(final("a"))
    AudioBuffer(redis_client).append("a", 0, b"\0\0")
    redis_client.set("hl:{q:main}:gremlin", 1)
    redis_client.zadd(QUEUE.streams, {"a": 1})
    left = "\n".join(watch.leftovers(1, strict=True))
    for expected in ("streams:", "lane:final", ":job:a:f:0", "{s:a}:audio", "gremlin never expires", "registry: 0"):
        assert expected in left
    watch.look()
    assert watch.found == {"no expiry gremlin": "hl:{q:main}:gremlin"}
    redis_client.flushall()


def test_a_clock_is_set_without_the_process_knowing(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path, ("a",))
    if not clocks.available:
        pytest.skip("no C compiler here")
    program = "import time; input(); print(time.time()); input(); print(time.time(), time.monotonic())"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, **clocks.environment("a")},  # noqa: TID251
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        before = float(process.stdout.readline())
        clocks.step("a", -3600)
        process.stdin.write("\n")
        process.stdin.flush()
        after = float(process.stdout.readline().split()[0])
    assert -3600 <= after - before < -3000


class Echo(asyncio.Protocol):
    """Sends back what comes."""

    def __init__(self, got: list[bytes]) -> None:
        self._got = got

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._got.append(data)
        self._transport.write(data)


async def proxied(got: list[bytes]) -> tuple[Proxy, asyncio.Server]:
    server = await asyncio.get_running_loop().create_server(lambda: Echo(got), "127.0.0.1", 0)
    proxy = Proxy("echo", server.sockets[0].getsockname()[1])
    await proxy.start()
    return proxy, server


def test_the_proxy_cuts_a_reply_after_the_request_was_served() -> None:
    async def scenario() -> None:
        got: list[bytes] = []
        proxy, server = await proxied(got)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        proxy.cut_replies(1)
        writer.write(b"PING")
        assert await reader.readexactly(4) == b"PING", "only scripts are cut"
        writer.write(b"EVALSHA 1")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(9)
        assert got == [b"PING", b"EVALSHA 1"], "the request was served"
        assert proxy.cut == 1
        writer.close()
        await proxy.stop()
        server.close()

    asyncio.run(scenario())


def test_the_proxy_stalls_silences_resets_and_leaves_connections_half_open() -> None:
    async def scenario() -> None:
        proxy, server = await proxied([])
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        for stall, resume in (
            (proxy.pairs[0].flows.clear, proxy.pairs[0].flows.set),
            (lambda: proxy.silence(True), lambda: proxy.silence(False)),
        ):
            stall()
            writer.write(b"two")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.1)
            resume()
            assert await reader.readexactly(3) == b"two", "nothing is lost in a stall"
        proxy.pairs[0].half_open(client_knows=False)
        assert proxy.pairs == [], "it is no live connection any more"
        writer.write(b"three")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        other_reader, other = await asyncio.open_connection("127.0.0.1", proxy.port)
        other.write(b"x")
        await other_reader.readexactly(1)
        proxy.pairs[0].reset()
        with pytest.raises(ConnectionResetError):
            await other_reader.readexactly(1)
        for closing in (writer, other):
            closing.close()
        await proxy.stop()
        server.close()

    asyncio.run(scenario())


def test_a_stopped_child_goes_on_though_its_parent_was_killed_meanwhile(tmp_path: Path) -> None:
    ended: list[str] = []
    programs = Programs(lambda: 0.0, lambda name, _text: ended.append(name))
    child = "import time\nwhile True: time.sleep(0.01)"
    command = [sys.executable, "-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"]
    programs.add(Program("web1", command, dict(os.environ), tmp_path / "log"))  # noqa: TID251
    eventually(lambda: len(programs["web1"].family()) == 2, what="the child")
    stopped = programs.strike("web1", signal.SIGSTOP)
    orphan = stopped[-1]
    eventually(lambda: orphan.status() == psutil.STATUS_STOPPED, what="the stop")
    programs.strike("web1", signal.SIGKILL, whom="leader")
    eventually(lambda: not programs["web1"].family() or not programs["web1"].family()[1:], what="the parent's end")
    programs.go_on("web1", stopped)
    eventually(lambda: orphan.status() != psutil.STATUS_STOPPED, what="the orphan that goes on")
    orphan.kill()
    programs.stop(5.0)
    assert ended == []
