"""The page of /metrics, from a moment ago where it would take long to make.

Making it costs some 25 ms of the interpreter, and a thread that computes hands the interpreter's lock over again and
again: beside a hundred streams a scrape took seconds. So a process with many streams makes the page in a thread of its
own, every `EVERY_S` while somebody asks for it, and answers with the newest. With few streams each page is made when it
is asked for, but one at a time: who asks while one is made gets that one, and so does everybody for `SHARED_S`. Else a
hundred connections that ask without end would make pages in a hundred threads, and no stream would get its turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from queueing.clock import Clock

MANY_STREAMS = 50
EVERY_S = 2.0
OLDEST_S = 5.0
"""An older page is not given out: then the asker waits for a new one."""
SHARED_S = 1.0
"""How old a page may be that several get."""
WANTED_S = 60.0
"""The thread ends when nobody has asked for so long."""

log = structlog.get_logger()


class MetricsPage:
    """Thread-safe. ``make`` builds the page, ``streams`` tells how many run in this process."""

    def __init__(self, make: Callable[[], bytes], streams: Callable[[], int], clock: Clock) -> None:
        self._make = make
        self._streams = streams
        self._clock = clock
        self._lock = threading.Lock()
        self._pause = threading.Event()
        self._making = threading.Lock()
        self._shared_until = float("-inf")
        self._page = b""
        self._made_at = float("-inf")
        self._asked_at = float("-inf")
        self._thread: threading.Thread | None = None

    def get(self) -> bytes:
        """The page; at most `OLDEST_S` old. Raises what ``make`` raises."""
        now = self._clock.monotonic()
        with self._lock:
            self._asked_at = now
            page, made_at, shared_until = self._page, self._made_at, self._shared_until
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="metrics-page", daemon=True)
                self._thread.start()
        if now < shared_until or (self._many and now - made_at <= OLDEST_S):
            return page
        return self._renew()

    @property
    def _many(self) -> bool:
        return self._streams() > MANY_STREAMS

    def _renew(self) -> bytes:
        asked_at = self._clock.monotonic()
        first = self._making.acquire(blocking=False)
        if not first:
            self._making.acquire()
        try:
            with self._lock:
                if not first and asked_at - self._made_at < SHARED_S:
                    self._shared_until = self._made_at + SHARED_S
                    return self._page
            now = self._clock.monotonic()
            page = self._make()
            with self._lock:
                self._page, self._made_at = page, now
            return page
        finally:
            self._making.release()

    def _keep(self) -> None:
        while not self._pause.wait(EVERY_S):
            with self._lock:
                if self._clock.monotonic() - self._asked_at > WANTED_S:
                    self._thread = None
                    return
            if not self._many:  # it waits for the moment when there are, so that nobody else need
                continue
            try:
                self._renew()
            except Exception:  # whoever asks next makes it itself, and hears of the fault
                log.exception("metrics_page_failed")
