"""``hearline demo``: the service, a speech sample, its captions; for a first look and as a smoke test.

It is a person at two terminals: ``hearline up`` runs in the background with its output in a file, then
``hearline stream`` runs in the foreground.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import click

from ops.demo_log import own_log
from ops.demo_show import Demo, Stage
from ops.errors import Missing
from ops.ports import try_port
from ops.procfile import python_module
from ops.readiness import local_url
from ops.run_file import run_file
from ops.runtime import Runtime
from ops.screen import ProgressLine
from ops.settings import UpSettings
from ops.tether import tether
from queueing.local_redis import free_port

SAMPLE = Path(__file__).resolve().parent.parent / "tests" / "data" / "sample.flac"


def _choose_port(settings: UpSettings, port: int | None) -> int:
    """The port asked for, or the usual one, or a free one where the usual one is taken."""
    if port is not None:
        return port
    try:
        try_port(settings.host, settings.port)
    except OSError:
        free = free_port()
        click.echo(f"Port {settings.port} cannot be used (another `hearline up`?); this one uses port {free}.")
        return free
    return settings.port


def _own_command() -> str:
    """How to type ``hearline`` from the current folder."""
    found, own = shutil.which("hearline"), Path(sys.executable).parent / "hearline"
    if found and Path(found).resolve() == own.resolve():
        return "hearline"
    if not own.is_file():
        return f"{shlex.quote(sys.executable)} -m ops.cli"
    with suppress(ValueError):
        return str(own.relative_to(Path.cwd()))
    return str(own)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--stay", is_flag=True, help="Keep the service running after the sample, until Ctrl-C.")
@click.option(
    "--sample",
    type=click.Path(dir_okay=False, path_type=Path),
    default=SAMPLE,
    show_default="the project's own",
    help="Audio file to stream.",
)
@click.option("--port", type=click.IntRange(1, 65_535), help="Port.  [default: HEARLINE_PORT, 8000, or a free one]")
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=180.0, show_default=True, help="Seconds.")
@click.option("--json", "as_json", is_flag=True, help="The stream's messages as JSON lines instead of captions.")
@click.option("--procfile", type=click.Path(dir_okay=False, path_type=Path), hidden=True)
@click.pass_obj
def demo(
    runtime: Runtime,
    /,
    stay: bool,
    sample: Path,
    port: int | None,
    timeout_s: float,
    as_json: bool,
    procfile: Path | None,
) -> None:
    """Start everything and show live captions of a speech sample.

    \b
      hearline demo                    captions of the project's sample, then stop; for a smoke test
      hearline demo --stay             the same, then keep the service running
      hearline demo --sample talk.mp3  captions of another file

    Runs `hearline up` with its output in a log file (demo.log; demo-2.log beside another demo), waits until it is
    ready (at most --timeout seconds), then runs `hearline stream` at real-time pace.

    Exit status: that of `hearline stream` (0 for a complete transcript); 1 the service failed; 3 something needed is
    missing; 130 stopped by Ctrl-C before the transcript was complete.
    """
    if not sample.is_file():
        raise Missing(f"there is no sample at {sample}; name any audio file with --sample FILE")
    settings = UpSettings.read(runtime.environment)
    port = _choose_port(settings, port)
    url = local_url(settings.host, port)
    state = run_file(runtime.environment)
    hearline = python_module("ops.cli")
    up_arguments = ["up", "--port", str(port), *(["--procfile", str(procfile)] if procfile else [])]
    with ExitStack() as stack:
        try:
            state.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            log = stack.enter_context(own_log(state.parent))
        except OSError as error:
            raise Missing(f"cannot write into {state.parent} ({error.strerror}); set HEARLINE_STATE_DIR") from error
        stage = Stage(
            up_command=[*tether(), *hearline, *up_arguments],
            stream_command=[*hearline, "stream", str(sample), "--url", url, *(["--json"] if as_json else [])],
            url=url,
            log=log,
            run_file=state,
            timeout_s=timeout_s,
        )
        status = _show(stage, runtime, stay)
    if status:
        raise SystemExit(status)


def _show(stage: Stage, runtime: Runtime, stay: bool) -> int:
    show = Demo(stage, runtime.environment, runtime.clock, ProgressLine(sys.stderr))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: show.interrupt(number))
    command = _own_command()
    farewell = [
        "",
        f"The service stays up at {stage.url} : open it in a browser to caption your microphone.",
        "In another terminal:",
        f"  {command} stream FILE        captions of any audio or video file",
        f"  {command} queue --watch      what waits, what runs, who works",
        f"Log: {stage.log}. Ctrl-C stops everything.",
    ]
    return show.run(farewell if stay else None)
