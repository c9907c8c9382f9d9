"""The command table: lazy, complete in its help, and clear about what is not there."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from ops import cli
from ops.cli import COMMANDS, Entry, main


def test_help_and_version_import_no_program_and_nothing_heavy() -> None:
    code = (
        "import sys, click; from ops.cli import main\n"
        "for arguments in (['--help'], ['--version'], []):\n"
        "    try: main(arguments, standalone_mode=False)\n"
        "    except click.exceptions.NoArgsIsHelpError: pass\n"
        "print('modules:', *sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.rpartition("modules:")[2].split())
    heavy = {"faster_whisper", "ctranslate2", "flask", "numpy", "redis", "rich", "honcho", "pydantic", "psutil"}
    assert "click" in loaded
    assert not loaded & (heavy | {"api", "workers", "loadgen", "sessions"})
    assert "hearline 0." in run.stdout


def test_help_names_every_command_with_its_summary_and_the_exit_statuses() -> None:
    text = CliRunner().invoke(main, ["--help"]).output
    for name, entry in COMMANDS.items():
        assert f"  {name} " in text
        assert entry.summary in text
    assert "Exit status" in text


@pytest.mark.parametrize("name", [name for name, entry in COMMANDS.items() if entry.target.startswith("ops.")])
def test_every_command_of_this_program_is_there_with_examples(name: str) -> None:
    context = click.Context(main, info_name="hearline")
    command = main.get_command(context, name)
    assert command is not None
    assert command.name == name
    text = CliRunner().invoke(main, [name, "--help"]).output
    assert f"hearline {name}" in text.partition("\n\n")[2], "the help shows examples"
    assert "Exit status" in text


def test_an_unknown_command_is_answered_with_the_known_ones() -> None:
    result = CliRunner().invoke(main, ["lanes"])
    assert result.exit_code == 2
    assert "no such command 'lanes'" in result.output
    assert "queue" in result.output


@pytest.mark.parametrize(
    ("target", "message"),
    [("ops.not_here:x", "not part of this installation"), ("no_such_package.x:x", "not part of this installation")],
)
def test_a_command_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, target: str, message: str) -> None:
    monkeypatch.setitem(cli.COMMANDS, "extra", Entry(target, "An extra."))
    result = CliRunner().invoke(main, ["extra"])
    assert result.exit_code == 3
    assert message in result.output


def test_a_missing_dependency_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'av'", name="av")

    monkeypatch.setattr("importlib.import_module", absent)
    result = CliRunner().invoke(main, ["stream"])
    assert result.exit_code == 3
    assert "'av'" in result.output
    assert "make install" in result.output
