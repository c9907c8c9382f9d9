"""``hearline restart``: the processes of a running ``hearline up``, one after the other."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import click
import psutil

from ops.errors import Failed, Missing
from ops.readiness import State, ask, local_url
from ops.run_file import RunRecord, find_running, run_file
from ops.runtime import Runtime
from ops.settings import UpSettings
from queueing.connect import connect
from queueing.errors import QueueUnavailable
from queueing.job_queue import JobQueue

START_S = 120.0
"""A worker loads its model in this time."""
LOOK_EVERY_S = 0.2

_NAME = re.compile(r"^[a-z_]+\.\d+$")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("kinds", nargs=-1, type=click.Choice(["worker", "web"]), metavar="[worker] [web]")
@click.option("--json", "as_json", is_flag=True, help="JSON lines: {process, pid, event}, event is ends or ready.")
@click.pass_obj
def restart(runtime: Runtime, /, kinds: tuple[str, ...], as_json: bool) -> None:
    """Restart the workers, then the web processes, of `hearline up`: one at a time, the next when the last is ready.

    \b
      hearline restart                 all of them, for instance after an upgrade
      hearline restart worker          the workers alone: no stream notices
      hearline restart web             a web process ends its streams with `shutting_down` (1012): clients come back

    Each gets SIGTERM, finishes what it has begun (HEARLINE_DRAIN_S), and is started again by `hearline up`, which
    runs on with the settings that it was started with.

    Exit status: 0 all are back and ready; 1 one did not end or did not come back; 3 no `hearline up` runs.
    """
    path = run_file(runtime.environment)
    running = find_running(path)
    if running is None:
        raise Missing(f"{path} names no running `hearline up`; send SIGTERM to the processes one by one instead")
    settings = UpSettings.read(runtime.environment)
    with connect(running.redis_url, max_connections=2, client_name="hearline-cli") as client:
        queue = JobQueue.of(client, settings)
        for kind in kinds or ("worker", "web"):
            for name, process in sorted(children(running, kind), key=lambda found: int(found[0].partition(".")[2])):
                _say(as_json, name, process.pid, "ends", f"{name} (pid {process.pid}) ends ...")
                pid = restart_one(running, name, process, queue, settings.drain_s, settings.host)
                _say(as_json, name, pid, "ready", f"{name} is back and ready")


def _say(as_json: bool, name: str, pid: int, event: str, words: str) -> None:
    click.echo(json.dumps({"process": name, "pid": pid, "event": event}) if as_json else words)


def children(running: RunRecord, kind: str) -> Iterator[tuple[str, psutil.Process]]:
    """The processes of one kind that `hearline up` runs, by their names there."""
    try:
        found = psutil.Process(running.pid).children()
    except psutil.Error as error:
        raise Failed(f"`hearline up` (pid {running.pid}) has just ended") from error
    for child in found:
        with suppress(psutil.Error):
            name = child.environ().get("HONCHO_PROCESS_NAME", "")
            if _NAME.match(name) and name.partition(".")[0] == kind:
                yield name, child


def restart_one(
    running: RunRecord, name: str, process: psutil.Process, queue: JobQueue, drain_s: float, host: str
) -> int:
    """End this process and wait until `hearline up` has another one ready in its place; returns that one's id.

    Raises `Failed`.
    """
    kind = name.partition(".")[0]
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(drain_s + START_S)
    except psutil.TimeoutExpired:
        raise Failed(f"{name} (pid {process.pid}) did not end within {drain_s + START_S:.0f} s of SIGTERM") from None

    back: list[int] = []

    def is_back() -> bool:
        for found, child in children(running, kind):
            if found == name and child.pid != process.pid:
                back[:] = [child.pid]
                return _web_answers(child, host) if kind == "web" else _worker_is_ready(child, queue)
        return False

    if not _within(START_S, is_back):
        raise Failed(f"{name} was not ready again within {START_S:.0f} s; see its log")
    return back[0]


def _web_answers(child: psutil.Process, host: str) -> bool:
    with suppress(psutil.Error):
        environment = child.environ()
        url = local_url(environment.get("HEARLINE_HOST", host), int(environment["HEARLINE_PORT"]))
        return ask(url).state is State.READY
    return False


def _worker_is_ready(child: psutil.Process, queue: JobQueue) -> bool:
    with suppress(QueueUnavailable):
        return any(one.info.get("pid") == child.pid and one.state in ("ready", "busy") for one in queue.workers())
    return False


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    pause = threading.Event()
    for _ in range(int(seconds / LOOK_EVERY_S)):
        if holds():
            return True
        pause.wait(LOOK_EVERY_S)
    return False
