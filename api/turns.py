"""The streams of a process take turns on one thread, however many they are.

A thread for each stream is simple, but hundreds of them want the interpreter's lock: each wake-up waits for it, takes
it away from another, and both pay for the switch. So a stream does not wait in a thread of its own but here: `Turns`
waits for the sockets, mailboxes and timers of all of them at once, and takes one step of one stream after the other.

A step may be held up, by Redis or by a client that does not read, and nobody else shall wait for that. An understudy
looks whether the thread that leads is stuck in a step; then it leads from there on, and the other is free after its
step. So there are two threads, and one more for each step that is held up. Those that are free are used again: every
new thread may get an arena of its own from malloc, which grows to what all streams need and never shrinks. A step that
computes is left alone: a second thread would only take the interpreter's lock from it.

Whose turn is next is a matter of what each stream has used: who computes for long waits for those who do not, so that
hundreds of clients with floods of tiny frames hold up nobody but each other.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import select
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import structlog

from api.seats import FairQueue, Seat
from api.steps import READY, Ready, Steps, Wait
from api.urgency import unhurried
from queueing.clock import Clock, cpu_clock, cpu_s

log = structlog.get_logger()

STUCK_S = 0.03
"""A step usually takes a millisecond. One that takes twice this long at most is waited for no longer."""
SHORTEST_LOOK_S = 0.001
"""However many steps are held up, the understudy looks no more often."""
COMPUTES = 0.1
"""Share of the time for which a step that computes has a CPU, at least; one that waits has none at all."""
NOTICE_S = 0.005
"""So often the kernel is asked for news while there are turns to take: who used little goes before those."""
FREE_S = 60.0
"""How long a thread waits to be used again."""


class Turns:
    """Thread-safe. Its threads begin with the first stream and live as long as the process."""

    def __init__(
        self,
        clock: Clock,
        *,
        stuck_s: float = STUCK_S,
        portable: bool = False,
        count_held_up: Callable[[int], object] = lambda _more: None,
    ) -> None:
        """``portable``: use `select.poll` also where there is `select.epoll`. ``count_held_up`` is told how many more
        (1), or fewer (-1), steps are held up; it may not wait for anything."""
        self._clock = clock
        self._count_held_up = count_held_up
        self._stuck_s = stuck_s
        self._ticks = 1000.0 if portable or not hasattr(select, "epoll") else 1.0
        self._poller: Any = select.poll() if self._ticks > 1 else select.epoll()
        self._lock = threading.Lock()
        """Guards everything below; held for microseconds, never during a step or a wait."""
        self._busy = threading.Condition(self._lock)
        """Of the understudy, until there are streams."""
        self._free = threading.Condition(self._lock)
        """Of the threads that are free."""
        self._seats: dict[int, Seat] = {}
        """By either descriptor."""
        self._queue = FairQueue()
        self._noticed_s = 0.0
        """When the poller was asked last."""
        self._timers: list[tuple[float, int, Seat]] = []
        self._numbers = count()
        self._leader = 0
        """Number of the thread that leads. Who takes over has the next."""
        self._step: Seat | None = None
        """Whose step the leader takes."""
        self._steps = 0
        self._cpu_clock: int | None = None
        """Of the thread that leads."""
        self._aside = 0
        """Threads that led once and are not done with their step."""
        self._freed = 0
        self._understudied = False
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        self._poller.register(self._wake_in, select.POLLIN)

    def take(self, steps: Steps[None], socket_fd: int, mail_fd: int) -> None:
        """Take all steps of a stream; returns after the last, or raises what one of them raised. The calling thread
        only takes the first."""
        try:
            wait = next(steps)
        except StopIteration:
            return
        seat = Seat(steps, socket_fd, mail_fd)
        with self._lock:
            if not self._leader:
                _thread(lambda: self._play(1))
                self._leader = 1
                self._find_understudy()
            self._seats[socket_fd] = self._seats[mail_fd] = seat
            self._settle(seat, wait)
            self._busy.notify()
        self._wake()
        seat.done.wait()
        if seat.error is not None:
            try:
                raise seat.error
            finally:
                seat.error = None  # its traceback has this frame, and so the stream

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # then it is awake
            os.write(self._wake_out, b"!")

    def _lead(self, leader: int) -> None:
        """Take one step after the other, until another thread leads."""
        own = self._cpu_clock = cpu_clock()
        while True:
            seat, ready = self._next()
            wait, begun_s = None, cpu_s(own)
            try:
                wait = seat.steps.send(ready)
            except StopIteration:
                pass
            except BaseException as error:  # noqa: BLE001  # raised again where the stream is waited for
                seat.error = error
            with self._lock:
                seat.charge(cpu_s(own) - begun_s)
                self._settle(seat, wait)
                if self._leader == leader:
                    self._step = None
                    continue
                self._aside -= 1
                self._count_held_up(-1)
            self._wake()
            return

    def _next(self) -> tuple[Seat, Ready]:
        """Whose turn it is, and what its wait came to."""
        while True:
            with self._lock:
                now_s = self._clock.monotonic()
                if self._queue and now_s < self._noticed_s + NOTICE_S:
                    self._step = seat = self._queue.take(now_s)
                    self._steps += 1
                    ready = READY[seat.heard, seat.woken]
                    seat.queued = seat.heard = seat.woken = False
                    return seat, ready
                left_s = 0.0 if self._queue else self._timers[0][0] - now_s if self._timers else None
            events = self._poller.poll(None if left_s is None else max(0.0, left_s) * self._ticks)
            with self._lock:
                self._noticed_s = self._clock.monotonic()
                for fd, _ in events:
                    self._notice(fd)
                self._look_at_timers(self._noticed_s)

    def _notice(self, fd: int) -> None:
        if fd == self._wake_in:
            os.read(fd, 4096)
            return
        seat = self._seats.get(fd)
        if seat is None or seat.reads is None:  # ended, or was put aside, while the poller looked
            return
        if fd == seat.socket_fd:
            seat.heard = True
        else:
            seat.woken = True
        self._put_in_queue(seat)

    def _put_in_queue(self, seat: Seat) -> None:
        if not seat.queued:
            seat.queued = True
            self._queue.put(seat, self._noticed_s)

    def _look_at_timers(self, now_s: float) -> None:
        while self._timers and self._timers[0][0] <= now_s:
            at_s, _, seat = heapq.heappop(self._timers)
            if at_s != seat.alarm_s:  # an earlier one was set since
                continue
            seat.alarm_s = math.inf
            if seat.reads is None or seat.queued:  # its next wait sets another
                continue
            if seat.deadline_s <= now_s:
                self._put_in_queue(seat)
            else:
                self._set_alarm(seat)

    def _set_alarm(self, seat: Seat) -> None:
        if seat.deadline_s < seat.alarm_s:
            seat.alarm_s = seat.deadline_s
            heapq.heappush(self._timers, (seat.alarm_s, next(self._numbers), seat))
            if len(self._timers) > 64 + 2 * len(self._seats):  # most of them count no more
                self._timers = [timer for timer in self._timers if timer[0] == timer[2].alarm_s]
                heapq.heapify(self._timers)

    def _settle(self, seat: Seat, wait: Wait | None) -> None:
        """After a step: the stream waits again, or is over."""
        if wait is not None:
            seat.deadline_s = self._clock.monotonic() + wait.timeout_s
            try:
                self._watch(seat, reads=wait.reads)
            except OSError as error:  # the kernel has no room for more
                seat.error = error
            else:
                self._set_alarm(seat)
                return
        seat.alarm_s = math.inf
        self._unwatch(seat)
        for fd in (seat.socket_fd, seat.mail_fd):
            self._seats.pop(fd, None)
        seat.done.set()

    def _watch(self, seat: Seat, *, reads: bool) -> None:
        if seat.reads == reads:
            return
        mask = select.POLLIN if reads else 0  # also with 0 it is told of a broken connection
        if seat.reads is None:
            self._poller.register(seat.socket_fd, mask)
            self._poller.register(seat.mail_fd, select.POLLIN)
        else:
            self._poller.modify(seat.socket_fd, mask)
        seat.reads = reads

    def _unwatch(self, seat: Seat) -> None:
        for fd in (seat.socket_fd, seat.mail_fd):
            with contextlib.suppress(OSError, KeyError):  # not known
                self._poller.unregister(fd)
        seat.reads = None

    def _play(self, leader: int = 0) -> None:
        """Lead, as number ``leader``; then be free, be the understudy and lead again, until nobody needs the thread."""
        while True:
            if leader:
                self._lead(leader)
            with self._lock:
                self._freed += 1
                needed = self._free.wait_for(lambda: not self._understudied, timeout=FREE_S)
                self._freed -= 1
                if not needed:
                    return
                self._understudied = True
            leader = self._understudy()

    def _understudy(self) -> int:
        """Look after the leader until it is stuck; then its successor's number."""
        seen, used_s = -1, 0.0
        pause = threading.Event()
        while True:
            with self._lock:
                while not self._seats:
                    self._busy.wait()
                # Where one is held up the next may be soon.
                pause_s = max(self._stuck_s / (1 + self._aside), SHORTEST_LOOK_S)
            pause.wait(pause_s)
            with self._lock:
                stuck, before_s = self._step, used_s
                used_s = cpu_s(self._cpu_clock)
                if stuck is None or self._steps != seen or used_s - before_s > COMPUTES * pause_s:
                    seen = self._steps
                    continue
                self._unwatch(stuck)
                self._step = None
                self._aside += 1
                self._count_held_up(1)
                self._leader += 1
                self._understudied = False
                self._find_understudy()
                return self._leader

    def _find_understudy(self) -> None:
        if self._freed:
            self._free.notify()
            return
        with contextlib.suppress(RuntimeError):  # no more threads to be had: the next that is free will be it
            _thread(self._play)


def _thread(target: Callable[[], None]) -> None:
    def unhurriedly() -> None:
        try:
            with unhurried():
                target()
        except BaseException:
            # No stream would be served any more, and nobody would know. Those that can be resumed go on elsewhere.
            log.critical("turns_failed", exc_info=True)
            os._exit(1)

    threading.Thread(target=unhurriedly, name="turns", daemon=True).start()
