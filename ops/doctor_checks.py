"""What ``hearline doctor`` looks at. Each check returns a finding and changes nothing."""

from __future__ import annotations

import errno
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil

from ops.configuration import load
from ops.ports import holder, try_port
from ops.procfile import python_module
from ops.readiness import State, ask, is_hearline, local_url
from ops.redis_server import NoRedis, find_server
from ops.run_file import RunRecord
from ops.settings import UpSettings
from ops.settings_check import PROGRAMS
from queueing.connect import connect
from queueing.errors import QueueUnavailable, SettingsError, UnsafeRedis
from queueing.machine import usable_cpus
from queueing.redis_check import Deployment, RedisReport, inspect_redis
from sessions.api_keys import BadKeyFile, read_keys
from sessions.exposure import exposure_problem, listens_on_loopback

OLDEST_PYTHON = (3, 11)
OLDEST_REDIS = (6, 2)

ENOUGH_MEMORY_GIB = 1.5
"""tiny.en takes about 0.4 GiB in a worker, the web process and Redis about 0.2 GiB together; the rest is air."""

ENOUGH_FILES = 2_048
"""Three descriptors a stream at the default 200 streams, Redis connections, and room."""

MODEL_CHECK_S = 120.0


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; ``fix`` says what helps and is empty when nothing needs to be done."""

    name: str
    level: Level
    found: str
    fix: str = ""

    def fields(self) -> dict[str, str]:
        """JSON-able."""
        return {name: str(value) for name, value in asdict(self).items()}


def check_python() -> Finding:
    """The interpreter is new enough."""
    found = f"Python {platform.python_version()} at {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("python", Level.WRONG, found, "use Python 3.11 or newer")
    return Finding("python", Level.OK, found)


def check_redis_url(url: str) -> Finding:
    """The Redis that REDIS_URL names answers, is new enough and never evicts."""
    try:
        client = connect(url, max_connections=1)
    except ValueError as error:
        return Finding("redis", Level.WRONG, f"REDIS_URL is malformed: {error}", "write redis://HOST:PORT/0")
    try:
        report = inspect_redis(client)
    except QueueUnavailable as error:
        return Finding(
            "redis", Level.WRONG, str(error), "start that Redis, or unset REDIS_URL to have one brought along"
        )
    except UnsafeRedis as error:
        return Finding("redis", Level.WRONG, f"REDIS_URL: {error.problem}", error.fix)
    finally:
        client.close()
    return _redis_found(report)


def _redis_found(report: RedisReport) -> Finding:
    """What is there, and what of it an operator may not have wanted."""
    where = {
        Deployment.SINGLE: "the one server REDIS_URL names",
        Deployment.SENTINEL: "the primary that the Sentinels of REDIS_URL name",
        Deployment.CLUSTER: f"the {len(report.servers)} primaries of REDIS_URL's Cluster",
    }[report.deployment]
    if report.unknown:
        return Finding(
            "redis", Level.WARNING, f"{where}: {report.unknown}", "allow it INFO, or check by hand: noeviction"
        )
    kept = "; ".join(sorted({f"persistence: {server.persistence}" for server in report.servers}))
    if coverage := "/".join(sorted({server.full_coverage for server in report.servers if server.full_coverage})):
        kept += f", full coverage required: {coverage}"
    replicas = sum(server.replicas for server in report.servers)
    found = f"Redis {report.version} ({where}, noeviction, {kept}, replicas: {replicas})"
    if report.deployment is not Deployment.SINGLE and min(server.replicas for server in report.servers) == 0:
        return Finding(
            "redis", Level.WARNING, found, "a primary without a replica: nothing takes its place when it dies"
        )
    return Finding("redis", Level.OK, found)


def check_redis_binary() -> Finding:
    """Some server binary is there to be started, and new enough."""
    try:
        binary = find_server()
    except NoRedis as error:
        first, _, ways = str(error).partition("\n")
        return Finding("redis", Level.WRONG, first, ways.strip())
    try:
        said = subprocess.run(
            [str(binary), "--version"], capture_output=True, text=True, timeout=10, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("redis", Level.WRONG, f"{binary} does not run: {error}", "install redis-server")
    version = re.search(r"v=(\d+\.\d+(\.\d+)?)", said)
    return _redis_version(version[1] if version else "unknown", str(binary))


def _redis_version(version: str, where: str) -> Finding:
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    found = f"Redis {version} ({where})"
    if numbers and numbers < OLDEST_REDIS:
        return Finding("redis", Level.WRONG, found, "use Redis 6.2 or newer, or Valkey")
    return Finding("redis", Level.OK, found)


def check_model(environment: Mapping[str, str]) -> Finding:
    """The worker's own check of its model and settings, if this installation's worker offers one."""
    command = [*python_module("workers"), "--check"]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=MODEL_CHECK_S, check=False, env=dict(environment)
        )
    except subprocess.TimeoutExpired:
        return Finding("model", Level.WRONG, f"`python -m workers --check` took over {MODEL_CHECK_S:g} s", "")
    said = (run.stdout.strip() or run.stderr.strip()).splitlines() or ["(nothing)"]
    if run.returncode == 0:
        return Finding("model", Level.OK, said[-1])
    if "unrecognized arguments: --check" in run.stderr or "No module named workers" in run.stderr:
        return Finding("model", Level.SKIPPED, "the worker offers no check; `hearline demo` tries the model")
    told = "\n".join(said[-5:])
    settings = list(dict.fromkeys(re.findall(r"HEARLINE_[A-Z_]+", told))) or ["HEARLINE_MODEL"]
    return Finding("model", Level.WRONG, told, f"see {', '.join(settings)} in docs/configuration.md")


def check_port(settings: UpSettings, running: RunRecord | None) -> Finding:
    """The port is free, or a running service has it."""
    place = f"port {settings.port} on {settings.host}"
    if running is not None and running.url and running.url.endswith(f":{settings.port}"):
        return Finding("port", Level.OK, f"{place}: `hearline up` runs there (pid {running.pid}) {_state(running.url)}")
    try:
        try_port(settings.host, settings.port)
    except OSError as error:
        who, url = holder(settings.port), local_url(settings.host, settings.port)
        if error.errno == errno.EADDRINUSE and is_hearline(url):
            # Not the one that the run file names: an older `hearline up`, a second web process, one under systemd.
            web = f"a web process of Hearline runs there{f', {who},' if who else ''}"
            found = f"{place}: {web} {_state(url)}; another service on this machine needs another port"
            return Finding("port", Level.OK, found)
        held_by = f", held by {who}" if who else ""
        fix = "stop what uses it, or take another: HEARLINE_PORT, --port NUMBER"
        return Finding("port", Level.WRONG, f"{place} cannot be used: {error.strerror}{held_by}", fix)
    return Finding("port", Level.OK, f"{place} is free")


def _state(url: str) -> str:
    answer = ask(url)
    return "and is ready" if answer.state is State.READY else f"and is not ready: {answer.reason}"


def check_access(environment: Mapping[str, str], settings: UpSettings) -> Finding:
    """The web process may listen where it shall: to this machine alone, or with keys."""
    try:
        web: Any = load(PROGRAMS["web"]).from_env(environment)
        keys = None if web.api_keys is None else read_keys(web.api_keys)
    except SettingsError as error:
        return Finding("access", Level.WRONG, str(error), "docs/configuration.md lists the settings")
    except BadKeyFile as error:
        return Finding("access", Level.WRONG, f"HEARLINE_API_KEYS: {error}", "`hearline keys --help`")
    problem = exposure_problem(settings.host, has_keys=keys is not None, allow_anonymous=web.allow_anonymous)
    if problem is not None:
        found, _, fix = problem.partition(". ")
        return Finding("access", Level.WRONG, found, fix)
    if keys is not None:
        level, fix = (Level.OK, "") if keys else (Level.WARNING, "hearline keys add --label NAME")
        return Finding("access", level, f"{len(keys)} API keys in {web.api_keys}", fix)
    if listens_on_loopback(settings.host):
        return Finding("access", Level.OK, "listens to this machine alone, without API keys")
    fix = "`hearline keys add`, unless something else keeps strangers away"
    return Finding("access", Level.WARNING, f"anybody who reaches {settings.host} may use the service", fix)


def check_cpus() -> Finding:
    """How many CPUs this process may use."""
    count = usable_cpus()
    found = f"{count} CPU{'s' if count > 1 else ''} ({platform.machine()})"
    if count < 2:
        return Finding("cpus", Level.WARNING, found, "web, Redis and decoding share one CPU; two or more are better")
    return Finding("cpus", Level.OK, found)


def check_memory() -> Finding:
    """Memory that is free for the service."""
    memory = psutil.virtual_memory()
    free, total = memory.available / 2**30, memory.total / 2**30
    found = f"{free:.1f} of {total:.1f} GiB available"
    if free < ENOUGH_MEMORY_GIB:
        return Finding(
            "memory", Level.WARNING, found, f"about {ENOUGH_MEMORY_GIB} GiB are needed with the bundled model"
        )
    return Finding("memory", Level.OK, found)


def check_files() -> Finding:
    """The limit of open files allows the streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < ENOUGH_FILES:
        return Finding(
            "files", Level.WARNING, f"at most {hard} open files", f"ulimit -n {ENOUGH_FILES} for 200 streams"
        )
    return Finding("files", Level.OK, f"{soft} open files, up to {'any' if hard == resource.RLIM_INFINITY else hard}")


def check_temporary_space() -> Finding:
    """The temporary folder takes the metrics of the processes and the log of an own Redis."""
    folder = Path(tempfile.gettempdir())
    try:
        free = shutil.disk_usage(folder).free / 2**20
    except OSError as error:
        return Finding("disk", Level.WARNING, f"{folder}: {error.strerror}", "set TMPDIR to a folder that is there")
    if free < 100:
        return Finding("disk", Level.WARNING, f"{free:.0f} MiB free in {folder}", "free some space, or set TMPDIR")
    return Finding("disk", Level.OK, f"{free:.0f} MiB free in {folder}")


def run_checks(environment: Mapping[str, str], settings: UpSettings, running: RunRecord | None) -> list[Finding]:
    """Every check, in the order of the report."""
    redis_url = environment.get("REDIS_URL")
    checks: list[Callable[[], Finding]] = [
        check_python,
        (lambda: check_redis_url(redis_url)) if redis_url else check_redis_binary,
        lambda: check_model(environment),
        lambda: check_port(settings, running),
        lambda: check_access(environment, settings),
        check_cpus,
        check_memory,
        check_files,
        check_temporary_space,
    ]
    return [check() for check in checks]
