"""Whether new streams are taken, and how often partials are asked for: by what the queue and Redis hold.

The pulse looks once a second (`Overload.look`); requests and streams read what it found, so a decision costs nothing.
A limit that was passed keeps refusing until its value has fallen well below: else every stream that ends would let one
in, and service would flap between bad and worse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from api.admission import Refusal
from queueing.backlog import Backlog
from sessions.codes import ErrorCode

RESUME_SHARE = 0.7
"""Streams are taken again when the predicted wait is below this share of its limit."""
MEMORY_FULL, MEMORY_FREE = 0.9, 0.85
"""Shares of Redis's memory from which on no new stream is taken, and below which they are again."""
MEMORY_EVERY = 2
"""Redis is asked for its memory at every so many looks."""
MEMORY_RETRY_S = 10
MAX_RETRY_S = 60
RISE, FALL = 0.5, 0.15
"""Share of the way to a new value that the predicted wait of partials goes at each look: up within two seconds, down
within ten, because a longer interval empties the queue at once and must not be taken back for it at once."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Load:
    """What streams need to know: how long a partial that is asked for now would wait, and who could decode it."""

    partial_wait_s: float = 0.0
    workers: int = 0


class Overload:
    """`look` belongs to one thread, everything else is for all."""

    def __init__(
        self, backlog: Callable[[], Backlog], memory_share: Callable[[], float | None], *, max_wait_s: float
    ) -> None:
        """``memory_share``: as `queueing.memory.memory_share`. ``max_wait_s``: 0 is no limit."""
        self._backlog = backlog
        self._memory_share = memory_share
        self._max_wait_s = max_wait_s
        self._looks = 0
        self.load = Load()
        self.final_wait_s: float | None = None
        """How long a final that comes now waits to be begun; None while no worker is there."""
        self.memory: float | None = None
        """Share of Redis's memory in use; None where nothing limits it."""
        self.refuses_for_wait = self.refuses_for_memory = False

    def look(self, workers: int) -> None:
        """See how much waits for so many workers. Raises `QueueUnavailable`."""
        backlog = self._backlog()
        if self._looks % MEMORY_EVERY == 0:
            self.memory = self._memory_share()
        self._looks += 1
        wait_ms, partial_ms = backlog.final_wait_ms(workers), backlog.partial_wait_ms(workers)
        self.final_wait_s = None if wait_ms is None else wait_ms / 1000
        before_s, now_s = self.load.partial_wait_s, 0.0 if partial_ms is None else partial_ms / 1000
        step = RISE if now_s > before_s else FALL
        self.load = Load(round(before_s + step * (now_s - before_s), 3), workers)
        self._decide()

    def refusal(self) -> Refusal | None:
        """Why a new stream is not taken now; None when it is."""
        if self.refuses_for_memory:
            return Refusal(503, "redis_memory", ErrorCode.OVERLOADED, self.memory_problem, retry_after_s=MEMORY_RETRY_S)
        wait_s = self.final_wait_s
        if not self.refuses_for_wait or wait_s is None:
            return None
        drain_s = math.ceil(wait_s - RESUME_SHARE * self._max_wait_s)
        return Refusal(
            503,
            "predicted_wait",
            ErrorCode.OVERLOADED,
            f"a final would wait {wait_s:.0f} s for a worker (HEARLINE_MAX_PREDICTED_WAIT_S is {self._max_wait_s:g}); "
            "try again later",
            retry_after_s=min(MAX_RETRY_S, max(1, drain_s)),
        )

    @property
    def memory_problem(self) -> str:
        """What readiness says of Redis's memory; empty while there is enough."""
        if not self.refuses_for_memory:
            return ""
        return f"Redis has {self.memory or 0:.0%} of its memory in use; new streams are taken below {MEMORY_FREE:.0%}"

    def _decide(self) -> None:
        wait_s, memory = self.final_wait_s, self.memory
        limit_s = self._max_wait_s * (RESUME_SHARE if self.refuses_for_wait else 1.0)
        for_wait = self._max_wait_s > 0 and wait_s is not None and wait_s > limit_s
        for_memory = memory is not None and memory > (MEMORY_FREE if self.refuses_for_memory else MEMORY_FULL)
        if (for_wait, for_memory) != (self.refuses_for_wait, self.refuses_for_memory):
            log.warning(
                "new_streams", refused=for_wait or for_memory, predicted_wait_s=wait_s, redis_memory_share=memory
            )
        self.refuses_for_wait, self.refuses_for_memory = for_wait, for_memory


class OverloadCollector(Collector):
    """What admission and the pace of partials go by, as this process sees it."""

    def __init__(self, overload: Overload) -> None:
        self._overload = overload

    def collect(self) -> Iterable[Metric]:
        """Metric families; none for what is not known."""
        overload = self._overload
        if overload.final_wait_s is not None:
            yield GaugeMetricFamily(
                "hearline_admission_wait_seconds",
                "How long a final that comes now waits to be begun, as admission reckons.",
                value=overload.final_wait_s,
            )
        yield GaugeMetricFamily(
            "hearline_partial_wait_seconds",
            "How long a partial that comes now waits, smoothed: the interval between partials grows with it.",
            value=overload.load.partial_wait_s,
        )
        if overload.memory is not None:
            yield GaugeMetricFamily(
                "hearline_redis_memory_ratio", "Memory that Redis uses over its limit.", value=overload.memory
            )
        refusing = GaugeMetricFamily(
            "hearline_streams_refusing", "1 while new streams are refused for this reason.", labels=["reason"]
        )
        refusing.add_metric(["predicted_wait"], float(overload.refuses_for_wait))
        refusing.add_metric(["redis_memory"], float(overload.refuses_for_memory))
        yield refusing
