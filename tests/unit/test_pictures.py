"""`--plot` of every command: what cannot be drawn is said before anything is measured."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadgen.load_command import load
from loadgen.plot import check_plot
from ops import service_bench, soak
from ops.errors import WrongUse
from ops.pictures import check_picture
from workers.bench_corpus import BenchError
from workers.bench_fit import check_plot as check_fit

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
COMMANDS = {
    "ops/service_bench.py": (service_bench.main, ("--speech", str(DATA))),
    "ops/soak.py": (soak.main, ()),
    "loadgen/load_command.py": (load, ("--speech", str(DATA), "--url", "http://127.0.0.1:1")),
}
WRONG = [
    ("figure.bmp", ".svg"),
    ("figure", ".svg"),
    ("nowhere/figure.svg", "folder"),
]


def test_no_command_with_a_picture_is_left_out() -> None:
    folders = [ROOT / name for name in ("api", "loadgen", "ops", "queueing", "sessions", "workers")]
    programs = [path for folder in folders for path in folder.rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in programs if '"--plot"' in path.read_text()}
    found -= {"loadgen/plot.py"}  # the words of an error
    assert found == {*COMMANDS, "workers/bench.py"}


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_arguments: object, **_options: object) -> None:
        raise AssertionError("the work has begun")

    for place in ("ops.service_bench.load_clips", "ops.soak.read_pcm", "loadgen.load_command.load_clips"):
        monkeypatch.setattr(place, begun)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(("picture", "said"), WRONG)
def test_a_picture_that_nobody_can_draw_is_refused_first(
    name: str, picture: str, said: str, tmp_path: Path, no_work: None
) -> None:
    command, arguments = COMMANDS[name]
    result = CliRunner().invoke(command, [*arguments, "--plot", str(tmp_path / picture)])
    assert result.exit_code == 2, result.output
    assert said in result.output


@pytest.mark.parametrize(("name", "status"), [(name, 2 if "load" in name else 3) for name in COMMANDS])
def test_so_is_one_without_matplotlib(
    name: str, status: int, tmp_path: Path, no_work: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    command, arguments = COMMANDS[name]
    result = CliRunner().invoke(command, [*arguments, "--plot", str(tmp_path / "figure.svg")])
    assert result.exit_code == status, result.output
    assert "needs matplotlib" in result.output
    assert "pip install" in result.output


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(os, "access", lambda path, _mode: asked.append(path))
    for check, error in ((check_plot, ValueError), (check_picture, WrongUse), (check_fit, BenchError)):
        with pytest.raises(error, match="cannot be written"):
            check(tmp_path / "figure.svg")
        assert asked[-1] == tmp_path
        (tmp_path / "there.svg").touch()
        with pytest.raises(error, match="cannot be written"):
            check(tmp_path / "there.svg")
        assert asked[-1] == tmp_path / "there.svg"


def test_soak_has_no_picture_of_cycles(tmp_path: Path, no_work: None) -> None:
    result = CliRunner().invoke(soak.main, ["--cycles", "3", "--plot", str(tmp_path / "soak.svg")])
    assert result.exit_code == 2
    assert "--cycles" in result.output
