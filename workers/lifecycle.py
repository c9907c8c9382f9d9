"""From start to exit: what a worker is doing, how it is watched, how it ends.

```
starting -> loading -> ready <-> busy -> draining -> exit
```

SIGTERM or SIGINT once: claim nothing more, finish the running decode within ``drain_s``, else give its jobs back; an
idle worker ends at once. Twice: end now; the leases run out and others take over. A decode longer than
``max_decode_s`` is taken for hung: no thread can be stopped inside the model, so the process ends itself and its
leases run out.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import structlog

from queueing.clock import Clock
from queueing.errors import QueueUnavailable
from queueing.job import LeasedJob

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_SETTINGS = 2
"""The settings are wrong, the model's included: the same start fails again, so a supervisor should not repeat it."""
EXIT_HUNG = 70
"""EX_SOFTWARE of sysexits.h: a decode did not return."""

TICK_S = 0.25
"""How often the watch looks at the decode and the drain deadline."""

LAST_WORDS_S = 2.0
"""How long an ending worker waits for Redis, to give its jobs back and to take its leave, each: one that hangs would
hold it for ten seconds, and `hearline up` kills it five after the drain time."""

LOG_EVERY = 20
"""Failed attempts in a row per log line: while Redis is away a line for each would bury all others."""

log = structlog.get_logger()


class WorkerState(StrEnum):
    """What a worker is doing; the front ends count ``ready`` and ``busy`` as able to work."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"
    BUSY = "busy"
    DRAINING = "draining"


class Stop:
    """The two stages of the end. `request` is called by signal handlers and may be called from any thread."""

    def __init__(self) -> None:
        self.draining = threading.Event()
        self.forced = threading.Event()

    def request(self) -> None:
        """First call: drain. Any further call: end now."""
        if self.draining.is_set():
            self.forced.set()
        self.draining.set()


class Activity:
    """What the worker is doing now, written by the loop, read by heartbeat and watch. Thread-safe."""

    def __init__(self, clock: Clock, stop: Stop) -> None:
        self._clock = clock
        self._stop = stop
        self._lock = threading.Lock()
        self._state = WorkerState.STARTING
        self._may_end = True
        self._decoding_since_s: float | None = None
        self._jobs = 1
        self.last_decode_ms = 0.0
        self.decodes = 0

    @property
    def state(self) -> WorkerState:
        """The state; a worker told to stop is ``draining`` whatever it does."""
        if self._stop.draining.is_set():
            return WorkerState.DRAINING
        with self._lock:
            if self._state is WorkerState.READY and not self._may_end:
                return WorkerState.BUSY
            return self._state

    def enter(self, state: WorkerState) -> None:
        """Reached ``starting``, ``loading`` or ``ready``."""
        with self._lock:
            self._state = state

    def begin_work(self) -> bool:
        """About to claim: from now on the process must not end unasked. False when it has been told to stop."""
        with self._lock:
            if self._stop.draining.is_set():
                return False
            self._may_end = False
            return True

    def end_work(self) -> None:
        """Nothing is held: the process may end at any moment."""
        with self._lock:
            self._may_end = True

    @property
    def may_end(self) -> bool:
        with self._lock:
            return self._may_end

    def begin_decode(self, jobs: int = 1) -> None:
        """The model is called for a batch of ``jobs``."""
        with self._lock:
            self._decoding_since_s = self._clock.monotonic()
            self._jobs = jobs

    def end_decode(self) -> float:
        """The model has returned; returns the seconds it took."""
        with self._lock:
            assert self._decoding_since_s is not None, "begin_decode comes first"
            seconds = self._clock.monotonic() - self._decoding_since_s
            self._decoding_since_s = None
            self.last_decode_ms = seconds * 1000
            self.decodes += 1
            return seconds

    def decoding_s(self) -> float:
        """Seconds since the running decode began, per job; 0 when none runs."""
        with self._lock:
            if self._decoding_since_s is None:
                return 0.0
            return (self._clock.monotonic() - self._decoding_since_s) / self._jobs


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """``max_decode_s``: a decode that takes longer for each of its jobs is hung. ``drain_s``: grace of a running
    decode after the first signal."""

    max_decode_s: float
    drain_s: float


class Watch:
    """The main thread's job while the loop works in its own: deadlines and the exit."""

    def __init__(
        self,
        activity: Activity,
        stop: Stop,
        limits: WatchLimits,
        clock: Clock,
        *,
        held: Callable[[], Sequence[LeasedJob]],
        release: Callable[[Sequence[LeasedJob]], object],
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        self._activity = activity
        self._stop = stop
        self._limits = limits
        self._clock = clock
        self._held = held
        self._release = release
        self._on_drain = on_drain

    def run(self, finished: threading.Event) -> int | None:
        """Return when the loop has ``finished`` (None) or the process must end without it (the exit status)."""
        drain_since_s: float | None = None
        while not finished.wait(TICK_S if drain_since_s is None else TICK_S / 5):
            if self._stop.forced.is_set():
                log.warning("forced_to_end", held=len(self._held()))
                return EXIT_FAILED
            decoding_s = self._activity.decoding_s()
            if decoding_s > self._limits.max_decode_s:
                log.error(
                    "decode_hung",
                    per_job_s=round(decoding_s, 1),
                    max_decode_s=self._limits.max_decode_s,
                    jobs=[lease.job.id for lease in self._held()],
                )
                return EXIT_HUNG
            if not self._stop.draining.is_set():
                continue
            if drain_since_s is None:
                drain_since_s = self._clock.monotonic()
                log.info("draining", held=len(self._held()))
                self._on_drain()
            if self._activity.may_end:
                return EXIT_DONE
            if self._clock.monotonic() - drain_since_s >= self._limits.drain_s:
                self._give_back()
                return EXIT_DONE
        return None

    def _give_back(self) -> None:
        leases = self._held()

        def give_back() -> None:
            try:
                self._release(leases)
                log.warning("drain_time_over", released=len(leases))
            except QueueUnavailable as error:
                log.error("release_failed", reason=str(error), held=len(leases))

        if not said_in_time(give_back):
            log.error("release_failed", reason=f"no answer of Redis within {LAST_WORDS_S:.0f} s", held=len(leases))


def said_in_time(last_words: Callable[[], None]) -> bool:
    """Whether the call returned within `LAST_WORDS_S`; else its thread is left to end with the process."""
    thread = threading.Thread(target=last_words, name="last-words", daemon=True)
    thread.start()
    thread.join(LAST_WORDS_S)
    return not thread.is_alive()


def backoff_s(attempt: int, rng: random.Random, *, first_s: float = 0.05, most_s: float = 5.0) -> float:
    """Pause before attempt ``attempt`` + 1 (from 0): doubling to ``most_s``, jittered over its upper half."""
    full: float = min(first_s * 2 ** min(attempt, 30), most_s)
    return full * rng.uniform(0.5, 1.0)
