"""Time comes in as an argument; this file alone reads the machine's clocks.

Time that orders jobs or ends leases is Redis time (the scripts ask ``TIME``); a `Clock` only paces a
process's own loops and timers.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What a loop may ask of time."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps back; differences only."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; for display and logs, never for ordering."""


class SystemClock:
    """The production clock."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def cpu_clock() -> int | None:
    """The clock of the CPU time of the calling thread, for `cpu_s` in another; None where there is no such clock."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return None
    return time.pthread_getcpuclockid(threading.get_ident())


def cpu_s(clock: int | None) -> float:
    """Seconds for which the thread of a `cpu_clock` has had a CPU; 0 without one, or when the thread has ended."""
    if clock is None:
        return 0.0
    try:
        return time.clock_gettime(clock)
    except OSError:
        return 0.0


class ManualClock:
    """A clock that a test moves by hand."""

    def __init__(self, start_s: float = 1_000.0) -> None:
        self._now_s = start_s

    def advance(self, seconds: float) -> None:
        """Move time forward by ``seconds`` (never backward)."""
        if seconds < 0:
            raise ValueError(f"a clock moves forward only, got {seconds} s")
        self._now_s += seconds

    def monotonic(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return int(self._now_s * 1000)
