"""``python -m workers``: one worker process. The composition root: reads the environment and the clock, exits.

Exit status: 0 drained, 1 it cannot work (no model hub, unsafe Redis) or was forced, 2 wrong settings or model,
70 hung decode. With ``--check``: 0 the model can be used, else 1 or 2; with ``--check-setup`` 0 or 2.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import sys
from pathlib import Path

import redis
import structlog
from prometheus_client import REGISTRY, start_http_server
from prometheus_client.multiprocess import mark_process_dead

from queueing.clock import SystemClock
from queueing.connect import connect, without_password
from queueing.errors import SettingProblem, SettingsError, UnsafeRedis
from queueing.logs import configure_logs
from queueing.metrics_files import share_metrics
from workers.lifecycle import EXIT_DONE, EXIT_FAILED, EXIT_SETTINGS, Stop
from workers.load import load_transcriber
from workers.metrics import GAUGE_MODES
from workers.model_files import ModelError
from workers.process import Process
from workers.settings import WorkerSettings
from workers.setup_check import check_setup

CONNECTIONS = 8
"""The loop, the keeper, the heartbeat, the sweep and the farewell use one each at a time."""

log = structlog.get_logger()


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """``check`` and ``check_setup``; handles ``--help`` and refuses anything else."""
    parser = argparse.ArgumentParser(
        prog="python -m workers",
        description="A Hearline worker: claims decodes from the queue, runs the model, reports the text.\n"
        "SIGTERM or Ctrl-C drains it, a second one ends it at once. In a Procfile: worker: python -m workers\n"
        "`hearline up` runs workers together with a web process and a Redis.",
        epilog=WorkerSettings.help_text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--check",
        action="store_true",
        help="load and try the model, say so in one line, and end; needs no Redis",
    )
    only.add_argument(
        "--check-setup",
        action="store_true",
        help="look at settings, model files, calibration, device, arithmetic and language without loading the model; "
        "silent when nothing is wrong",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run a worker with this process's environment; returns the exit status."""
    given = parse_arguments(arguments)
    try:
        settings = WorkerSettings.from_env(os.environ)  # noqa: TID251
        if given.check_setup:
            check_setup(settings)
            return EXIT_DONE
        if given.check:
            return check_model(settings)
        client = _connect(settings)
    except (ModelError, SettingsError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return EXIT_SETTINGS
    configure_logs(settings.log_level, settings.log_format, program="worker")
    share_metrics(os.environ.get("PROMETHEUS_MULTIPROC_DIR", ""), GAUGE_MODES)  # noqa: TID251
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.request())
    if settings.worker_metrics_port is not None:
        try:
            _serve_metrics(settings.worker_metrics_host, settings.worker_metrics_port)
        except SettingsError as error:
            print(error, file=sys.stderr)  # noqa: T201
            return EXIT_SETTINGS
        except OSError as error:
            print(f"hearline worker: {error}", file=sys.stderr)  # noqa: T201
            return EXIT_FAILED
    process = Process(
        settings,
        client,
        stop,
        clock=SystemClock(),
        rng=random.Random(random.SystemRandom().getrandbits(64)),
        registry=REGISTRY,
        crash=os._exit,
    )
    try:
        status = process.run()
    except UnsafeRedis as error:
        process.failure, status = str(error), EXIT_FAILED
    if process.failure:
        print(f"hearline worker: {process.failure}", file=sys.stderr)  # noqa: T201
    log.info("worker_ends", status=status, decodes=process.activity.decodes)
    _forget_live_gauges()
    return status


def check_model(settings: WorkerSettings) -> int:
    """Load the model, its files, digest and language checked; one line on standard output when it can be used, else
    the reason on standard error. Returns the exit status; raises `SettingsError`."""
    try:
        found = load_transcriber(settings, crash=os._exit).description
    except ModelError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return EXIT_FAILED if error.retry else EXIT_SETTINGS
    language = settings.language or ("detected" if found.get("multilingual") else "en")
    print(  # noqa: T201
        f"{found['model']} decodes on {found['device']} ({found['compute_type']}, "
        f"threads: {found['threads']}, language: {language})"
    )
    return EXIT_DONE


def _connect(settings: WorkerSettings) -> redis.Redis:
    try:
        return connect(settings.redis_url, max_connections=CONNECTIONS, client_name="hearline-worker")
    except ValueError as error:
        raise SettingsError([SettingProblem("REDIS_URL", without_password(settings.redis_url), str(error))]) from error


def _serve_metrics(host: str, port: int) -> None:
    """Raises `SettingsError` for a host that this machine never has, OSError for a port that another holds now."""
    try:
        start_http_server(port, host)
    except socket.gaierror as error:
        problem = f"no address of this machine ({error.strerror}); use 127.0.0.1"
        raise SettingsError([SettingProblem("HEARLINE_WORKER_METRICS_HOST", host, problem)]) from error
    except OSError as error:
        raise OSError(
            f"HEARLINE_WORKER_METRICS_PORT={port} on {host} cannot be used ({error.strerror}); stop what uses it, or "
            "take another: every worker needs its own"
        ) from error


def _forget_live_gauges() -> None:
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")  # noqa: TID251
    if folder and Path(folder).is_dir():
        mark_process_dead(os.getpid(), folder)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    code = main(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by whoever started this
            stream.flush()
    # Not sys.exit: the decode thread may be inside the model or a blocking wait, and nothing is left to clean up.
    os._exit(code)
