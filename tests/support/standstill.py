"""Processes that stand still."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.eventually import eventually


def stop(pid: int) -> None:
    """SIGSTOP, and wait until every thread stands still: the signal alone lets them run on for a moment, in which they
    may still read what is sent next. Without /proc, the signal alone."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")
    if threads.is_dir():
        eventually(lambda: all(_stands(thread) for thread in threads.iterdir()), what=f"process {pid} to stand still")


def _stands(thread: Path) -> bool:
    """A thread that has ended meanwhile does."""
    try:
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "TtZX"
