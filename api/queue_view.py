"""The queue's own words turned into what readiness, metrics and the page show."""

from __future__ import annotations

from api.collectors import LaneView, QueueView
from api.pulse import WorkerView
from queueing.job_queue import JobQueue
from queueing.registry import WorkerInfo
from sessions.admission import StreamSlots

FRESH_MS = 6_000
"""Three heartbeat intervals of a worker: without a sign for longer, it counts as gone."""

ABLE = frozenset({"ready", "busy"})
"""States in which a worker has loaded its model and takes jobs."""


def worker_view(worker: WorkerInfo) -> WorkerView:
    """A worker as readiness and the page see it."""
    return WorkerView(
        id=worker.id,
        state=worker.state,
        model=str(worker.info.get("model", "")),
        ready=worker.state in ABLE and worker.age_ms <= FRESH_MS,
    )


def worker_views(queue: JobQueue) -> tuple[WorkerView, ...]:
    """Every worker with a live record. Raises `QueueUnavailable`."""
    return tuple(worker_view(worker) for worker in queue.workers())


def policy_name(queue: JobQueue) -> str:
    """The policy in force. Raises `QueueUnavailable`."""
    return queue.policy().name


def queue_view(queue: JobQueue, slots: StreamSlots) -> QueueView:
    """Everything the collectors show of the queue. Raises `QueueUnavailable`."""
    stats = queue.stats()
    wait_ms = stats.predicted_wait_ms
    return QueueView(
        policy=stats.policy.name,
        lanes=tuple(
            LaneView(lane.lane.kind.value, lane.lane.window_s, lane.depth, (lane.oldest_age_ms or 0) / 1000)
            for lane in stats.lanes
        ),
        leased=len(stats.leases),
        dead=stats.dead,
        streams=slots.count(),
        outcomes={_pair(name): count for name, count in stats.counts.items()},
        costs_ms={(lane.lane.kind.value, lane.lane.window_s): lane.cost_ms for lane in stats.lanes if lane.learned},
        predicted_wait_s=None if wait_ms is None else wait_ms / 1000,
    )


def _pair(name: str) -> tuple[str, str]:
    """``KIND:OUTCOME`` as two labels."""
    kind, _, outcome = name.partition(":")
    return kind, outcome
