"""Benchmarks say at once what they lack, with the status that every command has for it: 3."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

WITHOUT = """
import importlib.util, runpy, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"jiwer", "whisper_normalizer", "rq", "huey", "saq", "matplotlib"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
found = importlib.util.find_spec
def find_spec(name, package=None):
    try:
        return found(name, package)
    except ModuleNotFoundError:
        return None
importlib.util.find_spec = find_spec
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""

DATA = ("--speech", "tests/data")


def run(*arguments: str, code: str = WITHOUT) -> subprocess.CompletedProcess[str]:
    # As workers.bench would set it for itself, by starting anew: that would bring the packages back.
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("workers.bench", *DATA), "jiwer"),
        (("workers.bench", *DATA, "--only", "fit", "--plot", "fit.svg"), "matplotlib"),
        (("ops.service_bench", *DATA), "jiwer"),
        (("ops.service_bench", *DATA, "--plot", "fit.svg"), "matplotlib"),
        (("ops.cli", "calibrate", *DATA, "--dry-run"), "jiwer"),
        (("queueing.bench", "--quick"), "rq, huey, saq"),
    ],
)
def test_a_missing_package_is_status_3_and_named_with_the_command(arguments: tuple[str, ...], named: str) -> None:
    answer = run(*arguments)
    assert (answer.returncode, answer.stdout) == (3, ""), answer.stderr
    assert named in answer.stderr
    assert "pip install" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    "arguments", [("workers.bench",), ("ops.service_bench",), ("ops.cli", "calibrate", "--dry-run")]
)
def test_missing_recordings_are_status_3(arguments: tuple[str, ...], tmp_path: Path) -> None:
    answer = run(*arguments, "--speech", str(tmp_path), code="import runpy, sys; sys.argv = sys.argv[1:]\n"
                 "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)")  # fmt: skip
    assert answer.returncode == 3, answer.stderr
    assert "manifest.csv" in answer.stderr


def test_wrong_settings_are_status_2() -> None:
    code = "import sys; from workers.bench import main; sys.exit(main(sys.argv[1:], {'HEARLINE_FINAL_BEAM': '0'}))"
    answer = run(*DATA, code=code)
    assert answer.returncode == 2
    assert "HEARLINE_FINAL_BEAM" in answer.stderr


def test_the_extra_that_the_pages_name_has_the_packages() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    bench = {re.split(r"[>=]", package)[0] for package in extras["bench"]}
    page = (ROOT / "docs" / "measurements.md").read_text().partition("**Packages that `make run` does not install**")[2]
    named = set(re.findall(r"`([a-z-]+)`", page.partition("\n\n")[0]))
    assert bench <= named
    assert "pip install 'hearline[bench]'" in page
    locked = (ROOT / "requirements-dev.lock").read_text()
    assert [package for package in bench if f"\n{package}==" not in locked] == []
