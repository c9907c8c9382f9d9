"""``hearline doctor``: is this machine fit to run the service, and if not, what helps?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from ops.doctor_checks import Finding, Level, run_checks
from ops.errors import WrongUse
from ops.run_file import find_running, run_file
from ops.runtime import Runtime
from ops.settings import UpSettings
from ops.tune import BOUND_S, find_recordings, lines, tune
from queueing.machine import usable_cpus

COLOURS = {Level.OK: "green", Level.SKIPPED: "bright_black", Level.WARNING: "yellow", Level.WRONG: "red"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="One JSON object: {ok, findings: [{name, level, found, fix}]}.")
@click.option(
    "--tune",
    "tuning",
    is_flag=True,
    help="Instead: decode for about a minute and a half, and say how many workers and threads suit this machine.",
)
@click.option(
    "--speech",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="For --tune: recordings with their texts.  [default: HEARLINE_SPEECH, the project's samples]",
)
@click.option(
    "--bound",
    "bound_s",
    type=click.FloatRange(0.05, 60),
    default=BOUND_S,
    show_default=True,
    metavar="S",
    help="For --tune: the longest that a final of 10 s may take to decode.",
)
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool, tuning: bool, speech: Path | None, bound_s: float) -> None:
    """Check this machine: Python, Redis, model, port, access, CPUs, memory.

    \b
      hearline doctor
      hearline doctor --json | jq '.findings[] | select(.level != "ok")'
      HEARLINE_PORT=9000 REDIS_URL=redis://db:6379/0 hearline doctor
      hearline doctor --tune           which settings decode most here; nothing else should run meanwhile

    Nothing is changed or left running. Each line that is not ok says what helps.

    Exit status: 0 nothing is wrong (warnings allowed); 1 something is wrong; 2 wrong settings.
    """
    runtime: Runtime = ctx.obj
    if speech is not None and not tuning:
        raise WrongUse("--speech is for --tune, which decodes it; the other checks need none")
    if tuning:
        folder = find_recordings(speech, runtime.environment)
        found = tune(folder, runtime.environment, usable_cpus(), bound_s, lambda text: click.echo(text, err=True))
        click.echo(json.dumps(found, indent=2) if as_json else "\n".join(lines(found)))
        return
    settings = UpSettings.read(runtime.environment)
    findings = run_checks(runtime.environment, settings, find_running(run_file(runtime.environment)))
    wrong = [finding for finding in findings if finding.level is Level.WRONG]
    if as_json:
        click.echo(json.dumps({"ok": not wrong, "findings": [finding.fields() for finding in findings]}, indent=2))
    else:
        for finding in findings:
            _show(finding)
        click.echo("\nThis machine can run Hearline: try `hearline demo`." if not wrong else "\nNot fit to run yet.")
    ctx.exit(1 if wrong else 0)


def _show(finding: Finding) -> None:
    mark = click.style(f"{finding.level:8}", fg=COLOURS[finding.level])
    first, *more = finding.found.splitlines()
    click.echo(f"{mark} {finding.name:8} {first}")
    for line in [*more, *(f"-> {part.strip()}" for part in finding.fix.splitlines())]:
        click.echo(f"{'':18}{line}")
