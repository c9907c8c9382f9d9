"""Which processes run, how many, and by what shell line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ops import procfile
from ops.errors import Missing, WrongUse
from ops.procfile import (
    BUILT_IN,
    PROJECT_PROCFILE,
    WORKER_METRICS_PORT,
    expand,
    parse_counts,
    python_module,
    read_table,
    shell_line,
)

ROOT = Path(__file__).resolve().parents[2]


def test_the_built_in_table_is_the_projects_procfile() -> None:
    table, folder = read_table(PROJECT_PROCFILE)
    assert table == BUILT_IN
    assert folder == ROOT == PROJECT_PROCFILE.parent


def test_without_a_procfile_the_built_in_table_runs_in_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "Procfile").write_text("web: bundle exec rails server\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(procfile, "PROJECT_PROCFILE", tmp_path / "absent")
    assert read_table(None) == (BUILT_IN, None)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (None, Missing, "cannot read the Procfile"),
        ("# nothing here\n", WrongUse, "names no process"),
        ("web: a\nweb: b\n", WrongUse, "unique"),
    ],
)
def test_a_procfile_that_cannot_be_used_is_named(
    tmp_path: Path, text: str | None, error: type[Exception], message: str
) -> None:
    path = tmp_path / "Procfile"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=message):
        read_table(path)


def test_counts_scale_kinds_and_default_to_one() -> None:
    assert parse_counts(["worker=3"], ["web", "worker"]) == {"web": 1, "worker": 3}
    assert parse_counts(["web=0", "worker=2"], ["web", "worker"]) == {"web": 0, "worker": 2}


@pytest.mark.parametrize(
    "argument", ["worker", "worker=", "worker=-1", "worker=1.5", "worker=257", "workers=2", "=2", "worker=²"]
)
def test_wrong_counts_are_refused_by_name(argument: str) -> None:
    with pytest.raises(WrongUse) as caught:
        parse_counts([argument], ["web", "worker"])
    assert repr(argument) in caught.value.message


def test_each_web_process_has_its_own_port() -> None:
    specs = expand(BUILT_IN, {"web": 2, "worker": 1}, environment={"A": "1"}, web_ports=[81, 82], folder=None)
    assert [(spec.name, spec.kind, spec.environment.get("HEARLINE_PORT")) for spec in specs] == [
        ("web.1", "web", "81"),
        ("web.2", "web", "82"),
        ("worker.1", "worker", None),
    ]
    assert all(spec.environment["A"] == "1" for spec in specs)


def test_each_worker_has_its_own_port_for_metrics_where_one_was_named() -> None:
    counts = {"web": 1, "worker": 3}
    named = expand(BUILT_IN, counts, environment={}, web_ports=[81], folder=None, worker_metrics_port=9100)
    assert [spec.environment.get(WORKER_METRICS_PORT) for spec in named] == [None, "9100", "9101", "9102"]
    unnamed = expand(BUILT_IN, counts, environment={}, web_ports=[81], folder=None)
    assert not any(WORKER_METRICS_PORT in spec.environment for spec in unnamed)


@pytest.mark.parametrize(
    ("command", "direct"),
    [
        ("python -m api", True),
        ("exec python -m api", True),
        ("python -c 'print(1)' > out.txt", False),
        ("gunicorn --bind :$HEARLINE_PORT app", True),
        ("./run 'two words' \"$HOME\"", True),
        ("cd somewhere && python -m api", False),
        ("LEVEL=debug python -m api", False),
        ("python -m api | tee log", False),
        ("ulimit -n 4096", False),
    ],
)
def test_signals_reach_the_program_where_the_line_is_one_program(
    command: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for prefix in ([], ["python", "tether.py"]):
        monkeypatch.setattr(procfile, "tether", lambda prefix=prefix: prefix)
        line, is_direct = shell_line(command)
        assert is_direct is direct
        assert line.startswith("exec ") is (direct or bool(prefix))


def test_python_is_the_one_that_runs_this() -> None:
    line, _ = shell_line("python -c 'import sys; print(sys.executable)'")
    assert (
        subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout.strip()
        == sys.executable
    )


def test_a_folder_of_the_same_name_is_not_run_by_accident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("ops", "api"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('the wrong package')")
    monkeypatch.chdir(tmp_path)
    run = subprocess.run([*python_module("ops.cli"), "--version"], capture_output=True, text=True, check=False)
    assert run.stdout.startswith("hearline "), run.stderr
    monkeypatch.chdir(ROOT)
    assert "-P" not in python_module("ops.cli"), "a checkout that is not installed runs from its own folder"
