"""What other threads have to say to a stream: bounded, never blocking, with a descriptor to poll."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from dataclasses import dataclass

from queueing.job import Delivery

CAPACITY = 256
"""A session has one partial and a few finals under way; more than this is a fault of somebody's."""


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The subscription was interrupted: deliveries may be missing."""


@dataclass(frozen=True, slots=True)
class WorkersChanged:
    """The last ready worker went, or the first one came."""

    alive: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """This process ends; the stream has until ``deadline_s`` (monotonic), one that comes back until ``leave_s``.
    ``for_good``: no other takes its place."""

    deadline_s: float
    leave_s: float
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class TakenOver:
    """A newer connection has the stream's session."""


Mail = Delivery | Reconnected | WorkersChanged | Drain | TakenOver


class Mailbox:
    """Many threads `put`, one takes. When it is full, items are dropped and the taker learns that some were."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._items: deque[Mail] = deque()
        self._dropped = False
        self._lock = threading.Lock()
        self._open = True
        if sys.platform == "linux":
            self._read_fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self._read_fd, self._write_fd = os.pipe()
            os.set_blocking(self._read_fd, False)

    def fileno(self) -> int:
        """A descriptor that is readable while something waits."""
        return self._read_fd

    def put(self, mail: Mail) -> None:
        """Leave ``mail``; dropped when the box is full or closed."""
        with self._lock:
            if not self._open:
                return
            if len(self._items) >= self._capacity:
                self._dropped = True
                return
            self._items.append(mail)
            if len(self._items) == 1:
                os.write(self._write_fd, (1).to_bytes(8, sys.byteorder))

    def take(self) -> tuple[list[Mail], bool]:
        """Everything that waits, oldest first, and whether something was dropped since the last call."""
        if not self._items and not self._dropped:  # what comes right now makes the descriptor readable
            return [], False
        with self._lock:
            items, dropped = list(self._items), self._dropped
            if items:
                self._items.clear()
                os.read(self._read_fd, 8)
            self._dropped = False
        return items, dropped

    def close(self) -> None:
        """Give the descriptors back; later items are dropped. Idempotent."""
        with self._lock:
            if self._open:
                self._open = False
                os.close(self._read_fd)
                if self._write_fd != self._read_fd:
                    os.close(self._write_fd)
