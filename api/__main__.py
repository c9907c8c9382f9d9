"""``python -m api``: the web processes, until SIGTERM or Ctrl-C.

Exit status: 0 stopped on request, 1 cannot run (port taken, unsafe Redis), 2 wrong settings or arguments.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from contextlib import nullcontext

import psutil
import structlog
from flask import Flask

from api.garbage import settle
from api.memory import share_one_arena
from api.settings import ApiSettings
from api.urgency import share_the_interpreter
from queueing.connect import check_redis, connect, without_password
from queueing.errors import QueueUnavailable, SettingsError, UnsafeRedis
from queueing.logs import configure_logs
from queueing.scratch import scratch_folder
from sessions.api_keys import BadKeyFile, read_keys
from sessions.exposure import exposure_problem

FILES_PER_STREAM = 3
SPARE_FILES = 1_024


def parse_arguments(arguments: list[str]) -> None:
    """Handles ``--help`` and refuses anything else: all is set through the environment."""
    argparse.ArgumentParser(
        prog="python -m api",
        description="Hearline's web process: takes audio over WebSockets, queues its decodes in Redis, sends captions\n"
        "back; serves the page, /health, /ready, /v1/status and /metrics.\n"
        "It takes no options: the port and all else are set by the variables below (docs/configuration.md).\n"
        "SIGTERM drains it, Ctrl-C ends its streams at once. In a Procfile: web: python -m api\n"
        "`hearline up` runs it together with workers and a Redis.",
        epilog=ApiSettings.help_text(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args(arguments)


def main(arguments: list[str]) -> None:
    """Read the settings, prepare the process, run gunicorn."""
    parse_arguments(arguments)
    try:
        settings = ApiSettings.from_env(os.environ)  # noqa: TID251
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
    configure_logs(settings.log_level, settings.log_format, program="web")
    _check_access(settings)
    _check_redis(settings)
    _raise_file_limit(settings)
    share_one_arena()
    with nullcontext() if settings.metrics_dir else scratch_folder("hearline-web-") as scratch:
        metrics_dir = scratch.path if scratch else settings.metrics_dir
        # prometheus-client decides at its import, and reads the variable when a metric is made.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = metrics_dir  # noqa: TID251
        _serve(settings.model_copy(update={"metrics_dir": metrics_dir}))


def _serve(settings: ApiSettings) -> None:
    from api.metrics import GAUGE_MODES
    from api.server import StreamServer
    from api.wsgi import build, clean_metrics, forget_process
    from queueing.metrics_files import share_metrics

    def load() -> Flask:
        shared = share_metrics(settings.metrics_dir, GAUGE_MODES)
        app = build(settings if shared else settings.model_copy(update={"metrics_dir": ""}), root_pid)
        settle()
        share_the_interpreter()
        return app

    clean_metrics(settings.metrics_dir, psutil.pid_exists)
    root_pid = os.getpid()
    StreamServer(
        settings,
        load=load,
        process_ended=lambda pid: forget_process(settings.metrics_dir, pid),
    ).run()


def _check_access(settings: ApiSettings) -> None:
    """Without usable keys nothing listens where others reach it."""
    problem = exposure_problem(
        settings.host, has_keys=settings.api_keys is not None, allow_anonymous=settings.allow_anonymous
    )
    try:
        if settings.api_keys is not None and not read_keys(settings.api_keys):
            structlog.get_logger().warning("no_api_key_is_valid", file=str(settings.api_keys))
    except BadKeyFile as error:
        problem = f"HEARLINE_API_KEYS: {error}"
    if problem is not None:
        sys.stderr.write(f"{problem}\n")
        sys.exit(2)


def _check_redis(settings: ApiSettings) -> None:
    """An unsafe Redis is refused; one that is not there yet is waited for (readiness says so meanwhile)."""
    try:
        client = connect(settings.redis_url, max_connections=1)
    except ValueError as error:
        sys.stderr.write(f"REDIS_URL={without_password(settings.redis_url)!r}: {error}; write redis://HOST:PORT/0\n")
        sys.exit(2)
    try:
        check_redis(client)
    except QueueUnavailable as error:
        structlog.get_logger().warning("redis_not_there_yet", error=str(error))
    except UnsafeRedis as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    finally:
        client.close()


def _raise_file_limit(settings: ApiSettings) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.process_streams * FILES_PER_STREAM + SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


if __name__ == "__main__":
    main(sys.argv[1:])
