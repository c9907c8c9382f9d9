"""Which processes there are, how many of each, and how each is started.

The table comes from a Procfile: the one given, else the project's own, else the same table built in
(an installed package has no Procfile beside it; a Procfile of another application in the current folder
is never picked up by accident).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from honcho.environ import parse_procfile

from ops.errors import Missing, WrongUse
from ops.tether import tether

BUILT_IN = {"web": "python -m api", "worker": "python -m workers"}
"""The Procfile of the project; a test compares the two."""

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds the packages: the project, or site-packages."""

PROJECT_PROCFILE = ROOT / "Procfile"

MOST_OF_A_KIND = 256

WORKER_METRICS_PORT = "HEARLINE_WORKER_METRICS_PORT"

OPERATORS = frozenset("|&;()`\n")
"""With one of these a line may be more than one command, and cannot simply be exec'd."""

NOT_A_PROGRAM = frozenset(
    {"{", "!", ".", "cd", "export", "set", "if", "for", "while", "until", "case", "trap", "ulimit"}
)


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """One process to run: ``web.1``, its shell command, what its environment adds, and where it runs.

    ``direct`` means that the process group's leader is the program itself, not a shell around it; ``pass_fds`` are
    descriptors that it inherits.
    """

    name: str
    command: str
    environment: Mapping[str, str]
    folder: Path | None
    direct: bool
    pass_fds: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        return self.name.rpartition(".")[0]


def python_module(name: str) -> list[str]:
    """The command that runs a module of this installation, also where the current folder has one of that name."""
    return [sys.executable, *([] if Path.cwd() == ROOT else ["-P"]), "-m", name]


def read_table(procfile: Path | None) -> tuple[dict[str, str], Path | None]:
    """Process kinds with their commands, and the folder they run in (None: the current one).

    Raises `Missing` for a Procfile that cannot be read, `WrongUse` for one without any process.
    """
    path = procfile or (PROJECT_PROCFILE if PROJECT_PROCFILE.is_file() else None)
    if path is None:
        return dict(BUILT_IN), None
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Missing(f"cannot read the Procfile {path}: {error}") from error
    try:
        table: dict[str, str] = dict(parse_procfile(text).processes)
    except AssertionError as error:
        raise WrongUse(f"{path}: {error}") from error
    if not table:
        raise WrongUse(f"{path} names no process; a line looks like 'worker: python -m workers'")
    return table, path.resolve().parent


def parse_counts(arguments: Sequence[str], kinds: Sequence[str]) -> dict[str, int]:
    """Read ``worker=3`` arguments; kinds not named get 1. Raises `WrongUse`."""
    counts = dict.fromkeys(kinds, 1)
    for argument in arguments:
        kind, equals, number = argument.partition("=")
        if not equals or kind not in counts:
            raise WrongUse(
                f"{argument!r} does not say how many of what; write KIND=COUNT with KIND one of {', '.join(kinds)}, "
                "for example worker=3"
            )
        if not (number.isascii() and number.isdigit()) or int(number) > MOST_OF_A_KIND:
            raise WrongUse(f"{argument!r}: the count must be a whole number from 0 to {MOST_OF_A_KIND}")
        counts[kind] = int(number)
    if not any(counts.values()):
        raise WrongUse("all counts are 0: nothing to run")
    return counts


def expand(
    table: Mapping[str, str],
    counts: Mapping[str, int],
    *,
    environment: Mapping[str, str],
    web_ports: Sequence[int],
    folder: Path | None,
    pass_fds: tuple[int, ...] = (),
    worker_metrics_port: int | None = None,
) -> list[ProcessSpec]:
    """One spec per process, in the table's order; the n-th web process gets the n-th port, and the n-th worker the n-th
    from ``worker_metrics_port`` on for its metrics."""
    specs = []
    for kind, command in table.items():
        for index in range(counts[kind]):
            added = {**environment, "HONCHO_PROCESS_NAME": f"{kind}.{index + 1}"}
            if kind == "web":
                added["HEARLINE_PORT"] = str(web_ports[index])
            if kind == "worker" and worker_metrics_port is not None:
                added[WORKER_METRICS_PORT] = str(worker_metrics_port + index)
            line, direct = shell_line(command)
            specs.append(ProcessSpec(f"{kind}.{index + 1}", line, added, folder, direct, pass_fds))
    return specs


def shell_line(command: str) -> tuple[str, bool]:
    """The line for ``sh -c``, tethered to this process, and whether the program replaces the shell.

    ``python`` becomes the interpreter that runs this, so that a virtual environment need not be activated.
    A simple command is exec'd, so that signals reach the program itself and not a shell that dies of them.
    """
    words = command.split(maxsplit=1)
    if words[0] == "exec" and len(words) == 2:
        command, words = words[1], words[1].split(maxsplit=1)
    first = words[0]
    if first in ("python", "python3"):
        command = " ".join([shlex.quote(sys.executable), *words[1:]])
    simple = not set(command) & OPERATORS and "=" not in first and first not in NOT_A_PROGRAM
    tethered = "".join(f"{shlex.quote(word)} " for word in tether())
    if simple:
        return f"exec {tethered}{command}", True
    return (f"exec {tethered}/bin/sh -c {shlex.quote(command)}", False) if tethered else (command, False)
