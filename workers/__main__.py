"""``python -m workers``: one worker process. The composition root: reads the environment and the clock, exits.

Exit status: 0 drained, 1 it cannot work (model, Redis settings) or was forced, 2 wrong settings, 70 hung decode.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from pathlib import Path

import redis
import structlog
from prometheus_client import REGISTRY, start_http_server
from prometheus_client.multiprocess import mark_process_dead

from queueing.clock import SystemClock
from queueing.connect import connect
from queueing.errors import SettingProblem, SettingsError, UnknownPolicy, UnsafeRedis
from queueing.logs import configure_logs
from workers.lifecycle import EXIT_FAILED, Stop
from workers.process import Process
from workers.settings import WorkerSettings

EXIT_SETTINGS = 2
CONNECTIONS = 8
"""The loop, the keeper, the heartbeat, the sweep and the farewell use one each at a time."""

log = structlog.get_logger()


def parse_arguments(arguments: list[str]) -> None:
    """Handle ``--help`` and refuse anything else."""
    rows = [f"  {row.name:32s} {row.default or '(unset)':24s} {row.meaning}" for row in WorkerSettings.rows()]
    parser = argparse.ArgumentParser(
        prog="python -m workers",
        description="A Hearline worker: claims decodes from the queue, runs the model, reports the text.\n"
        "SIGTERM or Ctrl-C drains it, a second one ends it at once.",
        epilog="Environment variables and their defaults:\n" + "\n".join(rows),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run a worker with this process's environment; returns the exit status."""
    parse_arguments(arguments)
    try:
        settings = WorkerSettings.from_env(os.environ)  # noqa: TID251
        client = _connect(settings)
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return EXIT_SETTINGS
    configure_logs(settings.log_level, settings.log_format, program="worker")
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.request())
    if settings.worker_metrics_port is not None:
        start_http_server(settings.worker_metrics_port, settings.worker_metrics_host)
    try:
        process = Process(
            settings,
            client,
            stop,
            clock=SystemClock(),
            rng=random.Random(random.SystemRandom().getrandbits(64)),
            registry=REGISTRY,
            crash=os._exit,
        )
    except UnknownPolicy as error:
        print(f"HEARLINE_POLICY: {error}", file=sys.stderr)  # noqa: T201
        return EXIT_SETTINGS
    try:
        status = process.run()
    except UnsafeRedis as error:
        process.failure, status = str(error), EXIT_FAILED
        log.error("cannot_work", reason=str(error))
    if process.failure:
        print(f"hearline worker: {process.failure}", file=sys.stderr)  # noqa: T201
    log.info("worker_ends", status=status, decodes=process.activity.decodes)
    _forget_live_gauges()
    return status


def _connect(settings: WorkerSettings) -> redis.Redis:
    try:
        return connect(settings.redis_url, max_connections=CONNECTIONS, client_name="hearline-worker")
    except ValueError as error:
        raise SettingsError([SettingProblem("REDIS_URL", settings.redis_url, str(error))]) from error


def _forget_live_gauges() -> None:
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")  # noqa: TID251
    if folder and Path(folder).is_dir():
        mark_process_dead(os.getpid(), folder)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit: the decode thread may be inside the model or a blocking wait, and nothing is left to clean up.
    os._exit(code)
