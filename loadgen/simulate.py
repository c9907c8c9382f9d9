"""`python -m loadgen.simulate`: what the policies do, in simulation, with the spread over seeds.

Two tables: whole-clip requests (response time of each policy against arrival order) and live streams (latency of
finals with and without superseding). Both are made of the queue's own policies and real durations, without a model.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from loadgen.clips import ClipError
from loadgen.simulate_clips import PERCENTILES, ClipRuns, draw, percentiles, responses
from loadgen.simulate_live import LiveFigures, LiveRuns, simulate, speakable
from loadgen.statistics import percentile
from loadgen.workloads import COST_MODELS, read_durations, windowed

DURATIONS = "librispeech-test-clean-durations.csv"
CLIP_POLICIES = ("sjf", "hrrn", "boost")
LIVE_LOADS = (0.7, 0.93, 1.4)
LIVE_VARIANTS: tuple[tuple[str, bool], ...] = (
    ("fcfs", False), ("fcfs", True), ("priority", True), ("strict", True), ("sjf", True), ("hrrn", True),
    ("boost", True), ("edf", True),
)  # fmt: skip
"""(policy, superseding)."""

UNSTABLE_S = 30.0
"""A mean final latency over the last quarter of a run beyond this: the queue grows without end."""

Tell = Callable[[str], None]


def clip_table(durations: Sequence[float], runs: ClipRuns, seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """Change of the response time's percentiles against FCFS, in percent, for each cost model."""
    table: dict[str, Any] = {}
    for model, cost in COST_MODELS.items():
        baseline: list[dict[str, float]] = []
        changes: dict[str, list[dict[str, float]]] = {policy: [] for policy in CLIP_POLICIES}
        for seed in seeds:
            tell(f"whole clips, {model}, seed {seed}")
            arrivals = draw(durations, cost, runs, random.Random(seed))
            fcfs = percentiles(responses("fcfs", arrivals, runs.workers))
            baseline.append(fcfs)
            for policy, found in changes.items():
                own = percentiles(responses(policy, arrivals, runs.workers))
                found.append({name: 100 * (own[name] / fcfs[name] - 1) for name in fcfs})
        table[model] = {
            "fcfs_s": _over_seeds([{name: ms / 1000 for name, ms in run.items()} for run in baseline]),
            "change_percent": {policy: _over_seeds(found) for policy, found in changes.items()},
        }
    return table


def live_table(durations: Sequence[float], runs: LiveRuns, seeds: Sequence[int], tell: Tell) -> dict[str, Any]:
    """Latency of finals and age of partials at one load, for each policy, in right-sized windows."""
    table: dict[str, Any] = {}
    for policy, superseding in LIVE_VARIANTS:
        name = policy if superseding else f"{policy}, every partial decoded"
        tell(f"live, load {runs.load:g}, {name}")
        found = [simulate(policy, superseding, durations, windowed, runs, random.Random(seed)) for seed in seeds]
        table[name] = {
            "people": found[0].people,
            "stable": not any(_unstable(figures) for figures in found),
            **_over_seeds([_live_figures(figures) for figures in found]),
        }
    return table


def _live_figures(figures: LiveFigures) -> dict[str, float]:
    return {
        "final_p50_s": percentile(figures.final_s, 50),
        "final_p95_s": percentile(figures.final_s, 95),
        "final_p99_s": percentile(figures.final_s, 99),
        "partial_age_p50_s": percentile(figures.partial_age_s, 50),
        "partial_age_p95_s": percentile(figures.partial_age_s, 95),
        "superseded_share": figures.superseded / max(1, figures.asked),
    }


def _unstable(figures: LiveFigures) -> bool:
    last = figures.final_s[-max(1, len(figures.final_s) // 4) :]
    return statistics.fmean(last) > UNSTABLE_S


def _over_seeds(runs: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over the seeds of each figure."""
    return {
        name: {
            "mean": round(statistics.fmean(run[name] for run in runs), 3),
            "sd": round(statistics.stdev(run[name] for run in runs), 3) if len(runs) > 1 else 0.0,
        }
        for name in runs[0]
    }


def as_text(fields: dict[str, Any]) -> str:
    """Both tables for people."""
    lines = []
    if clips := fields["clips"]:
        lines.append(
            f"Whole clips, load {fields['settings']['clip_load']:g}: change of the response time against fcfs, %"
        )
        lines.append(f"{'cost model':14}{'policy':8}" + "".join(f"{f'p{p}':>14}" for p in PERCENTILES))
        for model, table in clips.items():
            for policy, change in table["change_percent"].items():
                shown = "".join(f"{v['mean']:>+8.0f} ±{v['sd']:>4.0f}" for v in change.values())
                lines.append(f"{model:14}{policy:8}{shown}")
    for load, table in (fields["live"] or {}).items():
        lines.append(f"Live streams, load {load}: final p50, p95, p99 and partial age p95, s; partials superseded")
        for name, row in table.items():
            shown = "".join(
                f"{row[key]['mean']:>8.2f}"
                for key in ("final_p50_s", "final_p95_s", "final_p99_s", "partial_age_p95_s")
            )
            unstable = "" if row["stable"] else "  unstable"
            lines.append(f"  {name:30}{shown}{100 * row['superseded_share']['mean']:>7.0f} %{unstable}")
    return "\n".join(lines)


@click.command(help=__doc__, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--durations",
    type=click.Path(path_type=Path),
    help=f"CSV with a column 'seconds'; default: $HEARLINE_SPEECH or ../shared/speech, {DURATIONS}.",
)
@click.option("--only", type=click.Choice(["clips", "live"]), help="One of the two tables.")
@click.option("--seed", type=int, default=1, show_default=True, help="The first seed.")
@click.option("--seeds", type=click.IntRange(1, 1_000), default=8, show_default=True, help="Runs of each figure.")
@click.option("--jobs", type=click.IntRange(100, 10**7), default=20_000, show_default=True, help="Clips of one run.")
@click.option(
    "--clip-load",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Load of the clips.",
)
@click.option(
    "--live-seconds",
    type=click.FloatRange(60, 10**6),
    default=3_600,
    show_default=True,
    help="Simulated time of one live run.",
)
@click.option("--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Workers of one run.")
@click.option("--json", "as_json", is_flag=True, help="All figures as one JSON object.")
def main(
    durations: Path | None,
    only: str | None,
    seed: int,
    seeds: int,
    jobs: int,
    clip_load: float,
    live_seconds: float,
    workers: int,
    as_json: bool,
) -> None:
    path = durations or Path(os.environ.get("HEARLINE_SPEECH") or "../shared/speech") / DURATIONS  # noqa: TID251
    try:
        known = read_durations(path)
    except ClipError as error:
        raise click.BadParameter(str(error), param_hint="--durations") from None
    drawn = range(seed, seed + seeds)

    def tell(text: str) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[K{text}", err=True, nl=False)

    clips = clip_table(known, ClipRuns(clip_load, workers, jobs), drawn, tell) if only != "live" else None
    live = (
        {
            f"{load:g}": live_table(speakable(known), LiveRuns(load, workers, live_seconds), drawn, tell)
            for load in LIVE_LOADS
        }
        if only != "clips"
        else None
    )
    tell("")
    settings = {
        "seed": seed,
        "seeds": seeds,
        "jobs": jobs,
        "clip_load": clip_load,
        "live_seconds": live_seconds,
        "workers": workers,
        "durations": len(known),
    }
    fields = {"settings": settings, "clips": clips, "live": live}
    click.echo(json.dumps(fields) if as_json else as_text(fields))


if __name__ == "__main__":
    main()
