"""``hearline queue``: what waits, what runs, who works, what died; and the few things an operator may change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import click
import redis
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from ops.queue_connection import Target, open_queue, outage
from ops.queue_dead import dead
from ops.queue_show import HELP, console, json_option, limit_option, listed, now_ms, show
from ops.queue_view import Heading, jobs_view, stats_fields, stats_view
from ops.runtime import Runtime
from queueing.errors import QueueUnavailable
from queueing.lane import Lane
from queueing.policies import POLICIES
from queueing.stats import MAX_LISTED

T = TypeVar("T")


def _lane(_ctx: click.Context, _parameter: click.Parameter, value: str | None) -> Lane | None:
    try:
        return None if value is None else Lane.parse(value)
    except ValueError as error:
        raise click.BadParameter(f"{error}; a lane is KIND:WINDOW, for example final:10 or partial:5") from error


@click.group(invoke_without_command=True, context_settings=HELP)
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True, help="Seconds, for --watch."
)
@click.option("--all", "all_lanes", is_flag=True, help="Also lanes that are empty and were never used.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object (with --watch: one a line). Times in ms.")
@click.pass_context
def queue(ctx: click.Context, /, watch: bool, interval: float, all_lanes: bool, as_json: bool) -> None:
    """Look into the queue: lanes, jobs, workers, dead jobs, policy.

    \b
      hearline queue                       lanes with depth, oldest job, cost and rank; workers; leases; counts
      hearline queue --watch               the same, live
      hearline queue --json | jq '.lanes[] | select(.waiting > 0)'
      hearline queue jobs --lane final:10  waiting jobs, oldest first
      hearline queue dead                  jobs that failed every attempt, and why
      hearline queue policy hrrn           change the policy while running

    Looks at the Redis that REDIS_URL names, else at that of the `hearline up` running on this machine. A cost with
    ~ is a guess, not yet measured. Every line has its redis-cli twin in docs/operations/look-inside.md.

    Exit status: 0 it worked; 1 it was tried and failed; 2 wrong arguments or settings; 3 no Redis answers.
    """
    if ctx.invoked_subcommand is not None:
        if watch or all_lanes or as_json:
            raise click.UsageError(f"give the options of `queue {ctx.invoked_subcommand}` after its name")
        return
    runtime: Runtime = ctx.obj
    with open_queue(runtime) as target:
        if watch:
            _watch(target, interval, all_lanes=all_lanes, as_json=as_json)
        elif as_json:
            click.echo(json.dumps(_snapshot_fields(target), indent=2))
        else:
            console().print(_snapshot_view(target, all_lanes))


def _heading(target: Target) -> Heading:
    return Heading(target.name, target.shown)


def _snapshot_fields(target: Target) -> dict[str, Any]:
    if not target.used():
        return {"queue": target.name, "redis": target.shown, "used": False}
    return {"used": True, **stats_fields(target.queue.stats(), _heading(target))}


def _snapshot_view(target: Target, all_lanes: bool) -> RenderableType:
    if not target.used():
        return Text(_unused(target))
    return stats_view(target.queue.stats(), _heading(target), all_lanes=all_lanes)


def _unused(target: Target) -> str:
    return f"queue {target.name} at {target.shown}: never used so far ({target.where})"


def _watch(target: Target, interval: float, *, all_lanes: bool, as_json: bool) -> None:
    """Show it again and again; a Redis that goes away is said and waited for."""
    pause = threading.Event()
    with suppress(KeyboardInterrupt):
        if as_json:
            while True:
                click.echo(json.dumps(_or_error(lambda: _snapshot_fields(target), lambda error: {"error": error})))
                pause.wait(interval)
        screen = console()
        if not screen.is_terminal:  # nothing can be redrawn in a file or pipe: Live would be silent until the end
            while True:
                screen.print(_or_error(lambda: _snapshot_view(target, all_lanes), Text))
                screen.file.flush()
                pause.wait(interval)
        with Live(console=screen, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                view = _or_error(lambda: _snapshot_view(target, all_lanes), lambda error: Text(error, style="bold red"))
                live.update(view, refresh=True)
                pause.wait(interval)


def _or_error(look: Callable[[], T], say: Callable[[str], T]) -> T:
    try:
        return look()
    except (QueueUnavailable, redis.RedisError) as error:
        return say(f"no answer from Redis, trying again: {outage(error)}")


@queue.command(context_settings=HELP)
@click.option("--lane", callback=_lane, metavar="KIND:WINDOW", help="Only this lane, for example final:10.")
@click.option("--session", help="Only jobs of this session.")
@click.option("--leased", is_flag=True, help="Jobs that workers hold, next to expire first, instead of waiting ones.")
@limit_option
@json_option
@click.pass_obj
def jobs(runtime: Runtime, /, lane: Lane | None, session: str | None, leased: bool, limit: int, as_json: bool) -> None:
    """List waiting jobs, oldest first.

    \b
      hearline queue jobs
      hearline queue jobs --lane partial:5 --limit 10
      hearline queue jobs --session 7f0c... --json
      hearline queue jobs --leased

    Exit status: 0; 2 wrong arguments; 3 no Redis answers.
    """
    with open_queue(runtime) as target:
        state = "leased" if leased else "queued"
        candidates = listed(target, state, MAX_LISTED if lane or session else limit)
        found = [
            record
            for record in candidates
            if (lane is None or record.lane == lane) and (session is None or record.job.session == session)
        ][:limit]
        if (lane or session) and len(candidates) == MAX_LISTED and len(found) < limit:
            click.echo(f"looked through the {MAX_LISTED} oldest jobs only", err=True)
        nothing = "no such job" if candidates else f"no {state} job"
        show(found, as_json, lambda: jobs_view(found, now_ms(target)), nothing)


@queue.command(context_settings=HELP)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="{name, version, known, rescored}.")
@click.pass_obj
def policy(runtime: Runtime, /, name: str | None, as_json: bool) -> None:
    """Show the scheduling policy, or change it while the service runs.

    \b
      hearline queue policy            the one in force, and the others
      hearline queue policy hrrn       change it: waiting jobs get new scores, none is lost

    The change holds for every process on this queue, and outlives them: HEARLINE_POLICY only counts for a queue that
    has no policy yet. docs/scheduling.md compares the policies.

    Exit status: 0; 2 no such policy; 3 no Redis answers.
    """
    with open_queue(runtime) as target:
        if name is not None:
            change = target.queue.set_policy(name)
            fields = {"name": change.name, "version": change.version, "rescored": change.rescored}
            said = f"policy {change.name} (version {change.version}); {change.rescored} waiting jobs have new scores"
        elif target.used():
            installed = target.queue.policy()
            fields = {"name": installed.name, "version": installed.version}
            others = ", ".join(other for other in POLICIES if other != installed.name)
            said = f"policy {installed.name} (version {installed.version}); others: {others}"
        else:
            fields = {"name": None, "version": 0}
            said = f"{_unused(target)}; its policy will be HEARLINE_POLICY's. Known: {', '.join(POLICIES)}"
        click.echo(json.dumps({**fields, "known": list(POLICIES)}) if as_json else said)


queue.add_command(dead)
