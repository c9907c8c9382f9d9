"""Measure the whole service on this machine: latency, text and CPU time under real-time streams of utterances.

\b
    python -m ops.service_bench --speech DIR                              1, 2, 4, 8, 10 and 20 streams
    python -m ops.service_bench --speech DIR --streams 10 --workers 2 --json
    python -m ops.service_bench --speech DIR --long                       also: long recordings, segment by segment
    python -m ops.service_bench --speech DIR --identical                  also: is a text the same however it is sent?

It starts a service of its own (`hearline up` with its own Redis, on a free port) and plays recordings of 5 to 15 s
to it with `hearline load`: staggered, in an open loop. Nothing else should run meanwhile. docs/measurements.md
explains every figure. Exit status: 0 it ran, whatever the goals say; 1 all or some of it could not; 2 wrong arguments
or settings; 3 a package, the recordings or a Redis is missing. As JSON:

\b
    streams.N.{final_latency_s,first_text_s}.{p50,p95,max}   streams.N.{wer,wer_alone}
    streams.N.cpu_per_audio_s     CPU seconds of web, workers and Redis for a second of audio sent; cpu_s by process
    streams.N.exactly_once_in_order, streams_planned, streams_done, generator
    long.{segment_latency_max_s,cut_latency_max_s,last_words_lost}, long.recordings.ID
    identical.{share,by_frame_bytes,different}                goals, failed, machine, plan
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ops.errors import Failed, OpsError, WrongUse
from ops.pictures import check_picture
from ops.service_bench_client import Clip, Sending, load_clips, transcribe
from ops.service_bench_identical import Comparison, compare, first_with_text
from ops.service_bench_load import FRAME_BYTES, Plan, alone_texts, measure_streams
from ops.service_bench_long import long_clips, measure_long
from ops.service_bench_process import Setup, running
from ops.service_bench_report import goals, plot, table
from ops.service_bench_words import word_counter
from ops.up import workers_of
from queueing.machine import processor, usable_cpus
from queueing.policies import POLICIES

STREAMS = (1, 2, 4, 8, 10, 20)
LEAST_S, MOST_S = 5.0, 15.0
IDENTICAL_CLIPS = 2
BUSY_CLIPS = 16

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to measure."""

    streams: tuple[int, ...]
    duration_s: float
    seed: int
    workers: int
    policy: str
    identical: tuple[str, ...]
    """Policies under which texts are compared; empty: not at all."""
    long: tuple[Clip, ...] = ()
    """Long recordings to be streamed one by one."""


def measure(clips: Sequence[Clip], wanted: Wanted, environment: Mapping[str, str]) -> dict[str, Any]:
    """The report; what failed is under ``failed``."""
    report: dict[str, Any] = {"streams": {}, "failed": []}
    for part in (_streams, _long, _identical):
        try:
            part(clips, wanted, environment, report)
        except OpsError as error:  # what was measured until then is worth keeping
            _say(f"FAILED: {error.message}")
            report["failed"].append(error.message)
    report["goals"] = goals(report)
    return report


def _streams(clips: Sequence[Clip], wanted: Wanted, environment: Mapping[str, str], report: dict[str, Any]) -> None:
    if not wanted.streams:
        return
    plan = Plan(wanted.duration_s, wanted.seed)
    with running(Setup(wanted.workers, wanted.policy, environment)) as service:
        alone = alone_texts(service, clips, _say)
        for streams in wanted.streams:
            figures = measure_streams(service, clips, alone, streams, plan, environment)
            report["streams"][str(streams)] = figures
            latency = figures["final_latency_s"]
            _say(
                f"{streams} streams: final p50 {latency['p50']} s, p95 {latency['p95']} s, "
                f"{figures['cpu_per_audio_s']} CPU s per audio second"
            )


def _long(_clips: Sequence[Clip], wanted: Wanted, environment: Mapping[str, str], report: dict[str, Any]) -> None:
    if not wanted.long:
        return
    with running(Setup(wanted.workers, wanted.policy, environment)) as service:
        report["long"] = measure_long(service, wanted.long, environment, _say)


def _identical(clips: Sequence[Clip], wanted: Wanted, environment: Mapping[str, str], report: dict[str, Any]) -> None:
    comparison = Comparison()
    chosen: list[Clip] = []
    for policy in wanted.identical:
        with running(Setup(wanted.workers, policy, environment)) as service:

            def text_of(clip: Clip, url: str = service.url) -> str:
                return asyncio.run(transcribe(url, clip, Sending(FRAME_BYTES, paced=False)))

            first = not chosen
            chosen = chosen or first_with_text(clips, text_of, IDENTICAL_CLIPS)
            crowd = [clip for clip in clips if clip not in chosen][:BUSY_CLIPS] or [*clips]
            work = compare(service.url, policy, chosen, crowd, comparison, one_byte_alone=first, progress=_say)
            asyncio.run(work)
        report["identical"] = comparison.fields()


def _machine(environment: Mapping[str, str]) -> dict[str, Any]:
    from importlib.metadata import version

    import psutil

    return {
        "processor": processor(),
        "cores": usable_cpus(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "packages": {name: version(name) for name in ("faster-whisper", "ctranslate2", "redis", "gunicorn")},
        "settings": {name: value for name, value in environment.items() if name.startswith("HEARLINE_")},
    }


def _say(text: str) -> None:
    click.echo(text, err=True)


def _numbers(_ctx: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of numbers such as 1,2,4") from None
    if any(not 1 <= number <= 1_000 for number in numbers):
        raise click.BadParameter(f"{text!r}: each number of streams is between 1 and 1000")
    return numbers


def _policies(_ctx: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if unknown := [name for name in names if name not in POLICIES]:
        raise click.BadParameter(f"no such policy: {', '.join(unknown)}; there are {', '.join(POLICIES)}")
    return names


@click.command("service_bench", help=__doc__, context_settings=HELP)
@click.option("--speech", type=click.Path(path_type=Path, file_okay=False), required=True, metavar="DIR")
@click.option("--streams", default=",".join(map(str, STREAMS)), show_default=True, callback=_numbers, metavar="N,...")
@click.option("--duration", "duration_s", type=click.FloatRange(5, 3600), default=90.0, show_default=True, metavar="S")
@click.option("--seed", type=int, default=1, show_default=True, help="Decides the order of the recordings.")
@click.option("--limit", type=click.IntRange(2), metavar="N", help="So many recordings.  [default: all]")
@click.option("--workers", type=click.IntRange(1, 64), help="Worker processes.  [default: as `hearline up`]")
@click.option("--policy", type=click.Choice(sorted(POLICIES)), default="priority", show_default=True)
@click.option("--long", "long_too", is_flag=True, help="Also stream the long recordings, one at a time.")
@click.option("--identical", is_flag=True, help="Also compare texts by frame size, company and policy.")
@click.option(
    "--policies",
    default=",".join(POLICIES),
    callback=_policies,
    show_default=True,
    help="Those that --identical tries.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of a table.")
@click.option("--plot", "plot_to", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE")
def main(
    speech: Path,
    streams: tuple[int, ...],
    duration_s: float,
    seed: int,
    limit: int | None,
    workers: int | None,
    policy: str,
    long_too: bool,
    identical: bool,
    policies: tuple[str, ...],
    as_json: bool,
    plot_to: Path | None,
) -> None:
    if not streams and not identical and not long_too:
        raise WrongUse("nothing to measure: name --streams, --long or --identical")
    if plot_to is not None:
        if not streams:
            raise WrongUse("--plot draws the figures by number of streams: name some with --streams")
        check_picture(plot_to)
    if streams:
        word_counter()  # now, and not after minutes of measuring
    environment = dict(os.environ)  # noqa: TID251
    machine = _machine(environment)  # before the work: the load average is then that of others
    clips = load_clips(speech, LEAST_S, MOST_S)
    random.Random(seed).shuffle(clips)
    clips = clips[:limit]
    long = tuple(long_clips(speech)) if long_too else ()
    workers = workers or workers_of(environment)
    wanted = Wanted(streams, duration_s, seed, workers, policy, policies if identical else (), long)
    report = measure(clips, wanted, environment)
    report["machine"] = machine
    report["plan"] = {
        "workers": workers, "policy": policy, "duration_s": duration_s, "seed": seed, "recordings": len(clips),
        "mean_clip_s": round(sum(clip.seconds for clip in clips) / len(clips), 2),
    }  # fmt: skip
    click.echo(json.dumps(report, indent=2, ensure_ascii=False) if as_json else table(report))
    if plot_to is not None and report["streams"]:
        plot(report, plot_to)
    if report["failed"]:
        raise Failed("not everything could be measured: " + "; ".join(report["failed"]))


if __name__ == "__main__":
    main(prog_name="python -m ops.service_bench")
