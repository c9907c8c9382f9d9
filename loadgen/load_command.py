"""`hearline load`: many concurrent real-time streams of recordings, measured."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import psutil

from loadgen.arrivals import Arrivals
from loadgen.client import Sending
from loadgen.clips import BYTES_PER_SECOND, ClipError
from loadgen.connecting import Timeouts
from loadgen.load_run import Run, Target, play, play_alone
from loadgen.options import (
    API_KEY_VARIABLE,
    api_key_option,
    decoding_options,
    service_options,
    service_urls,
    start_message,
)
from loadgen.outcome import BAD_INPUT
from loadgen.plot import check_plot, plot
from loadgen.report import Usage, exit_status, report, text
from loadgen.resumption import Resuming
from loadgen.scenario import Scenario, load_clips, plan
from loadgen.statistics import MissingPackages
from loadgen.stream_command import environment, termination_interrupts
from queueing.clock import Clock, SystemClock

SAMPLES = Path(__file__).resolve().parent.parent / "tests" / "data"
"""Two recordings with their texts; not part of an installed wheel."""

EXIT_STATUS_HELP = """\b
Exit status: 0 every stream done (and every text equal to the one decoded alone); 2 wrong usage or no recordings;
3 streams refused or limited; 4 streams failed, finals broken or texts different; 5 no service;
74 standard output cannot be written; 130 interrupted."""


@click.command("load", epilog=EXIT_STATUS_HELP, context_settings={"max_content_width": 110})
@click.option(
    "--speech",
    type=click.Path(path_type=Path),
    help="Folder of recordings (manifest.csv or audio files); else $HEARLINE_SPEECH, the project's own samples.",
)
@click.option("--streams", type=click.IntRange(1, 5_000), default=8, show_default=True, help="Streams at once.")
@click.option(
    "--arrivals", type=click.Choice([str(kind) for kind in Arrivals]), default="staggered", show_default=True,
    help="When streams begin: together, evenly spread, or at random.",
)  # fmt: skip
@click.option(
    "--duration",
    "duration_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help="Keep new streams coming for S seconds; default: each plays once.",
)
@click.option(
    "--seed", type=int, default=1, show_default=True, help="Decides the clips, their order and random arrivals."
)
@click.option("--alone", is_flag=True, help="Then decode every clip by itself and compare the texts.")
@click.option(
    "--max-clip-s",
    type=click.FloatRange(0.1, 600),
    default=60.0,
    show_default=True,
    help="Leave longer recordings out.",
)
@click.option("--speed", type=click.FloatRange(0, 1000), default=1.0, show_default=True, help="As `hearline stream`.")
@decoding_options
@click.option(
    "--frame-ms", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Audio in one message."
)
@service_options
@api_key_option
@click.option("--json", "as_json", is_flag=True, help="The full report as one JSON object.")
@click.option(
    "--plot",
    "plot_to",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Draw the latencies (.png, .svg, .pdf; needs matplotlib, which is looked for first).",
)
def load(
    speech: Path | None,
    streams: int,
    arrivals: str,
    duration_s: float | None,
    seed: int,
    alone: bool,
    max_clip_s: float,
    speed: float,
    frame_ms: int,
    given_urls: tuple[str, ...],
    no_resume: bool,
    api_key: str | None,
    as_json: bool,
    plot_to: Path | None,
    **decoding: Any,
) -> None:
    """Measure a running service under many concurrent streams of recordings, at real-time pace.

    An open loop: streams begin at their time whatever becomes of the others. With --duration, --streams is the
    average number at once. Plays the project's own two samples, of 10 and 40 seconds, unless --speech or
    HEARLINE_SPEECH gives a folder of recordings.
    """
    speech = click.get_current_context().params["speech"] = speech or default_speech(environment())
    settings = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in click.get_current_context().params.items()
        if name not in {"given_urls", "api_key"}
    }
    urls = service_urls(given_urls, environment())
    rng = random.Random(seed)
    try:
        if plot_to is not None:
            check_plot(plot_to)
        target = Target(
            urls,
            start_message(**decoding),
            Sending(speed, frame_ms * BYTES_PER_SECOND // 1000),
            Timeouts(),
            api_key or environment().get(API_KEY_VARIABLE),
            Resuming(enabled=not no_resume),
            seed,
        )
        clips = load_clips(speech, streams if duration_s is None else 10**6, max_clip_s, rng, _warn)
        scenario = plan(clips, Arrivals(arrivals), streams, duration_s, rng, speed)
    except (ValueError, MissingPackages) as error:
        raise click.UsageError(str(error)) from None
    except ClipError as error:
        _warn(f"error: {error}")
        click.get_current_context().exit(BAD_INPUT)
    run, usage = measure(scenario, target, SystemClock(), alone)
    fields = report(run, {**settings, "url": ",".join(urls)}, usage)
    print(json.dumps(fields, ensure_ascii=False) if as_json else text(fields), flush=True)  # noqa: T201
    if plot_to is not None:
        try:
            plot(fields, plot_to)
        except OSError as error:
            _warn(f"no picture: {error}")
    click.get_current_context().exit(exit_status(fields))


def default_speech(environment: Mapping[str, str], samples: Path = SAMPLES) -> Path:
    """The folder that HEARLINE_SPEECH names, else the bundled samples; raises click.UsageError without either."""
    if named := environment.get("HEARLINE_SPEECH"):
        return Path(named)
    if samples.is_dir():
        return samples
    raise click.MissingParameter(
        "name a folder of recordings, or set HEARLINE_SPEECH", param_hint="'--speech'", param_type="option"
    )


def measure(scenario: Scenario, target: Target, clock: Clock, alone: bool) -> tuple[Run, Usage]:
    """Play the scenario; an interrupt ends it, and what happened until then is reported."""
    run = Run([])
    process = psutil.Process()
    process_before, machine_before = _process_s(process), psutil.cpu_times()

    async def everything() -> None:
        await play(scenario, target, clock, run, _progress)
        if alone:
            await play_alone(scenario.clips, target, clock, run)

    try:
        with termination_interrupts():
            asyncio.run(everything())
    except KeyboardInterrupt:
        run.interrupted = True
        _warn("interrupted: streams that were open count as such")
    machine_after = psutil.cpu_times()
    busy = _busy_s(machine_after) - _busy_s(machine_before)
    total = sum(machine_after) - sum(machine_before)
    return run, Usage(_process_s(process) - process_before, busy / total if total else 0.0)


def _process_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _busy_s(times: Any) -> float:
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))


def _progress(run: Run) -> None:
    if sys.stderr.isatty():
        ended = sum(result.outcome is not None for result in run.results)
        opened = sum(bool(result.recorder.session) for result in run.results)
        sys.stderr.write(
            f"\r\x1b[K{opened - ended if opened > ended else 0} streams open, {ended} of {len(run.results)} ended"
        )
        sys.stderr.flush()


def _warn(message: str) -> None:
    print(message, file=sys.stderr, flush=True)  # noqa: T201
