"""``python -m ops.chaos``: see docs/chaos.md. The composition root: environment, clock, output."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

import click
from click.core import ParameterSource

from ops.chaos.audio import Clip, make_clips, whole_hundredths
from ops.chaos.plan import BETWEEN_STREAMS_S, KINDS, chosen_kinds
from ops.chaos.report import report, words
from ops.chaos.run import Result, Wanted, run_seed
from ops.chaos.settings import PROFILES
from ops.errors import Missing, WrongUse
from ops.service_bench_client import load_clips
from queueing.clock import SystemClock

LEAST_MINUTES = 0.4
RECORDINGS = 6
LEAST_S, MOST_S = 4.0, 12.0


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--seed", type=int, help="What happens, all of it. Default: drawn and printed.")
@click.option("--seeds", metavar="A..B", help="Run these seeds one after another.")
@click.option(
    "--minutes", type=click.FloatRange(LEAST_MINUTES, 600), default=2.0, show_default=True, help="Of each run."
)
@click.option("--model", type=click.Choice(("scripted", "whisper")), default="scripted", show_default=True)
@click.option("--speech", type=click.Path(path_type=Path), help="Folder with manifest.csv, for --model whisper.")
@click.option(
    "--faults", metavar="KINDS", default="", help="Only these, by kind or area: redis,worker.kill. none: none."
)
@click.option(
    "--profile",
    type=click.Choice(tuple(PROFILES)),
    default="short",
    show_default=True,
    help="Times of the service: short, so that much happens in a run, or its defaults.",
)
@click.option(
    "--between",
    "between_s",
    type=click.FloatRange(0.1, 60),
    default=BETWEEN_STREAMS_S,
    show_default=True,
    help="Seconds between new streams, on average.",
)
@click.option("--logs", type=click.Path(path_type=Path), help="Keep the processes' logs in this folder.")
@click.option("--json", "as_json", is_flag=True, help="The report as JSON on standard output.")
@click.option("--list", "list_kinds", is_flag=True, help="Show the kinds of faults and end.")
def main(
    seed: int | None, seeds: str | None, minutes: float, model: str, speech: Path | None, faults: str, profile: str,
    between_s: float, logs: Path | None, as_json: bool, list_kinds: bool,
) -> None:  # fmt: skip
    """Break a whole service of its own in a planned way and check that nothing is lost, doubled or left behind.

    \b
    Two web processes, three workers and a Redis are started; clients stream known audio to them while processes are
    killed, stopped and restarted, connections cut, stalled and reset, replies lost, the disk and the memory filled and
    clocks set. At the end every accepted sample must be in exactly one final, or its client was told an error that a
    fault explains. What happens follows from the seed: a run that fails is run again with the line it prints.

    \b
      python -m ops.chaos --seed 7 --minutes 2 --json
      python -m ops.chaos --seeds 1..20
      python -m ops.chaos --seed 7 --faults redis.kill,web --logs /tmp/chaos

    \b
    JSON: seed, minutes, streams, outcomes, resumed, finals, errors and refusals by code, faults.KIND (put in),
    recovery_s.{p50,max,n} and the same in recovery_s.by_fault.KIND, violations [{seed, what, stream, evidence}],
    unavailable (kinds that this machine cannot do), looks (into Redis). Exit status: 0 the books balance, 1 they do
    not or the service does not run, 2 wrong arguments, 3 something is missing.
    """
    if list_kinds:
        click.echo("\n".join(KINDS))
        return
    try:
        kinds = () if faults == "none" else chosen_kinds([name for name in faults.split(",") if name])
    except ValueError as error:
        raise WrongUse(str(error)) from error
    wanted = Wanted(minutes, kinds, PROFILES[profile], model, _clips(model, speech), logs, between_s)
    numbers = _seeds(seed, seeds)
    results: list[Result] = []
    failed = 0
    for number in numbers:
        replay = f"python -m ops.chaos --seed {number} --minutes {minutes:g}{_others()}"
        click.echo(f"seed {number}: {replay}", err=True)
        result = asyncio.run(run_seed(number, wanted, os.environ, SystemClock(), _say))  # noqa: TID251
        results.append(result)
        failed += bool(result.violations)
        click.echo(words(report([number], minutes, [result])), err=True)
        if result.violations:
            click.echo(f"seed {number} failed; again with: {replay}", err=True)
    figures = report(numbers, minutes, results)
    if len(numbers) > 1:
        click.echo(f"\n{len(numbers)} seeds, {failed} failed\n{words(figures)}", err=True)
    if as_json:
        click.echo(json.dumps(figures, indent=2))
    sys.exit(1 if failed else 0)


def _others() -> str:
    """The options of this command that shape a run besides its seed, as they were given."""
    context = click.get_current_context()
    options = {"faults": "faults", "model": "model", "speech": "speech", "profile": "profile", "between": "between_s"}
    return "".join(
        f" --{option} {context.params[name]}"
        for option, name in options.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )


def _say(text: str) -> None:
    click.echo(text, err=True)


def _seeds(seed: int | None, seeds: str | None) -> list[int]:
    if seeds is None:
        return [random.SystemRandom().randrange(2**32) if seed is None else seed]
    first, dots, last = seeds.partition("..")
    if seed is not None or not (dots and first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise WrongUse(f"--seeds {seeds}: give two whole numbers, the smaller first, like 1..20, and no --seed")
    return list(range(int(first), int(last) + 1))


def _clips(model: str, speech: Path | None) -> Callable[[random.Random], tuple[Clip, ...]]:
    if model == "scripted":
        return make_clips
    if speech is None:
        raise Missing("--model whisper needs recordings: --speech DIR with a manifest.csv")
    recordings = tuple(Clip(clip.id, whole_hundredths(clip.audio)) for clip in load_clips(speech, LEAST_S, MOST_S))
    return lambda rng: tuple(rng.sample(recordings, min(RECORDINGS, len(recordings))))


if __name__ == "__main__":
    main()
