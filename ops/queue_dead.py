"""``hearline queue dead``: jobs that failed every attempt."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import click
from click.core import ParameterSource

from ops.errors import Failed
from ops.queue_connection import Target, open_queue
from ops.queue_show import HELP, json_option, limit_option, listed, now_ms, show
from ops.queue_view import dead_view
from ops.runtime import Runtime
from queueing.stats import MAX_LISTED


@click.group(invoke_without_command=True, context_settings=HELP)
@limit_option
@json_option
@click.pass_context
def dead(ctx: click.Context, /, limit: int, as_json: bool) -> None:
    """Jobs that failed every attempt: list, retry, drop.

    \b
      hearline queue dead                  the list, latest first; --json, --limit N
      hearline queue dead retry ID         queue it anew, with all attempts
      hearline queue dead drop --all       forget them

    A retried job is decoded only while its session's audio is still in Redis, and its result is heard only while
    the session is open. Dead jobs are kept a day, at most 1,000 of them.

    Exit status: 0; 1 no such dead job; 2 wrong arguments; 3 no Redis answers.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_dead, limit=limit, as_json=as_json)
    elif as_json or ctx.get_parameter_source("limit") is ParameterSource.COMMANDLINE:
        raise click.UsageError(f"give the options of `queue dead {ctx.invoked_subcommand}` after its name")


@dead.command("list", context_settings=HELP)
@limit_option
@json_option
@click.pass_obj
def list_dead(runtime: Runtime, /, limit: int, as_json: bool) -> None:
    """List dead jobs, latest first, with the reason.

    \b
      hearline queue dead --json | jq -r '.[] | [.id, .error_code] | @tsv'
    """
    with open_queue(runtime) as target:
        found = listed(target, "dead", limit)
        show(found, as_json, lambda: dead_view(found, now_ms(target)), "no dead job")


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


def _settle(
    target: Target, ids: Sequence[str], every: bool, as_json: bool, done: str, settle: Callable[[str], bool]
) -> None:
    if every == bool(ids):
        raise click.UsageError("name the jobs, or give --all")
    settled: list[str] = []
    unknown: list[str] = []
    for job_id in ids or [record.job.id for record in listed(target, "dead", MAX_LISTED)]:
        (settled if settle(job_id) else unknown).append(job_id)
    if as_json:
        click.echo(json.dumps({done: settled, "unknown": unknown}))
    elif settled or not ids:
        click.echo(f"{done} {len(settled)} dead job{'' if len(settled) == 1 else 's'}")
    if unknown and ids:
        raise Failed(f"no dead job {', '.join(unknown)}; `hearline queue dead` lists them")
