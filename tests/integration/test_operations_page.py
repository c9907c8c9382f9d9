"""The pages of docs/operations are true: their commands parse, their links lead somewhere, their redis-cli lines show
the same numbers as ``hearline queue``, their numbers are those of the code."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest
import redis

from api import patience, pulse, wsgi
from ops.cli import main
from ops.redis_server import find_server
from ops.restarts import SETTINGS_STATUSES
from queueing.connect import CONNECT_TIMEOUT_S, SOCKET_TIMEOUT_S
from queueing.job import NewJob
from queueing.job_queue import JobQueue
from queueing.lane import Kind
from sessions.audio_buffer import AudioBuffer
from sessions.events import FIRST_PAUSE_S, LONGEST_PAUSE_S
from workers.__main__ import CONNECTIONS
from workers.heartbeat import HEARTBEAT_S

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "operations"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
RUN = ("look-inside.md", "redis.md")
"""Pages whose redis-cli lines are run here; others set up what a test must not."""
SESSION = "5f0c2a9be4d17386"
WORKER = "speech-1-4711-a3f09c"


def lines(program: str, pages: Iterable[str] = tuple(PAGES)) -> list[str]:
    """The pages' shell lines that run ``program``, without their comments."""
    blocks = [block for page in pages for block in re.findall(r"```sh\n(.*?)```", PAGES[page], re.DOTALL)]
    found = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in found if line.startswith(f"{program} ")]


def parse(command: click.Command, arguments: list[str], parent: click.Context | None = None) -> None:
    """Parse as the command would, without running it; raises click.UsageError."""
    context = command.make_context(command.name, list(arguments), parent=parent)
    if isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        _, sub, rest = command.resolve_command(context, rest)
        assert sub is not None
        parse(sub, rest, context)


@pytest.fixture(scope="module")
def redis_cli() -> str:
    beside = find_server().with_name("redis-cli")
    found = str(beside) if beside.is_file() else shutil.which("redis-cli")
    if found is None:
        pytest.skip("no redis-cli beside the Redis server or on PATH")
    return found


@pytest.fixture
def seeded(redis_client: redis.Redis) -> Iterator[JobQueue]:
    """The queue of the page's examples: a dead final, a running one, one that waits; a worker; audio."""
    queue = JobQueue(redis_client)

    def job(kind: Kind, name: str) -> NewJob:
        return NewJob(
            id=f"{SESSION}:{name}",
            session=SESSION,
            kind=kind,
            segment=int(name[-1]),
            start_byte=0,
            end_byte=240_000,
            audio_s=7.5,
            front="web-1",
        )

    buffer = AudioBuffer(redis_client, 60.0)
    buffer.create(SESSION, {"front": "web-1"})
    buffer.append(SESSION, 0, bytes(240_000))
    queue.enqueue(job(Kind.FINAL, "f:0"))
    (lease,) = queue.claim(WORKER, "n0")
    queue.fail(lease, "decode_failed", "no attempt worked", retry=False)
    for name in ("f:1", "f:2", "f:3"):
        queue.enqueue(job(Kind.FINAL, name))
    (lease,) = queue.claim(WORKER, "n1")
    queue.complete(lease, {"text": "hello"}, decode_ms=287.0)
    queue.claim(WORKER, "n2")
    queue.enqueue(job(Kind.PARTIAL, "p:4"))
    queue.heartbeat(WORKER, {"state": "busy", "model": "tiny.en"})
    yield queue
    queue.cancel_session(SESSION)


def test_every_hearline_command_parses() -> None:
    commands = lines("hearline")
    assert len(commands) > 15
    for line in commands:
        try:
            parse(main, shlex.split(line)[1:])
        except click.exceptions.Exit:
            continue
        except click.UsageError as error:
            pytest.fail(f"{line!r}: {error.format_message()}")


def test_every_hearline_command_in_the_text_parses() -> None:
    spans = [span for page in PAGES.values() for span in re.findall(r"`(hearline\s[^`]+)`", page)]
    assert len(spans) > 30
    for span in spans:
        try:
            parse(main, shlex.split(span)[1:])
        except (click.exceptions.Exit, click.MissingParameter):
            continue
        except click.UsageError as error:
            if error.format_message() != "Missing command.":
                pytest.fail(f"{span!r}: {error.format_message()}")


@pytest.mark.parametrize("page", [name for name, page in PAGES.items() if "\nhearline keys add" in page])
def test_the_commands_that_make_keys_run_as_they_stand(page: str, tmp_path: Path) -> None:
    """In a folder without anything, that of the system replaced; who owns the file is left out."""
    (block,) = [
        block for block in re.findall(r"```sh\n(.*?)```", PAGES[page], re.DOTALL) if "hearline keys add" in block
    ]
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, line in (
        ("sudo", 'exec "$@"'),
        ("chown", "true"),
        ("hearline", f'exec {sys.executable} -m ops.cli "$@"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    run = subprocess.run(
        ["/bin/sh", "-e", "-c", block.replace("/etc/", f"{tmp_path}/etc/")],
        cwd=tmp_path,
        env={"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(FOLDER.parents[1]), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    (made,) = tmp_path.rglob("keys/keys" if page == "container.md" else "etc/hearline/keys")
    assert made.is_file()


def test_every_redis_cli_line_answers(seeded: JobQueue, redis_url: str, redis_cli: str) -> None:
    commands = lines("redis-cli", RUN)
    assert len(commands) > 15
    silent = []
    for line in commands:
        command = line.replace("redis-cli", shlex.quote(redis_cli), 1)
        run = subprocess.run(
            ["/bin/sh", "-c", command],
            env={"REDIS_URL": redis_url},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        assert run.returncode == 0, f"{line}: {run.stderr}"
        assert not run.stdout.startswith(("ERR", "WRONGTYPE", "(error)")), f"{line}: {run.stdout}"
        assert "WRONGTYPE" not in run.stdout
        if not run.stdout.strip():
            silent.append(line)
    # Nobody streams in this test, and the server is too young for a slow command.
    assert [line for line in silent if ":streams'" not in line and "slowlog" not in line] == []


def test_redis_cli_and_the_command_say_the_same(seeded: JobQueue, redis_url: str, redis_cli: str) -> None:
    def cli(*arguments: str) -> list[str]:
        run = subprocess.run(
            [redis_cli, "-u", redis_url, *arguments], capture_output=True, text=True, timeout=20, check=True
        )
        return run.stdout.split()

    stats = seeded.stats()
    depth = {lane.lane.name: lane.depth for lane in stats.lanes}
    assert int(cli("zcard", "hl:{q:main}:lane:final:10")[0]) == depth["final:10"] == 1
    assert cli("zrange", "hl:{q:main}:leases", "0", "-1") == [lease.job.id for lease in stats.leases]
    costs = cli("hgetall", "hl:{q:main}:costs")
    learned = {lane.lane.name: lane.cost_ms for lane in stats.lanes if lane.learned}
    assert dict(zip(costs[::2], map(float, costs[1::2]), strict=True)) == pytest.approx(learned)
    counts = cli("hgetall", "hl:{q:main}:counts")
    assert dict(zip(counts[::2], map(int, counts[1::2]), strict=True)) == dict(stats.counts)
    _, tier, head_start, rate, max_age = cli("hget", "hl:{q:main}:policy", "final:10")
    rank = next(lane.rank for lane in stats.lanes if lane.lane.name == "final:10")
    assert (int(tier), float(head_start), float(rate), float(max_age)) == (
        rank.tier,
        rank.head_start_ms,
        rank.rate,
        rank.max_age_ms,
    )


def test_the_exit_statuses_on_the_page_are_those_of_the_commands() -> None:
    from ops.errors import Failed, Missing, WrongUse

    table = dict(re.findall(r"^\| (\d+) \| (.+?) \|$", PAGES["start-and-stop.md"], re.MULTILINE))
    for error, word in ((Failed, "failed"), (WrongUse, "wrong arguments or settings"), (Missing, "missing")):
        assert word in table[str(error.exit_code)]


def test_every_page_is_in_the_index_and_every_link_leads_somewhere() -> None:
    listed = set(re.findall(r"\]\(([a-z-]+\.md)\)", PAGES["README.md"]))
    assert listed == set(PAGES) - {"README.md"}
    for name, page in PAGES.items():
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page):
            assert target.startswith("http") or (FOLDER / target).exists(), f"{name}: {target}"


def test_the_units_give_processes_the_time_that_they_drain_in() -> None:
    units = re.findall(r"```ini\n(.*?)```", PAGES["deploy.md"], re.DOTALL)
    assert len(units) == 3
    for unit in units:
        settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
        drain_s = int(re.findall(r"HEARLINE_DRAIN_S=(\d+)", unit)[0])
        both = 2 * drain_s if "hearline up" in settings["ExecStart"] else drain_s  # web, then workers
        assert int(settings["TimeoutStopSec"]) >= both + 10
        assert settings["KillMode"] == "mixed"
        module = re.search(r"-m (\w+)", settings["ExecStart"])
        assert module is None or module[1] in ("api", "workers")
        if module:
            assert settings["Restart"] == "always"
            assert int(settings["RestartPreventExitStatus"]) in SETTINGS_STATUSES


def test_the_numbers_of_connections_and_patience_are_those_of_the_code() -> None:
    redis_page = re.sub(r"\s+", " ", PAGES["redis.md"])
    assert f"a web process at most {wsgi.REDIS_CONNECTIONS} " in redis_page
    assert f"a worker {CONNECTIONS};" in redis_page
    assert f"nothing answers for {SOCKET_TIMEOUT_S:g} s ({CONNECT_TIMEOUT_S:g} s to connect)" in redis_page
    assert f"keep what they could not write for {patience.PATIENCE_S:g} s" in PAGES["start-order.md"]
    assert f"A stream holds on for {patience.PATIENCE_S:g} s" in PAGES["sentinel.md"]
    assert f"A web process asks {'once a second' if pulse.PULSE_S == 1 else '?'}" in PAGES["start-order.md"]
    assert f"after {FIRST_PAUSE_S:g} s, doubling to {LONGEST_PAUSE_S:g} s" in PAGES["start-order.md"]
    assert f"a heartbeat every {HEARTBEAT_S:g} s" in PAGES["start-order.md"]
