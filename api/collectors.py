"""What is read at scrape time: the queue from Redis, the web processes from the operating system."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

import psutil
import redis
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from queueing.clock import Clock
from queueing.errors import QueueError

CACHE_S = 1.0
ANSWER_S = 4.0
"""How long an answer of Redis is waited for: as long as readiness believes the last one (`api.pulse.STALE_S`)."""


@dataclass(frozen=True, slots=True)
class LaneView:
    """One lane; an empty one has depth 0 and age 0."""

    kind: str
    window_s: int
    depth: int
    oldest_age_s: float


@dataclass(frozen=True, slots=True)
class QueueView:
    """The queue at one moment, as metrics and the page show it. ``outcomes`` is keyed by (kind, outcome)."""

    policy: str
    lanes: tuple[LaneView, ...]
    leased: int
    dead: int
    streams: int
    outcomes: Mapping[tuple[str, str], int]
    costs_ms: Mapping[tuple[str, int], float]
    predicted_wait_s: float | None = None
    """Of a final that comes now (`queueing.stats`); None while no worker can take work."""

    @property
    def depth(self) -> int:
        return sum(lane.depth for lane in self.lanes)

    @property
    def oldest_age_s(self) -> float:
        return max((lane.oldest_age_s for lane in self.lanes), default=0.0)


class QueueReader:
    """Reads the queue at most once a second, however many scrapers and pages ask. Thread-safe."""

    def __init__(self, read: Callable[[], QueueView], clock: Clock, *, answer_s: float = ANSWER_S) -> None:
        self._read = read
        self._clock = clock
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._view: QueueView | None = None
        self._read_at_s = 0.0
        self._reading: Future[QueueView | None] | None = None

    def view(self) -> QueueView | None:
        """The queue, at most `CACHE_S` old; None when Redis does not answer, or not within `ANSWER_S`. A connection
        gives a Redis that hangs more time than who scrapes metrics has, so a thread of its own waits for that."""
        with self._lock:
            reading = self._reading
            if reading is None:
                if self._view is not None and self._clock.monotonic() - self._read_at_s <= CACHE_S:
                    return self._view
                reading = Future()
                threading.Thread(target=self._read_into, args=(reading,), name="queue-reader", daemon=True).start()
                self._reading = reading
        try:
            return reading.result(self._answer_s)
        except TimeoutError:
            return None

    def _read_into(self, reading: Future[QueueView | None]) -> None:
        view, fault = None, None
        try:
            view = self._read()
        except (QueueError, redis.RedisError):
            pass
        except Exception as error:  # noqa: BLE001  # raised again where the view is waited for
            fault = error
        with self._lock:
            self._view, self._read_at_s, self._reading = view, self._clock.monotonic(), None
        if fault is None:
            reading.set_result(view)
        else:
            reading.set_exception(fault)


class QueueCollector(Collector):
    """Gauges of the queue, the same from whichever process is scraped."""

    def __init__(self, reader: QueueReader, workers_ready: Callable[[], int], redis_error: Callable[[], str]) -> None:
        self._reader = reader
        self._workers_ready = workers_ready
        self._redis_error = redis_error

    def collect(self) -> Iterable[Metric]:
        """Metric families; only ``hearline_redis_up`` while Redis does not answer."""
        # Asking a Redis that hangs would hold up the scrape, so the pulse's word is taken first.
        view = None if self._redis_error() else self._reader.view()
        yield GaugeMetricFamily("hearline_redis_up", "1 while Redis answers.", value=float(view is not None))
        if view is None:
            return
        yield GaugeMetricFamily(
            "hearline_workers_ready", "Workers with a loaded model and a fresh heartbeat.", value=self._workers_ready()
        )
        yield from _lanes(view)
        yield GaugeMetricFamily("hearline_jobs_leased", "Jobs that workers hold.", value=view.leased)
        yield GaugeMetricFamily("hearline_jobs_dead", "Jobs in the dead set.", value=view.dead)
        yield GaugeMetricFamily(
            "hearline_stream_slots", "Stream slots taken, over all front ends of the queue.", value=view.streams
        )
        outcomes = CounterMetricFamily("hearline_jobs", "Jobs by kind and outcome.", labels=["kind", "outcome"])
        for (kind, outcome), count in sorted(view.outcomes.items()):
            outcomes.add_metric([kind, outcome], count)
        yield outcomes
        costs = GaugeMetricFamily("hearline_lane_cost_seconds", "Learned cost of a job.", labels=["kind", "window_s"])
        for (kind, window), cost_ms in sorted(view.costs_ms.items()):
            costs.add_metric([kind, str(window)], cost_ms / 1000)
        yield costs
        if view.predicted_wait_s is not None:
            yield GaugeMetricFamily(
                "hearline_predicted_wait_seconds",
                "How long a final that comes now waits to be begun.",
                value=view.predicted_wait_s,
            )
        policy = GaugeMetricFamily("hearline_policy", "1 for the scheduling policy in force.", labels=["policy"])
        policy.add_metric([view.policy], 1)
        yield policy


def _lanes(view: QueueView) -> Iterable[Metric]:
    depth = GaugeMetricFamily("hearline_lane_depth", "Jobs that wait in a lane.", labels=["kind", "window_s"])
    age = GaugeMetricFamily(
        "hearline_lane_oldest_age_seconds", "Age of the lane's oldest waiting job.", labels=["kind", "window_s"]
    )
    for lane in view.lanes:
        labels = [lane.kind, str(lane.window_s)]
        depth.add_metric(labels, lane.depth)
        age.add_metric(labels, lane.oldest_age_s)
    yield depth
    yield age
    yield GaugeMetricFamily("hearline_queue_depth", "Jobs that wait.", value=view.depth)
    yield GaugeMetricFamily("hearline_queue_oldest_age_seconds", "Age of the oldest job.", value=view.oldest_age_s)


class ProcessCollector(Collector):
    """CPU, memory and threads of the gunicorn parent ``root_pid`` and its web processes, summed."""

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid

    def collect(self) -> Iterable[Metric]:
        """Metric families; processes that end meanwhile are left out."""
        cpu_s = memory = threads = files = count = 0.0
        for process in self._family():
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    cpu_s += times.user + times.system
                    memory += process.memory_info().rss
                    threads += process.num_threads()
                    files += process.num_fds()
                    count += 1
            except psutil.Error:
                continue
        yield CounterMetricFamily("hearline_web_cpu_seconds", "CPU time of the web processes that live.", value=cpu_s)
        yield GaugeMetricFamily("hearline_web_resident_memory_bytes", "Resident memory of the web.", value=memory)
        yield GaugeMetricFamily("hearline_web_threads", "Threads of the web processes.", value=threads)
        yield GaugeMetricFamily("hearline_web_open_files", "Open files and sockets of the web.", value=files)
        yield GaugeMetricFamily("hearline_web_processes", "Web processes, with their parent.", value=count)

    def _family(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._root_pid)
            return [root, *root.children(recursive=True)]
        except psutil.Error:
            return []
