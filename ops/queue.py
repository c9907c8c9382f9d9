"""``hearline queue``: what waits, what runs, who works, what died; and the few things an operator may change."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import click
import redis
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from ops.errors import Failed
from ops.queue_connection import Target, open_queue, outage
from ops.queue_view import Heading, dead_view, jobs_view, record_fields, stats_fields, stats_view
from ops.runtime import Runtime
from queueing.errors import QueueUnavailable
from queueing.lane import Lane
from queueing.policies import POLICIES
from queueing.records import JobRecord
from queueing.redis_cluster import node_of
from queueing.stats import MAX_LISTED

T = TypeVar("T")

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

PIPE_WIDTH = 200
"""Columns of a table that does not go to a terminal: wide enough that no id is cut."""


def _console() -> Console:
    console = Console(file=sys.stdout, highlight=False)
    return console if console.is_terminal else Console(file=sys.stdout, highlight=False, width=PIPE_WIDTH)


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
            _console().print(_snapshot_view(target, all_lanes))


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
        console = _console()
        if not console.is_terminal:  # nothing can be redrawn in a file or pipe: Live would be silent until the end
            while True:
                console.print(_or_error(lambda: _snapshot_view(target, all_lanes), Text))
                console.file.flush()
                pause.wait(interval)
        with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
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
@click.option("--limit", type=click.IntRange(1, MAX_LISTED), default=50, show_default=True, help="Most jobs to list.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array.")
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
        listed = _list(target, state, MAX_LISTED if lane or session else limit)
        found = [
            record
            for record in listed
            if (lane is None or record.lane == lane) and (session is None or record.job.session == session)
        ][:limit]
        if (lane or session) and len(listed) == MAX_LISTED and len(found) < limit:
            click.echo(f"looked through the {MAX_LISTED} oldest jobs only", err=True)
        _show(found, as_json, lambda: jobs_view(found, _now_ms(target)), "no such job" if listed else f"no {state} job")


@queue.group(invoke_without_command=True, context_settings=HELP)
@click.pass_context
def dead(ctx: click.Context, /) -> None:
    """Jobs that failed every attempt: list, retry, drop.

    \b
      hearline queue dead                  the list, latest first
      hearline queue dead retry ID         queue it anew, with all attempts
      hearline queue dead drop --all       forget them

    A retried job is decoded only while its session's audio is still in Redis, and its result is heard only while
    the session is open. Dead jobs are kept a day, at most 1,000 of them.

    Exit status: 0; 1 no such dead job; 2 wrong arguments; 3 no Redis answers.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_dead)


@dead.command("list", context_settings=HELP)
@click.option("--limit", type=click.IntRange(1, MAX_LISTED), default=50, show_default=True, help="Most jobs to list.")
@click.option("--json", "as_json", is_flag=True, help="A JSON array.")
@click.pass_obj
def list_dead(runtime: Runtime, /, limit: int = 50, as_json: bool = False) -> None:
    """List dead jobs, latest first, with the reason.

    \b
      hearline queue dead list --json | jq -r '.[] | [.id, .error_code] | @tsv'
    """
    with open_queue(runtime) as target:
        found = _list(target, "dead", limit)
        _show(found, as_json, lambda: dead_view(found, _now_ms(target)), "no dead job")


@dead.command(context_settings=HELP)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="All dead jobs.")
@click.option("--json", "as_json", is_flag=True, help="{retried: [...], unknown: [...]}.")
@click.pass_obj
def retry(runtime: Runtime, /, ids: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Queue dead jobs anew, as if they came now, with all their attempts.

    \b
      hearline queue dead retry 7f0c...:f:0
      hearline queue dead retry --all
    """
    with open_queue(runtime) as target:
        _settle(target, ids, every, as_json, "retried", target.queue.retry_dead)


@dead.command(context_settings=HELP)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--all", "every", is_flag=True, help="All dead jobs.")
@click.option("--json", "as_json", is_flag=True, help="{dropped: [...], unknown: [...]}.")
@click.pass_obj
def drop(runtime: Runtime, /, ids: tuple[str, ...], every: bool, as_json: bool) -> None:
    """Forget dead jobs.

    \b
      hearline queue dead drop 7f0c...:f:0
      hearline queue dead drop --all
    """
    with open_queue(runtime) as target:
        _settle(target, ids, every, as_json, "dropped", target.queue.drop_dead)


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


def _list(target: Target, state: str, limit: int) -> Sequence[JobRecord]:
    return target.queue.jobs(state, limit) if target.used() else ()


def _show(found: Sequence[JobRecord], as_json: bool, view: Callable[[], RenderableType], nothing: str) -> None:
    if as_json:
        click.echo(json.dumps([record_fields(record) for record in found], indent=2))
    elif found:
        _console().print(view())
    else:
        click.echo(nothing)


def _now_ms(target: Target) -> int:
    seconds, micros = node_of(target.client, target.queue.keys.policy).time()
    return int(seconds) * 1000 + int(micros) // 1000


def _settle(
    target: Target, ids: Sequence[str], every: bool, as_json: bool, done: str, settle: Callable[[str], bool]
) -> None:
    if every == bool(ids):
        raise click.UsageError("name the jobs, or give --all")
    settled: list[str] = []
    unknown: list[str] = []
    for job_id in ids or [record.job.id for record in _list(target, "dead", MAX_LISTED)]:
        (settled if settle(job_id) else unknown).append(job_id)
    if as_json:
        click.echo(json.dumps({done: settled, "unknown": unknown}))
    elif settled or not ids:
        click.echo(f"{done} {len(settled)} dead job{'' if len(settled) == 1 else 's'}")
    if unknown and ids:
        raise Failed(f"no dead job {', '.join(unknown)}; `hearline queue dead` lists them")
