"""Everything that can be run says what it is, refuses what it does not know, and keeps its examples' lines.

All of it: every command of ``hearline``, and every module that README, docs, Makefile, Procfile and Dockerfile run
with ``-m``.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ops.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "Makefile", "Procfile", "Dockerfile")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
OTHERS = {"pip", "pytest", "venv", "build", "http.server"}
"""Not ours."""


def named_modules() -> list[str]:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    found = re.findall(r"""-m["',]*\s+["']?([a-z_]+(?:\.[a-z_]+)*)""", text)
    return sorted({name for name in found if name not in OTHERS and find_spec(name.partition(".")[0]) is not None})


MODULES = named_modules()


def commands(command: click.Command = main, name: str = "hearline") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from commands(found, f"{name} {sub}")


COMMANDS = dict(commands())


def broken_lines(written: str, shown: str) -> list[str]:
    """Those indented lines of a help text (examples, tables) whose words are shown, but not as a line."""
    lines = {line.strip() for line in shown.splitlines()}
    words = " ".join(shown.split())
    indented = [
        line.strip() for line in inspect.cleandoc(written).splitlines() if line.startswith(" ") and line.strip()
    ]
    return [line for line in indented if line not in lines and " ".join(line.split()) in words]


def run(module: str, option: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, option],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_modules_are_found() -> None:
    assert {"api", "workers", "workers.bench", "ops.configuration", "ops.soak", "queueing.bench"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_explains_itself_and_refuses_what_it_does_not_know(module: str) -> None:
    with run(module, "--help") as helped, run(module, "--nonsense") as refused:
        try:
            shown, complaint = helped.communicate(timeout=60)
            _, refusal = refused.communicate(timeout=60)
        finally:
            helped.kill()
            refused.kill()
    assert (helped.returncode, complaint) == (0, "")
    assert re.search(rf"^usage: python -m {re.escape(module)} ", shown, re.IGNORECASE | re.MULTILINE), shown[:200]
    assert refused.returncode == 2, refusal
    assert "--nonsense" in refusal or "required" in refusal or "Missing" in refusal
    spec = find_spec(f"{module}.__main__") if (ROOT / module.replace(".", "/")).is_dir() else find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    written = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    assert broken_lines(written or "", shown) == []


@pytest.mark.parametrize("module", ["api", "workers"])
def test_the_programs_help_has_every_setting_and_the_line_of_the_procfile(module: str) -> None:
    from ops.configuration import load
    from ops.settings_check import PROGRAMS

    kind = {"api": "web", "workers": "worker"}[module]
    with run(module, "--help") as helped:
        shown, _ = helped.communicate(timeout=60)
    assert [row.name for row in load(PROGRAMS[kind]).rows() if f"  {row.name} " not in shown] == []
    assert f"{kind}: python -m {module}" in shown
    assert f"{kind}: python -m {module}" in (ROOT / "Procfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself_and_refuses_what_it_does_not_know(name: str) -> None:
    arguments = name.split()[1:]
    for option in ("-h", "--help"):
        shown = CliRunner().invoke(main, [*arguments, option])
        assert shown.exit_code == 0, shown.output
        assert broken_lines(COMMANDS[name].help or "", shown.output) == []
    assert CliRunner().invoke(main, [*arguments, "--nonsense"]).exit_code == 2


@pytest.mark.parametrize(
    "name",
    [name for name, command in COMMANDS.items() if not (isinstance(command, click.Group) and command.no_args_is_help)],
)
def test_a_command_that_prints_something_prints_it_as_json_too(name: str) -> None:
    assert "--json" in {option for parameter in COMMANDS[name].params for option in parameter.opts}


def test_a_broken_line_is_noticed() -> None:
    written = "What it is.\n\n    run this     does that\n    run more     does more\n\nAnd more.\n"
    assert broken_lines(written, written) == []
    assert broken_lines(written, "What it is.\n\n  run this does that run\n  more     does more") == [
        "run this     does that",
        "run more     does more",
    ]
