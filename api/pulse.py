"""One thread per web process that looks after what all its streams share.

Every second it asks Redis who works, renews the streams' slots, and keeps a snapshot from which readiness,
admission and the page answer without touching Redis. When the last worker goes or the first one comes, every
stream is told; so a hundred waiting streams cost one question.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import redis
import structlog

from queueing.clock import Clock
from queueing.errors import QueueError

PULSE_S = 1.0
REFRESH_EVERY = 5
"""Slots are renewed at every so many pulses; they last 30 s."""
STALE_S = 4.0
"""A snapshot older than this says that Redis does not answer."""
PATIENCE_S = 0.5
"""How long a stale snapshot may take to be renewed before it is believed: this process may have stood still itself."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker as its heartbeat describes it; ``ready``: model loaded and heartbeat fresh."""

    id: str
    state: str
    model: str
    ready: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the latest pulse found. ``taken_s`` is monotonic; ``error`` is empty when Redis answered."""

    taken_s: float
    workers: tuple[WorkerView, ...] = ()
    policy: str = "unknown"
    redis_ahead_ms: float = 0.0
    error: str = ""

    @property
    def workers_ready(self) -> int:
        return sum(worker.ready for worker in self.workers)


@dataclass(frozen=True, slots=True)
class PulseSources:
    """What a pulse asks. Each may raise `QueueError` or `redis.RedisError`."""

    workers: Callable[[], Sequence[WorkerView]]
    policy: Callable[[], str]
    redis_time_ms: Callable[[], int]
    refresh_slots: Callable[[Collection[str]], object]
    live_sessions: Callable[[], Collection[str]]
    catch_up: Callable[[], None]
    """Called when Redis has answered, for what waited for that."""
    report: Callable[[], None]
    """Called at every pulse, to update gauges and tidy up."""
    measure: Callable[[int], None] = lambda _workers: None
    """Called at every pulse with the number of ready workers, to see how much work waits for them."""


class Pulse:
    """The thread and its latest snapshot. ``on_workers(alive)`` is called from the thread at each change."""

    def __init__(self, sources: PulseSources, clock: Clock, on_workers: Callable[[bool], None]) -> None:
        self._sources = sources
        self._clock = clock
        self._on_workers = on_workers
        self._snapshot: Snapshot | None = None
        self._alive: bool | None = None
        self._beats = 0
        self._stop = threading.Event()
        self._due = threading.Event()
        """Set when a beat is wanted at once."""
        self._renewed = threading.Condition()
        self._doubted: tuple[Snapshot, float] | None = None
        """The latest snapshot found stale, and until when it was waited for."""
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._stop.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(PULSE_S)

    @property
    def snapshot(self) -> Snapshot | None:
        """The latest snapshot; None before the first."""
        return self._snapshot

    @property
    def workers_alive(self) -> bool | None:
        """Whether a worker was ready at the last answer of Redis; None while unknown."""
        return self._alive

    @property
    def redis_error(self) -> str:
        """Why Redis cannot be used now; empty when it can."""
        snapshot = self._snapshot
        if snapshot is None:
            return "Redis has not been asked yet"
        if self._age_s(snapshot) > STALE_S:
            snapshot = self._wait_for_another_than(snapshot)
        age_s = self._age_s(snapshot)
        if snapshot.error or age_s <= STALE_S:
            return snapshot.error
        return f"Redis has not answered for {age_s:.0f} s"

    def _age_s(self, snapshot: Snapshot) -> float:
        return self._clock.monotonic() - snapshot.taken_s

    def _wait_for_another_than(self, stale: Snapshot) -> Snapshot:
        """A newer snapshot if there is one soon; each stale one is waited for once, whoever asks."""
        with self._renewed:
            if self._doubted is None or self._doubted[0] is not stale:
                self._doubted = (stale, self._clock.monotonic() + PATIENCE_S)
                self._due.set()
            left_s = self._doubted[1] - self._clock.monotonic()
            self._renewed.wait_for(lambda: self._snapshot is not stale, timeout=max(0.0, left_s))
            return self._snapshot or stale

    @property
    def known_redis_error(self) -> str:
        """As `redis_error`, but empty until Redis was asked for the first time."""
        return self.redis_error if self._snapshot is not None else ""

    @property
    def policy(self) -> str:
        return self._snapshot.policy if self._snapshot else "unknown"

    def redis_now_ms(self) -> float:
        """Redis' clock, estimated, in milliseconds since the Unix epoch; for measuring delays."""
        ahead_ms = self._snapshot.redis_ahead_ms if self._snapshot else 0.0
        return self._clock.wall_ms() + ahead_ms

    def beat(self) -> None:
        """One look; the thread calls this, and so may a test."""
        self._look()
        with self._renewed:
            self._renewed.notify_all()
        self._sources.report()

    def _look(self) -> None:
        previous = self._snapshot
        try:
            before_ms = self._clock.wall_ms()
            ahead_ms = self._sources.redis_time_ms() - (before_ms + self._clock.wall_ms()) / 2
            workers = tuple(self._sources.workers())
            policy = self._sources.policy()
            self._sources.measure(sum(worker.ready for worker in workers))
            if self._beats % REFRESH_EVERY == 0:
                self._sources.refresh_slots(self._sources.live_sessions())
            self._beats += 1
        except (QueueError, redis.RedisError) as error:
            if previous is None or not previous.error:
                log.warning("redis_lost", error=str(error))
            self._beats = 0  # renew the slots as soon as Redis is back
            self._snapshot = Snapshot(
                self._clock.monotonic(),
                previous.workers if previous else (),
                previous.policy if previous else "unknown",
                previous.redis_ahead_ms if previous else 0.0,
                error=str(error) if isinstance(error, QueueError) else f"Redis does not answer: {error}",
            )
        else:
            if previous is not None and previous.error:
                log.info("redis_back")
            # As of the latest answer: on a machine that is too busy the questions themselves may take seconds.
            self._snapshot = Snapshot(self._clock.monotonic(), workers, policy, ahead_ms)
            alive = self._snapshot.workers_ready > 0
            if alive != self._alive:
                if alive or self._alive:
                    log.info("workers_alive" if alive else "workers_gone", workers=len(workers))
                else:
                    log.debug("no_workers_yet", workers=len(workers))
                self._alive = alive
                self._on_workers(alive)
            self._sources.catch_up()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.beat()
            except Exception:  # whatever a foreign worker wrote into its record: readiness must not freeze on it
                log.exception("pulse_failed")
            self._due.wait(PULSE_S)
            self._due.clear()
