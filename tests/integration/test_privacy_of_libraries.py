"""What the libraries of a worker do by themselves: nothing that leaves the machine, or stays on it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.up_process import clean_environment

LISTEN = """
import numpy as np
from workers.speech import find_speech
assert find_speech(np.zeros(48_000, np.float32)) == ()
"""


def test_voice_detection_reports_to_nobody(tmp_path: Path) -> None:
    """Left alone onnxruntime makes an identity of the machine, and a database of what it is going to report."""
    home, scratch = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    scratch.mkdir()
    environment = clean_environment(HOME=str(home), XDG_CACHE_HOME=str(home / ".cache"), TMPDIR=str(scratch))
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run([sys.executable, "-c", LISTEN], env=environment, check=True, timeout=100)
    assert [path for folder in (home, scratch) for path in folder.rglob("*") if path.is_file()] == []
