"""A process's temporary folder: gone with it, where it was killed with the next one, never while anybody has it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from queueing.scratch import scratch_folder

PREFIX = "hearline-test-"

OWNER = """
import os, subprocess, sys
from queueing.scratch import scratch_folder
with scratch_folder("hearline-test-") as scratch:
    if sys.argv[1] == "with child":
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=(scratch.descriptor,))
    print(scratch.path, flush=True)
    sys.stdin.read()
    os._exit(9)  # as if it was killed
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def folders(temporary: Path) -> list[str]:
    return sorted(str(path) for path in temporary.glob(f"{PREFIX}*"))


def owner(kind: str = "alone") -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def test_it_is_gone_at_the_end_with_what_is_in_it(temporary: Path) -> None:
    with scratch_folder(PREFIX) as scratch:
        assert folders(temporary) == [scratch.path]
        (Path(scratch.path) / "file").write_text("x")
    assert folders(temporary) == []


def test_what_a_killed_process_left_goes_with_the_next(temporary: Path) -> None:
    process, left = owner()
    (Path(left) / "file").write_text("x")
    with scratch_folder(PREFIX) as scratch:
        assert folders(temporary) == sorted([left, scratch.path]), "its owner lives"
    end(process)
    assert folders(temporary) == [left]
    with scratch_folder(PREFIX) as scratch:
        assert folders(temporary) == [scratch.path]


def test_a_child_that_outlives_its_parent_keeps_it(temporary: Path) -> None:
    process, left = owner("with child")
    process.kill()
    process.wait()
    with scratch_folder(PREFIX):
        assert left in folders(temporary)
    end(process)  # the child reads the same pipe, and ends with it
    assert process.returncode != 0


def test_what_is_not_a_folder_of_ours_stays(temporary: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"{PREFIX}file").write_text("x")
    os.symlink(elsewhere, tmp_path / f"{PREFIX}link")
    with scratch_folder(PREFIX):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", f"{PREFIX}file", f"{PREFIX}link"]
