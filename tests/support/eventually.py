"""Waiting for a condition instead of a duration."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def eventually(predicate: Callable[[], object], timeout_s: float = 10.0, what: str = "the condition") -> None:
    """Return as soon as ``predicate()`` is true; fail the test when it stays false for ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s  # noqa: TID251
    pause = threading.Event()
    while not predicate():
        if time.monotonic() > deadline:  # noqa: TID251
            raise AssertionError(f"{what} did not come true within {timeout_s} s")
        pause.wait(0.01)
