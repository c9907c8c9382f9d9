"""The queue's typed facade: the one caller of the scripts.

A verb that looks at the time takes ``now_ms``: 0 (as in production) means Redis time, a test may pass its own.
Any verb raises `QueueUnavailable` when Redis cannot be reached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

import redis

from queueing import records, verbs
from queueing.backlog import Backlog, read_backlog
from queueing.batches import NO_BATCHES, Batches
from queueing.connect import WAIT_LIMIT_S
from queueing.costs import prior_cost_ms
from queueing.errors import BadJob
from queueing.job import CompleteStatus, Delivery, Enqueued, EnqueueStatus, LeasedJob, NewJob, Renewed
from queueing.keys import FRONT_CHANNEL_PREFIX, QueueKeys
from queueing.lane import Kind, Lane
from queueing.limits import MAX_BATCH, SWEEP_BATCH, QueueLimits, SweepReport
from queueing.policies import DEFAULT_POLICY
from queueing.policy_store import InstalledPolicy, PolicyChange, PolicyStore
from queueing.records import Completion, JobRecord, text
from queueing.registry import WorkerInfo, WorkerRegistry
from queueing.scripts import Scripts, guarded
from queueing.settings import QueueSettings
from queueing.stats import QueueReader, QueueStats

__all__ = ["JobQueue", "QueueLimits", "SweepReport"]


class JobQueue:
    """One named queue in one Redis. Thread-safe: it holds no state but the client.

    ``policy`` is installed when Redis holds none (a fresh queue, or a Redis that lost its data); otherwise
    Redis decides. Raises `UnknownPolicy`.
    """

    def __init__(
        self,
        client: redis.Redis,
        name: str = "main",
        limits: QueueLimits | None = None,
        policy: str = DEFAULT_POLICY,
    ) -> None:
        self.keys = QueueKeys(name)
        self.limits = limits or QueueLimits()
        self._client = client
        self._scripts = Scripts(client, self.keys)
        self._policies = PolicyStore(client, self.keys, self._scripts, policy)
        self._registry = WorkerRegistry(client, self.keys, self._scripts)
        self._reader = QueueReader(client, self.keys, self._policies, self._registry)

    @classmethod
    def of(cls, client: redis.Redis, settings: QueueSettings) -> Self:
        """The queue that a program's settings name."""
        return cls(client, settings.queue, QueueLimits.of(settings), settings.policy)

    def enqueue(self, job: NewJob, *, now_ms: int = 0) -> Enqueued:
        """Queue a job (one round trip). A final removes its session's queued partial and makes a partial
        that is being decoded obsolete; a partial extends the session's queued one in place.

        Raises `BadJob` for a job that no worker could decode.
        """
        lane = records.checked_lane(job)
        code, superseded = self._policies.run(
            verbs.Enqueue(
                now_ms=now_ms,
                id=job.id,
                session=job.session,
                kind=job.kind.value,
                segment=job.segment,
                lane=lane.name,
                prior_cost_ms=prior_cost_ms(lane),
                max_queued=self.limits.max_queued_finals if job.kind is Kind.FINAL else self.limits.max_queued,
                job_ttl_ms=self.limits.job_ttl_ms,
                tombstone_ms=self.limits.tombstone_ms,
                fields=records.encode_fields(job),
            )
        )
        return Enqueued(EnqueueStatus(text(code).lower()), superseded=bool(superseded))

    def claim(
        self,
        worker: str,
        nonce: str,
        *,
        max_jobs: int = 1,
        batches: Batches = NO_BATCHES,
        lanes: Sequence[Lane] | None = None,
        now_ms: int = 0,
    ) -> tuple[LeasedJob, ...]:
        """Lease the most urgent job and up to ``max_jobs`` - 1 companions (one round trip; empty when nothing waits).

        Companions are the next jobs of its lane, at most as many as ``batches`` says of the lane; then, if that
        allows it, those of the next smaller windows. Nothing waits for company. Each job keeps its own ``lane``.
        The same (worker, nonce) again returns the same jobs, as far as the worker still holds them.

        A worker that restricts itself to ``lanes`` may use up a wake-up meant for others, who then notice the
        work at the end of their own wait. Raises `BadJob` for names or a ``max_jobs`` that cannot be.
        """
        records.check_name("worker", worker)
        records.check_name("nonce", nonce)
        if not 1 <= max_jobs <= MAX_BATCH:
            raise BadJob(f"max_jobs is {max_jobs}, a claim takes 1 to {MAX_BATCH} jobs")
        _, *jobs = self._policies.run(
            verbs.Claim(
                now_ms=now_ms,
                worker=worker,
                nonce=nonce,
                max_jobs=max_jobs,
                lease_ms=self.limits.lease_ms,
                batches=batches.text,
                lanes=tuple(lane.name for lane in lanes or ()),
            )
        )
        return tuple(records.decode_leased(job) for job in jobs)

    def wait(self, timeout_s: float) -> bool:
        """Block until work may be ready or the time is up (at most `connect.WAIT_LIMIT_S`); True when woken.

        A wake-up says that a claim is worth a try, not that it will find work.
        """
        socket_timeout = self._client.connection_pool.connection_kwargs.get("socket_timeout")
        limit = min(timeout_s, WAIT_LIMIT_S, 0.8 * socket_timeout if socket_timeout else WAIT_LIMIT_S)
        with guarded():
            if limit <= 0:
                return self._client.lpop(self.keys.wake) is not None
            return self._client.blpop([self.keys.wake], timeout=limit) is not None

    def renew(self, leases: Sequence[LeasedJob], *, now_ms: int = 0) -> Renewed:
        """Extend the leases; returns those that were not extended: lost, or of a cancelled job."""
        if not leases:
            return Renewed()
        _, *lost = self._scripts.run(
            verbs.Renew(
                now_ms=now_ms, lease_ms=self.limits.lease_ms, job_ttl_ms=self.limits.job_ttl_ms, held=_held(leases)
            )
        )
        return Renewed.of(leases, [int(place) for place in lost])

    def complete(
        self, lease: LeasedJob, result: Mapping[str, object], *, decode_ms: float, learn: bool = True, now_ms: int = 0
    ) -> CompleteStatus:
        """Publish the result and release the lease, once (one round trip). A final becomes a durable event.

        ``decode_ms`` is this job's share of a worker's time: a batch's decode time divided by its jobs. Without
        ``learn`` it leaves the lane's cost as it is: the job never reached the model.
        Repeated by the same generation after a lost reply it is DONE again and publishes nothing.
        Raises `BadJob` for a result that is not JSON or is over `records.MAX_RESULT_BYTES`.
        """
        (status,) = self.complete_all([Completion.of(lease, result, decode_ms=decode_ms, learn=learn)], now_ms=now_ms)
        return status

    def complete_all(self, completions: Sequence[Completion], *, now_ms: int = 0) -> tuple[CompleteStatus, ...]:
        """`complete` for the jobs of a batch, in one round trip: each once, whatever becomes of the others."""
        replies = self._scripts.run_all([completion.verb(self.limits, now_ms) for completion in completions])
        return tuple(CompleteStatus(text(code).lower()) for (code,) in replies)

    def fail(
        self, lease: LeasedJob, code: str, message: str, *, retry: bool = True, keep: bool = True, now_ms: int = 0
    ) -> CompleteStatus:
        """Report a failed decode: REQUEUED while attempts remain and ``retry``; else DEAD with an error event
        (a partial is just dropped, with an error delivery so that its session may ask again). Without ``keep`` no
        dead job is left to the operator: its client asked for what cannot be."""
        (status,) = self._policies.run(
            verbs.Fail(
                now_ms=now_ms,
                id=lease.job.id,
                session=lease.job.session,
                generation=lease.generation,
                retry=int(retry),
                error_code=code,
                message=message[: records.MAX_MESSAGE_CHARS],
                max_attempts=self.limits.max_attempts,
                front_prefix=FRONT_CHANNEL_PREFIX,
                events_ttl_ms=self.limits.events_ttl_ms,
                max_events=self.limits.max_events,
                job_ttl_ms=self.limits.job_ttl_ms,
                dead_ttl_ms=self.limits.dead_ttl_ms,
                max_dead=self.limits.max_dead,
                keep=int(keep),
            )
        )
        return CompleteStatus(text(status).lower())

    def release(self, leases: Sequence[LeasedJob]) -> int:
        """Give jobs back unharmed (a draining worker): they keep their age and the attempt is not counted."""
        if not leases:
            return 0
        _, count = self._policies.run(verbs.Release(job_ttl_ms=self.limits.job_ttl_ms, held=_held(leases)))
        return int(count)

    def cancel_partial(self, session: str) -> bool:
        """Remove the session's queued partial, or make the one being decoded obsolete."""
        (code,) = self._scripts.run(verbs.CancelPartial(session=session, tombstone_ms=self.limits.tombstone_ms))
        return text(code) != "NONE"

    def cancel_session(self, session: str, *, keep_events: bool = False) -> int:
        """Remove every queued job of the session, make leased ones obsolete, delete its events (``keep_events``: not
        yet, for its client may have missed the end); returns the count. Every session ends with this call."""
        verb = verbs.CancelSession(session=session, tombstone_ms=self.limits.tombstone_ms, keep=int(keep_events))
        _, count = self._scripts.run(verb)
        return int(count)

    def adopt(self, session: str, front: str) -> int:
        """What becomes of the session's jobs that wait or run is told to ``front`` from now on; returns their count."""
        _, count = self._scripts.run(verbs.Adopt(session=session, front=front))
        return int(count)

    def sweep(self, *, now_ms: int = 0) -> SweepReport:
        """Requeue or bury jobs whose lease ran out, drop partials that waited too long. Any number may run at once."""
        _, *counts = self._policies.run(
            verbs.Sweep(
                now_ms=now_ms,
                batch=SWEEP_BATCH,
                max_attempts=self.limits.max_attempts,
                stale_partial_ms=self.limits.stale_partial_ms,
                max_wait_ms=self.limits.max_wait_ms,
                front_prefix=FRONT_CHANNEL_PREFIX,
                events_ttl_ms=self.limits.events_ttl_ms,
                max_events=self.limits.max_events,
                job_ttl_ms=self.limits.job_ttl_ms,
                dead_ttl_ms=self.limits.dead_ttl_ms,
                max_dead=self.limits.max_dead,
            )
        )
        requeued, dead, dropped, waiting, leased, more = (int(count) for count in counts)
        return SweepReport(requeued, dead, dropped, waiting, leased, bool(more))

    def events(self, session: str, *, after: str | None = None) -> tuple[Delivery, ...]:
        """The session's durable events after the event id ``after``, oldest first."""
        return self._reader.events(session, after)

    def job(self, job_id: str) -> JobRecord | None:
        """Everything known of a job; None when nothing is (any more)."""
        return self._reader.job(job_id)

    def job_state(self, job_id: str) -> str | None:
        """queued, leased, done, dead or cancelled; None when nothing is known of the job (any more)."""
        record = self.job(job_id)
        return record.state if record else None

    def heartbeat(self, worker: str, info: Mapping[str, object], *, now_ms: int = 0) -> None:
        """Say that a worker lives; ``info`` has at least ``state`` (see `registry.WorkerInfo`)."""
        self._registry.heartbeat(worker, info, now_ms=now_ms)

    def forget_worker(self, worker: str) -> None:
        """A worker leaves in good order."""
        self._registry.forget(worker)

    def workers(self) -> tuple[WorkerInfo, ...]:
        """Every worker that gave a sign of life within `registry.WORKER_TTL_MS`."""
        return self._registry.workers()

    def policy(self) -> InstalledPolicy:
        """The policy that is in force, for every process on this queue."""
        return self._policies.ensure()

    def set_policy(self, name: str, *, now_ms: int = 0) -> PolicyChange:
        """Change the policy for all processes and rescore what waits, atomically; raises `UnknownPolicy`."""
        return self._policies.choose(name, now_ms=now_ms)

    def refresh_policy(self, *, now_ms: int = 0) -> PolicyChange | None:
        """Rank anew by the costs learned since; None when nothing moved far enough to rescore."""
        return self._policies.refresh(now_ms=now_ms)

    def stats(self) -> QueueStats:
        """A snapshot of the queue."""
        return self._reader.stats()

    def backlog(self) -> Backlog:
        """How much work waits, in one or two round trips: less than `stats`, and cheap enough for every second."""
        return read_backlog(self._client, self.keys)

    def jobs(self, state: str = "queued", limit: int = 100) -> tuple[JobRecord, ...]:
        """Jobs that are ``queued`` (oldest first), ``leased`` (next to expire first) or ``dead`` (latest first)."""
        return self._reader.jobs(state, limit)

    def retry_dead(self, job_id: str, *, now_ms: int = 0) -> bool:
        """Queue a dead job anew, with all its attempts and as if it came now; False when it is not dead (any more)."""
        return self._settle_dead(job_id, retry=True, now_ms=now_ms)

    def drop_dead(self, job_id: str, *, now_ms: int = 0) -> bool:
        """Forget a dead job; False when it is not dead (any more)."""
        return self._settle_dead(job_id, retry=False, now_ms=now_ms)

    def _settle_dead(self, job_id: str, *, retry: bool, now_ms: int) -> bool:
        (code,) = self._policies.run(
            verbs.SettleDead(now_ms=now_ms, id=job_id, retry=int(retry), job_ttl_ms=self.limits.job_ttl_ms)
        )
        return text(code) == "OK"


def _held(leases: Sequence[LeasedJob]) -> tuple[tuple[str, int], ...]:
    return tuple((lease.job.id, lease.generation) for lease in leases)
