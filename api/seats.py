"""The streams that take turns, and whose turn is next."""

from __future__ import annotations

import heapq
import math
import threading
from collections import deque
from itertools import count

from api.steps import Steps

USUAL_S = 0.002
"""CPU time of a step that nobody is charged for."""
MOST_CHARGED_S = 0.1
"""For one step: who was let go on alone for longer need not wait for it later."""
AGED_S = 0.2
"""Who has waited for so long takes every second turn."""


class Seat:
    """A stream that takes part. Either the poller knows it or a thread takes a step of it."""

    __slots__ = (
        *("steps", "socket_fd", "mail_fd", "reads", "deadline_s", "alarm_s"),
        *("queued", "heard", "woken", "error", "done", "turn_s", "place"),
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
        self.place = -1
        """In the queue; -1 outside."""

    def charge(self, used_s: float) -> None:
        """A step took so many seconds of a CPU: what is more than usual is given to others first."""
        self.turn_s += min(max(0.0, used_s - USUAL_S), MOST_CHARGED_S)


class FairQueue:
    """Who used least goes first: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996).

    Who comes after a rest does so at the present virtual time and has saved nothing up. Virtual time stands still while
    there are always some whose steps cost nothing; so that everybody's turn comes, those who wait for long take turns
    with them, in the order in which they came.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, bool, int, Seat]] = []
        """All who wait, by when their turn is; at the same time those first who owe nothing."""
        self._line: deque[tuple[float, int, Seat]] = deque()
        """All who wait, by when they came. (In both, who was taken by way of the other is passed over.)"""
        self._places = count()
        self._size = 0
        self._now_s = 0.0
        self._aged_last = False

    def __len__(self) -> int:
        return self._size

    def put(self, seat: Seat, now_s: float) -> None:
        """It wants a turn, since ``now_s``."""
        owes = seat.turn_s > self._now_s
        seat.turn_s = max(seat.turn_s, self._now_s)
        seat.place = next(self._places)
        heapq.heappush(self._heap, (seat.turn_s, owes, seat.place, seat))
        if len(self._heap) > 64 + 2 * self._size:  # most were taken by way of the line
            self._heap = [one for one in self._heap if one[2] == one[3].place]
            heapq.heapify(self._heap)
        self._line.append((now_s, seat.place, seat))
        self._size += 1

    def take(self, now_s: float) -> Seat:
        """Whose turn it is. Raises IndexError when nobody wants one."""
        while self._line[0][1] != self._line[0][2].place:
            self._line.popleft()
        since_s, _, oldest = self._line[0]
        self._aged_last = not self._aged_last and now_s - since_s > AGED_S
        seat = oldest if self._aged_last else self._least()
        seat.place = -1
        self._size -= 1
        return seat

    def _least(self) -> Seat:
        while True:
            turn_s, _, place, seat = heapq.heappop(self._heap)
            if place == seat.place:
                self._now_s = turn_s
                return seat
