"""Reads the settings of every program that is about to start, so that all wrong values are named at once.

Programs do not import each other: their settings classes are named as text, as in `ops.configuration`.
"""

from __future__ import annotations

import difflib
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ops.configuration import CLIENT, SECTIONS, load
from ops.errors import WrongUse
from ops.procfile import python_module
from ops.settings import UpSettings
from queueing.errors import SettingProblem, SettingsError

PROGRAMS = {"web": "api.settings:ApiSettings", "worker": "workers.settings:WorkerSettings"}
"""Kind of process -> its settings class."""

PREFIX = "HEARLINE_"

MODEL_SETTINGS = (
    "HEARLINE_MODEL",
    "HEARLINE_CALIBRATION",
    "HEARLINE_DEVICE",
    "HEARLINE_COMPUTE_TYPE",
    "HEARLINE_LANGUAGE",
)
"""Those whose values may be well-formed and yet not be had on this machine."""

SETUP_CHECK_S = 60.0
"""It takes a second or two; where a disk makes it take longer than this, the worker will find out."""


def check_settings(environment: Mapping[str, str], kinds: Iterable[str]) -> UpSettings:
    """The settings of this command, after those of the processes of these kinds are found right as well.

    Raises `WrongUse` naming every wrong value of all of them once.
    """
    problems: dict[str, SettingProblem] = {}
    for target in ("ops.settings:UpSettings", *(PROGRAMS[kind] for kind in kinds if kind in PROGRAMS)):
        try:
            load(target).from_env(environment)
        except SettingsError as error:
            problems.update((f"{problem.name} {problem.problem}", problem) for problem in error.problems)
    if problems:
        raise WrongUse(str(SettingsError(list(problems.values()))))
    return UpSettings.read(environment)


def check_model_settings(environment: Mapping[str, str], folder: Path | None) -> None:
    """Raise `WrongUse` where a worker that starts in ``folder`` would refuse its model's settings.

    Asks the worker itself, which looks without loading the model; not at all where the settings are the defaults.
    """
    if not any(environment.get(name) for name in MODEL_SETTINGS):
        return
    try:
        run = subprocess.run(
            [*python_module("workers"), "--check-setup"],
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SETUP_CHECK_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if run.returncode == WrongUse.exit_code and run.stderr.strip():
        raise WrongUse(run.stderr.strip())


def misspelt(environment: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each ``HEARLINE_*`` variable that no program reads, with the closest name there is."""
    known = {row.name for section in SECTIONS for row in load(section.target).rows()}
    known.update(re.findall(rf"{PREFIX}[A-Z_]+", CLIENT))
    suffixes = [name.removeprefix(PREFIX) for name in sorted(known)]
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            # Without the prefix, which would make any two names alike.
            close = difflib.get_close_matches(name.removeprefix(PREFIX), suffixes, n=1)
            hint = f"; did you mean {PREFIX}{close[0]}?" if close else "; docs/configuration.md lists the settings"
            yield f"{name} is no setting and has no effect{hint}"
