"""The streams that take turns, and whose turn is next."""

from __future__ import annotations

import heapq
import math
import threading
from itertools import count

from api.steps import Steps

MOST_CHARGED_S = 0.1
"""For one step: who was let go on alone for longer need not wait for it later."""


class Seat:
    """A stream that takes part. Either the poller knows it or a thread takes a step of it."""

    __slots__ = (
        *("steps", "socket_fd", "mail_fd", "reads", "deadline_s", "alarm_s"),
        *("queued", "heard", "woken", "error", "done", "turn_s"),
    )

    def __init__(self, steps: Steps[None], socket_fd: int, mail_fd: int) -> None:
        self.steps = steps
        self.socket_fd = socket_fd
        self.mail_fd = mail_fd
        self.reads: bool | None = None
        """Whether the poller looks for bytes of the client; None while it does not know the stream at all."""
        self.deadline_s = self.alarm_s = math.inf
        """Until when it waits, and when the timers look at it next: not later."""
        self.queued = self.heard = self.woken = False
        self.error: BaseException | None = None
        self.done = threading.Event()
        self.turn_s = 0.0
        """When its turn is, in the queue's virtual time."""

    def charge(self, used_s: float) -> None:
        """A step took so many seconds of a CPU: they are given to others first."""
        self.turn_s += min(used_s, MOST_CHARGED_S)


class FairQueue:
    """Who used least goes first: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996).

    Who comes after a rest does so at the present virtual time and has saved nothing up. Everybody's turn comes, since
    all who go before use up what they have less: so nobody's use may be free, however little it is.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Seat]] = []
        self._numbers = count()
        self._now_s = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, seat: Seat) -> None:
        """It wants a turn."""
        seat.turn_s = max(seat.turn_s, self._now_s)
        heapq.heappush(self._heap, (seat.turn_s, next(self._numbers), seat))

    def take(self) -> Seat:
        """Whose turn it is. Raises IndexError when nobody wants one."""
        self._now_s, _, seat = heapq.heappop(self._heap)
        return seat
