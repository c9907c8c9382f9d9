"""``hearline doctor``: is this machine fit to run the service, and if not, what helps?"""

from __future__ import annotations

import json

import click

from ops.doctor_checks import Finding, Level, run_checks
from ops.run_file import find_running, run_file
from ops.runtime import Runtime
from ops.settings import UpSettings

COLOURS = {Level.OK: "green", Level.SKIPPED: "bright_black", Level.WARNING: "yellow", Level.WRONG: "red"}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--json", "as_json", is_flag=True, help="One JSON object: {ok, findings: [{name, level, found, fix}]}.")
@click.pass_context
def doctor(ctx: click.Context, /, as_json: bool) -> None:
    """Check this machine: Python, Redis, model, port, CPUs, memory.

    \b
      hearline doctor
      hearline doctor --json | jq '.findings[] | select(.level != "ok")'
      HEARLINE_PORT=9000 REDIS_URL=redis://db:6379/0 hearline doctor

    Nothing is changed or left running. Each line that is not ok says what helps.

    Exit status: 0 nothing is wrong (warnings allowed); 1 something is wrong; 2 wrong settings.
    """
    runtime: Runtime = ctx.obj
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
