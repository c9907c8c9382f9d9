"""How the commands of ``hearline queue`` show jobs, and the options that they share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import click
from rich.console import Console, RenderableType

from ops.queue_connection import Target
from ops.queue_view import record_fields
from queueing.records import JobRecord
from queueing.redis_cluster import node_of
from queueing.stats import MAX_LISTED

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

PIPE_WIDTH = 200
"""Columns of a table that does not go to a terminal: wide enough that no id is cut."""

limit_option = click.option(
    "--limit", type=click.IntRange(1, MAX_LISTED), default=50, show_default=True, help="Most jobs to list."
)
json_option = click.option("--json", "as_json", is_flag=True, help="A JSON array.")


def console() -> Console:
    """Standard output: a terminal, or wide enough."""
    own = Console(file=sys.stdout, highlight=False)
    return own if own.is_terminal else Console(file=sys.stdout, highlight=False, width=PIPE_WIDTH)


def listed(target: Target, state: str, limit: int) -> Sequence[JobRecord]:
    """Jobs of a state; none of a queue that was never used."""
    return target.queue.jobs(state, limit) if target.used() else ()


def show(found: Sequence[JobRecord], as_json: bool, view: Callable[[], RenderableType], nothing: str) -> None:
    """Print the jobs as a table or a JSON array; ``nothing`` is said where there are none."""
    if as_json:
        click.echo(json.dumps([record_fields(record) for record in found], indent=2))
    elif found:
        console().print(view())
    else:
        click.echo(nothing)


def now_ms(target: Target) -> int:
    """The queue's time: its Redis's."""
    seconds, micros = node_of(target.client, target.queue.keys.policy).time()
    return int(seconds) * 1000 + int(micros) // 1000
