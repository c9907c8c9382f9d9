"""What a stream waits for between its steps, for whoever waits: `api.turns` for all streams, or one thread for one."""

from __future__ import annotations

import math
import select
from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wait:
    """For what a stream waits: mail, ``timeout_s``, the end of its connection; bytes of its client if it ``reads``."""

    timeout_s: float
    reads: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """What the wait came to; neither of them: its time is over."""

    socket: bool
    """There are bytes to read, or the connection is broken."""
    mail: bool


Steps = Generator[Wait, Ready, T]
"""Runs from one wait to the next; returns a T in the end."""

READY = {(heard, woken): Ready(heard, woken) for heard in (False, True) for woken in (False, True)}
"""By whether the client was heard, and whether there is mail."""


def waited_out(steps: Steps[T], socket_fd: int, mail_fd: int | None = None) -> T:
    """Take the steps in the calling thread; what they return or raise. There is no mail without a ``mail_fd``."""
    try:
        wait = next(steps)
        while True:
            poll = select.poll()
            poll.register(socket_fd, select.POLLIN if wait.reads else 0)
            if mail_fd is not None:
                poll.register(mail_fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(math.ceil(max(0.0, wait.timeout_s) * 1000))}
            wait = steps.send(READY[socket_fd in ready, mail_fd in ready])
    except StopIteration as end:
        result: T = end.value
        return result
