"""What a process keeps of the memory it needed once. Only glibc's allocator is spoken to; others are left alone."""

from __future__ import annotations

import ctypes
from typing import Any

M_ARENA_MAX = -8
"""Its name in glibc's malloc.h."""
TRIM_EVERY = 30
"""Calls of `Trimming.beat`, one a second."""


def _libc() -> Any:
    """The C library, if it has what is wanted of it."""
    try:
        libc = ctypes.CDLL(None)
        return libc if libc.mallopt and libc.malloc_trim else None
    except (OSError, AttributeError):
        return None


def share_one_arena() -> None:
    """All threads get their memory from one place; to be called before there are any. glibc has up to eight arenas for
    each CPU, so that threads need not wait for each other. The interpreter lets only one run anyway, and each arena
    keeps the most that it ever held: streams that take turns on another thread would need all of it once more."""
    if libc := _libc():
        libc.mallopt(M_ARENA_MAX, 1)


class Trimming:
    """Gives free pages back to the system, now and then: glibc does so at the end of its arena alone, and audio comes
    and goes in pieces of every size. It takes a millisecond or two. Used by one thread."""

    def __init__(self) -> None:
        self._libc = _libc()
        self._beats = 0

    def beat(self) -> None:
        self._beats += 1
        if self._libc is not None and self._beats % TRIM_EVERY == 0:
            self._libc.malloc_trim(0)
