"""The ``hearline`` command: a table of sub-commands, each imported only when it is used.

The table names modules as text, so that this program imports none of the others, and carries each
command's one-line summary, so that ``hearline --help`` imports none of them either.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, NamedTuple, cast

import click

from ops.errors import Missing
from ops.runtime import Runtime
from ops.standard_output import printing
from queueing.clock import SystemClock


class Entry(NamedTuple):
    """Where a command lives (``module:attribute``) and what it does in one line."""

    target: str
    summary: str


COMMANDS = {
    "demo": Entry("ops.demo:demo", "Start everything and show live captions of a speech sample."),
    "up": Entry("ops.up:up", "Run the service: Redis, web and workers, until Ctrl-C."),
    "restart": Entry("ops.restart:restart", "Restart the workers and web processes of `hearline up`, one by one."),
    "stream": Entry("loadgen.stream_command:stream", "Stream a file, microphone or synthetic audio; print captions."),
    "load": Entry("loadgen.load_command:load", "Measure latency under many concurrent streams."),
    "queue": Entry("ops.queue:queue", "Look into the queue: lanes, jobs, workers, dead jobs, policy."),
    "keys": Entry("ops.keys:keys", "API keys: who may use the service, and how much."),
    "calibrate": Entry(
        "workers.calibrate_command:calibrate", "Measure how short the model's windows may be; workers read it."
    ),
    "doctor": Entry("ops.doctor:doctor", "Check this machine; with --tune, find its best workers and threads."),
}


class LazyGroup(click.Group):
    """A group whose commands come from `COMMANDS`."""

    def main(self, *arguments: Any, **options: Any) -> Any:
        with printing():
            return super().main(*arguments, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module_name, _, attribute = entry.target.partition(":")
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise Missing(
                    f"`hearline {cmd_name}` needs the package {error.name!r}, which is not installed; "
                    "install Hearline with its dependencies (make install)"
                ) from None
            raise Missing(f"`hearline {cmd_name}` is not part of this installation ({module_name} is absent)") from None
        return cast("click.Command", getattr(module, attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}; choose one of {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("hearline")
    except PackageNotFoundError:
        number = "(not installed)"
    click.echo(f"hearline {number}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show it.")
@click.pass_context
def main(ctx: click.Context, /) -> None:
    """Streaming speech-to-text on your own hardware.

    \b
      hearline demo --stay           everything at once: captions of a sample, then stays up
      hearline up worker=3           the service with three workers
      hearline stream talk.flac      live captions of a file
      hearline queue --watch         what waits, what runs, what died

    \b
    Exit status: 0 it worked; 1 it was tried and failed; 2 wrong arguments or settings;
    3 something needed is missing (Redis, a port, a file); 74 standard output cannot be written;
    130 stopped by Ctrl-C. `hearline stream` and `hearline load` have 3 to 5 of their own.
    Settings come from the environment: see docs/configuration.md.
    """
    if ctx.obj is None:
        ctx.obj = Runtime(environment=dict(os.environ), clock=SystemClock())  # noqa: TID251


if __name__ == "__main__":
    main(prog_name="hearline")
