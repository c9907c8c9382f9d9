"""When a stream reads again: at once in a process with few streams, in one with many only after a pause.

Each read costs a step of the stream, and what follows it (a turn of the session and of the detector) costs nearly the
same for 20 ms of audio as for 200 ms. So a process makes about `READS_PER_S` reads a second over all of its streams,
and the kernel gathers what comes in between. Nothing waits for longer than `LONGEST_PAUSE_S`, also no ``end``; mail is
not held up at all.
"""

from __future__ import annotations

from collections.abc import Callable

READS_PER_S = 375.0
LONGEST_PAUSE_S = 0.2
SHORTEST_PAUSE_S = 0.02
"""Less is not worth a wait: up to seven streams read at once."""
MUCH_BYTES = 12_800
"""A read of so much (0.4 s) is followed by the next at once: the client is ahead of real time, or behind."""


def pause_s(streams: int) -> float:
    """The pause of each stream where so many run."""
    pause = streams / READS_PER_S
    return min(pause, LONGEST_PAUSE_S) if pause > SHORTEST_PAUSE_S else 0.0


class Gathering:
    """The pauses of one stream; times are seconds of a monotonic clock. Used by one thread at a time.

    ``pause_s`` gives the pause in force. A client whose messages come more seldom than that is never waited for.
    """

    def __init__(self, pause_s: Callable[[], float]) -> None:
        self._pause_s = pause_s
        self._read_at = 0.0
        self._until = 0.0

    def left_s(self, now: float) -> float:
        """How long not to read yet; 0: read now."""
        return max(0.0, self._until - now)

    def read(self, now: float, size: int) -> None:
        """A read gave ``size`` bytes."""
        pause = self._pause_s()
        waited = now - max(self._read_at, self._until)
        self._until = now + pause if waited < pause and size < MUCH_BYTES else 0.0
        self._read_at = now
