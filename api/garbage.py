"""When a web process looks for cycles among its objects.

While it looks nothing else of the process runs. So it looks often through the few newest objects, where what a handled
exception leaves behind is found, and through all of them when nobody is there to wait for it. At 20,000 objects a look
took 40 ms of CPU, and with full cores every stream and `/health` stood still for up to 190 ms; at 1,000 it takes 2 ms.
"""

from __future__ import annotations

import gc

YOUNG = 1_000
"""New objects between two looks through the newest."""
MIDDLE = 5
"""Such looks between two through those that outlived one."""
NEVER = 1_000_000

ALL_EVERY = 3_600
"""Calls of `Collecting.beat`, one a second, after which all are looked through although streams are open."""


def settle() -> None:
    """Everything is loaded: what is there now stays to the end, and nobody need look through it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, NEVER)


class Collecting:
    """Looks through all objects once the last stream is over. Used by one thread."""

    def __init__(self) -> None:
        self._beats = 0

    def beat(self, streams: int) -> None:
        """``streams``: open ones."""
        if streams:
            self._beats += 1
        if (self._beats and not streams) or self._beats >= ALL_EVERY:
            self._beats = 0
            gc.collect()
