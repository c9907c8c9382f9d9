"""The queue as a few dicts: what every verb must do, job by job, without lanes, indexes or scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from queueing.batches import Batch, Batches
from queueing.job import CompleteStatus, EnqueueStatus, NewJob
from queueing.job_queue import QueueLimits
from queueing.lane import WINDOWS_S, Kind, Lane, all_lanes
from queueing.policy import LaneRank


@dataclass
class ModelJob:
    """One job; ``state`` as `JobQueue.job_state` says it."""

    job: NewJob
    arrival_ms: int
    state: str = "queued"
    attempts: int = 0
    generation: int = 0
    worker: str = ""
    lease_until_ms: int = 0
    tombstone: bool = False
    """Cancelled while leased, and its worker has not reported yet."""

    @property
    def lane(self) -> Lane:
        return self.job.lane


@dataclass
class QueueModel:
    """All jobs that ever were. ``deliveries``: (job id, outcome) in order, what front ends must have heard."""

    limits: QueueLimits
    ranks: Mapping[Lane, LaneRank]
    jobs: dict[str, ModelJob] = field(default_factory=dict)
    last_final: dict[str, int] = field(default_factory=dict)
    deliveries: list[tuple[str, str]] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)
    last_partial: dict[str, str] = field(default_factory=dict)
    """The id of each session's partial that was done or dropped last: of older ones nothing is remembered."""

    def in_state(self, state: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.state == state]

    def open_partial(self, session: str) -> ModelJob | None:
        """The session's one partial that is queued or leased."""
        found = [
            job
            for job in self.jobs.values()
            if job.job.session == session and job.job.kind is Kind.PARTIAL and job.state in ("queued", "leased")
        ]
        assert len(found) <= 1, "invariant: at most one partial of a session is queued or running"
        return found[0] if found else None

    def enqueue(self, new: NewJob, now_ms: int) -> tuple[EnqueueStatus, bool]:
        """The status, and whether a queued partial was superseded."""
        if new.id in self.jobs:
            return EnqueueStatus.DUPLICATE, False
        open_one = self.open_partial(new.session)
        if new.kind is Kind.PARTIAL:
            if new.segment <= self.last_final.get(new.session, -1):
                return EnqueueStatus.OBSOLETE, False
            if open_one and open_one.state == "leased":
                return EnqueueStatus.BUSY, False
            if open_one:
                open_one.job = replace(new, id=open_one.job.id)
                return EnqueueStatus.EXTENDED, False
        room = self.limits.max_queued_finals if new.kind is Kind.FINAL else self.limits.max_queued
        if len(self.in_state("queued")) >= room:
            return EnqueueStatus.FULL, False
        superseded = False
        if new.kind is not Kind.PARTIAL:
            superseded = open_one is not None and open_one.state == "queued"
            self._cancel(open_one)
            self.last_final[new.session] = max(new.segment, self.last_final.get(new.session, -1))
        self.jobs[new.id] = ModelJob(new, now_ms)
        return EnqueueStatus.QUEUED, superseded

    def next_jobs(self, now_ms: int, most: int, batches: Batches) -> list[ModelJob]:
        """What a claim must take: the first of all waiting jobs by rank, the next ones of its lane, and while there is
        room and the worker allows it those of the next smaller windows, the largest of these first."""
        waiting = self.in_state("queued")
        if not waiting:
            return []

        def order(job: ModelJob) -> tuple[int, float, str]:
            return (all_lanes().index(job.lane), self.ranks[job.lane].score(job.arrival_ms), job.job.id)

        overdue = {job.job.id: self.ranks[job.lane].overdue_ms(job.arrival_ms, now_ms) for job in waiting}
        late = [job for job in waiting if overdue[job.job.id] >= 0]
        if late:
            first = min(late, key=lambda job: (-overdue[job.job.id], *order(job)))
        else:
            tier = min(self.ranks[job.lane].tier for job in waiting)
            first = min(
                (job for job in waiting if self.ranks[job.lane].tier == tier),
                key=lambda job: (-self.ranks[job.lane].urgency(job.arrival_ms, now_ms), *order(job)),
            )
        bounds = batches.by_lane.get(first.lane, Batch(most))
        place = WINDOWS_S.index(first.lane.window_s)
        allowed = WINDOWS_S[max(0, place - bounds.smaller) : place + 1]
        company = [job for job in waiting if job.lane.kind is first.lane.kind and job.lane.window_s in allowed]
        company.sort(key=lambda job: (-job.lane.window_s, *order(job)))
        if first.attempts:
            return [first]  # whatever became of its attempts, it takes nobody along
        return [job for job in company[: min(most, bounds.most)] if not job.attempts]

    def claim(self, worker: str, now_ms: int, most: int, batches: Batches) -> list[ModelJob]:
        taken = self.next_jobs(now_ms, most, batches)
        for job in taken:
            job.state, job.worker = "leased", worker
            job.attempts += 1
            job.generation += 1
            job.lease_until_ms = now_ms + self.limits.lease_ms
        return taken

    def holds(self, job_id: str, generation: int) -> bool:
        job = self.jobs[job_id]
        return job.state == "leased" and job.generation == generation

    def complete(self, job_id: str, generation: int) -> CompleteStatus:
        job = self.jobs[job_id]
        if self.holds(job_id, generation):
            self._end(job, "done")
            return CompleteStatus.DONE
        return self._repeated(job, generation, {"done": CompleteStatus.DONE})

    def fail(self, job_id: str, generation: int, *, retry: bool) -> CompleteStatus:
        job = self.jobs[job_id]
        if not self.holds(job_id, generation):
            return self._repeated(job, generation, {"queued": CompleteStatus.REQUEUED, "dead": CompleteStatus.DEAD})
        if job.job.kind is not Kind.PARTIAL and retry and job.attempts < self.limits.max_attempts:
            job.state = "queued"
            return CompleteStatus.REQUEUED
        self._end(job, "dead")
        return CompleteStatus.DEAD

    def release(self, job_id: str, generation: int) -> bool:
        job = self.jobs[job_id]
        if job.generation == generation:
            job.tombstone = False
        if not self.holds(job_id, generation):
            return False
        job.state = "queued"
        job.attempts -= 1
        return True

    def renew(self, job_id: str, generation: int, now_ms: int) -> bool:
        if not self.holds(job_id, generation):
            return False
        self.jobs[job_id].lease_until_ms = now_ms + self.limits.lease_ms
        return True

    def cancel_partial(self, session: str) -> bool:
        open_one = self.open_partial(session)
        self._cancel(open_one)
        return open_one is not None

    def end_session(self, session: str) -> int:
        live = [job for job in self.jobs.values() if job.job.session == session and job.state in ("queued", "leased")]
        for job in live:
            self._cancel(job)
        self.ended.add(session)
        return len(live)

    def sweep(self, now_ms: int) -> None:
        for job in self.in_state("leased"):
            if job.lease_until_ms <= now_ms:
                if job.job.kind is not Kind.PARTIAL and job.attempts < self.limits.max_attempts:
                    job.state = "queued"
                else:
                    self._end(job, "dead")
        for job in self.in_state("queued"):
            bound = self.limits.stale_partial_ms if job.job.kind is Kind.PARTIAL else self.limits.max_wait_ms
            if now_ms - job.arrival_ms >= bound:
                self._end(job, "dead")

    def _end(self, job: ModelJob, state: str) -> None:
        job.state = state
        self.deliveries.append((job.job.id, state))
        if job.job.kind is Kind.PARTIAL:
            self.last_partial[job.job.session] = job.job.id

    def _cancel(self, job: ModelJob | None) -> None:
        if job:
            job.tombstone = job.state == "leased"
            job.state = "cancelled"

    def _repeated(self, job: ModelJob, generation: int, same: Mapping[str, CompleteStatus]) -> CompleteStatus:
        """The answer to a report by someone who does not hold the job: what ``same`` says for its own generation."""
        if job.generation != generation:
            return CompleteStatus.STALE
        if job.tombstone:
            job.tombstone = False
            return CompleteStatus.CANCELLED
        kept_when_dead = job.state == "dead" and job.job.kind is not Kind.PARTIAL
        forgotten = job.job.session in self.ended and not kept_when_dead
        older = job.job.kind is Kind.PARTIAL and self.last_partial.get(job.job.session) != job.job.id
        if forgotten or (older and job.state in ("done", "dead")):
            return CompleteStatus.STALE
        return same.get(job.state, CompleteStatus.STALE)
