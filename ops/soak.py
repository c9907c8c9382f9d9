"""Soak the whole service on this machine: many real-time streams for minutes, or many streams that come and go.

\b
    python -m ops.soak --streams 300 --minutes 15                zero lost finals, flat memory, prompt /health
    python -m ops.soak --streams 100 --minutes 3 --json
    python -m ops.soak --cycles 1000 --seed 7                    connects and disconnects at random moments

It starts a service of its own (`hearline up` with its own Redis on a free port, scripted workers whose decodes take
simulated time) and load generators of its own that cost little. docs/soak.md explains every figure. Exit status: 0
no violation, 1 violations or a run that did not come to its end, 2 wrong arguments, 3 something is missing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from ops.demo import SAMPLE
from ops.errors import Failed, WrongUse
from ops.pictures import check_picture
from ops.service_bench_client import read_pcm
from ops.soak_cycles import cycle_table, cycles
from ops.soak_report import plot, table, violations
from ops.soak_run import SCRIPT, SoakPlan, soak
from queueing.clock import SystemClock

AUDIO = (SAMPLE.with_name("pauses.flac"), SAMPLE)

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.command("soak", help=__doc__, context_settings=HELP)
@click.option("--streams", type=click.IntRange(1, 2_000), default=100, show_default=True, help="Open at any time.")
@click.option("--minutes", type=click.FloatRange(0.1, 24 * 60), default=3.0, show_default=True)
@click.option("--web", type=click.IntRange(1, 64), default=1, show_default=True, help="Web processes, a port each.")
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True, help="Scripted workers.")
@click.option("--frame-ms", type=click.IntRange(10, 1000), default=100, show_default=True, help="Audio in one message.")
@click.option(
    "--short", type=click.FloatRange(0, 1), default=0.3, show_default=True,
    help="Share of streams that last about --short-s and are followed by others; the rest last all the time.",
)  # fmt: skip
@click.option("--short-s", type=click.FloatRange(2, 3600), default=45.0, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--generators", type=click.IntRange(1, 16), default=1, show_default=True, help="Processes that send.")
@click.option(
    "--audio", type=click.Path(path_type=Path, dir_okay=False, exists=True), help="What is spoken, in a loop."
)
@click.option(
    "--decode", default=",".join(map(str, SCRIPT.values())), show_default=True, metavar="S,S,S",
    help="Simulated seconds of a batch, of each job in it, of each second of its audio.",
)  # fmt: skip
@click.option("--limits/--no-limits", default=True, show_default=True, help="Whether times and memory can be violated.")
@click.option(
    "--cycles", "cycle_count", type=click.IntRange(1, 100_000), help="Connect and disconnect so often instead."
)
@click.option("--clients", type=click.IntRange(1, 64), default=8, show_default=True, help="At once, with --cycles.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--plot", "plot_to", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.svg")
def main(
    streams: int,
    minutes: float,
    web: int,
    workers: int,
    frame_ms: int,
    short: float,
    short_s: float,
    seed: int,
    generators: int,
    audio: Path | None,
    decode: str,
    limits: bool,
    cycle_count: int | None,
    clients: int,
    as_json: bool,
    plot_to: Path | None,
) -> None:
    if plot_to is not None:
        if cycle_count is not None:
            raise WrongUse("--plot draws streams over time: leave it out with --cycles")
        check_picture(plot_to)
    environment = dict(os.environ)  # noqa: TID251
    pcm = b"".join(read_pcm(path) for path in ((audio,) if audio else AUDIO))
    plan = SoakPlan(
        streams, minutes, web, workers, frame_ms, short, short_s, seed, generators, pcm, _script(decode), environment
    )
    report: dict[str, Any]
    if cycle_count is not None:
        report = cycles(plan, cycle_count, clients, SystemClock(), _say)
        text = cycle_table(report)
    else:
        outcome = soak(plan, SystemClock(), _say)
        report = outcome.report
        report["violations"] = violations(report, limits=limits)
        text = table(report)
        if plot_to is not None:
            plot(outcome.watched, outcome.window, outcome.progress, plot_to)
    click.echo(json.dumps(report, indent=2) if as_json else text)
    if report["violations"]:
        raise Failed(f"{len(report['violations'])} violations, the first: {report['violations'][0]}")


def _script(text: str) -> dict[str, float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != len(SCRIPT) or any(value < 0 for value in values):
        raise WrongUse(
            f"--decode {text!r}: give three numbers of seconds, such as {','.join(map(str, SCRIPT.values()))}"
        )
    return dict(zip(SCRIPT, values, strict=True))


if __name__ == "__main__":
    main(prog_name="python -m ops.soak")
