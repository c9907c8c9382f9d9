"""Who waits for whom: threads that serve streams interrupt nobody, and nobody waits long for the interpreter's lock."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

SWITCH_S = 0.001
"""The interpreter's own is 5 ms. The thread that serves the streams takes its lock back at once after each read of a
socket, so a request waits for all of that, several times: it goes from thread to thread."""


def share_the_interpreter() -> None:
    """A thread that waits for the interpreter's lock for `SWITCH_S` gets it."""
    sys.setswitchinterval(SWITCH_S)


@contextlib.contextmanager
def unhurried() -> Iterator[None]:
    """What this thread does meanwhile interrupts nobody: once it wakes up it waits until a CPU is free (SCHED_BATCH).

    A thread that wakes up usually takes the CPU from one that runs. That one may have the interpreter's lock, which the
    newcomer then waits for: two switches for nothing. Threads that answer /health and /metrics stay as they are.
    Without Linux, or where it is forbidden, nothing is different.
    """
    changed = False
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(0) == os.SCHED_OTHER:  # and not what an operator has chosen
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
                changed = True
    try:
        yield
    finally:
        if changed and sys.platform == "linux":
            with contextlib.suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
