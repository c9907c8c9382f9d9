"""A queue in Redis driven beside its model: every answer, all that Redis holds and all that is published must agree."""

from __future__ import annotations

import struct
from collections import Counter
from typing import Any

import redis

from queueing.batches import NO_BATCHES, Batch, Batches
from queueing.job import CompleteStatus, EnqueueStatus, LeasedJob, NewJob, Renewed
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import Kind, Lane, all_lanes
from tests.support.queue_ears import Ears
from tests.support.queue_jobs import START_MS, final, in_lane, nonce, partial
from tests.support.queue_model import QueueModel

SESSIONS = [f"s{number}" for number in range(6)]
FILE_LANES = [lane for lane in all_lanes() if lane.kind is Kind.FILE][:4]
LIMITS = QueueLimits(max_queued=8, max_attempts=2, lease_ms=10_000, stale_partial_ms=30_000)
REPORTS = ("complete", "fail", "give up", "release", "renew")
STEPS_MS = (1, 400, 3_000, 10_001, 31_000)
BATCHES: tuple[Batches, ...] = (
    NO_BATCHES,
    Batches({lane: Batch(2) for lane in all_lanes()}),
    Batches({lane: Batch(4, 2) if lane.kind is Kind.PARTIAL else Batch(1) for lane in all_lanes()}),
    Batches({lane: Batch(6, 11) for lane in all_lanes() if lane.kind is Kind.PARTIAL}),
)
"""What workers may say: nothing, less than they could hold, a few smaller windows, all of them."""


class QueueDriver:
    """Does things to both and compares. ``seen`` counts what happened, so that a test can tell that it did."""

    def __init__(self, client: redis.Redis) -> None:
        client.flushall()
        self.client = client
        self.ears = Ears(client)
        self.queue = JobQueue(client, limits=LIMITS)
        self.model = QueueModel(LIMITS, self.queue.policy().ranks)
        self.now = START_MS
        self.leases: list[LeasedJob] = []
        self.waking = 0
        self.seen: Counter[str] = Counter()
        self._segments: Counter[str] = Counter()
        self._partials: Counter[str] = Counter()

    def enqueue(self, job: NewJob) -> EnqueueStatus:
        expected = self.model.enqueue(job, self.now)
        answer = self.queue.enqueue(job, now_ms=self.now)
        assert (answer.status, answer.superseded) == expected
        self.seen[f"{job.kind} {answer.status}"] += 1
        self.seen["superseded"] += answer.superseded
        return answer.status

    def enqueue_final(self, session: str, audio_s: float, lost_reply: bool) -> None:
        if session in self.model.ended:
            return
        job = final(session, self._segments[session], audio_s)
        if self.enqueue(job) is EnqueueStatus.QUEUED:
            self._segments[session] += 1
            if lost_reply:
                assert self.enqueue(job) is EnqueueStatus.DUPLICATE

    def enqueue_partial(self, session: str, audio_s: float, late: bool) -> None:
        """``late``: of a segment that may have its final already."""
        if session in self.model.ended:
            return
        self._partials[session] += 1
        segment = max(0, self._segments[session] - late)
        self.enqueue(partial(session, self._partials[session], audio_s, segment=segment))

    def enqueue_file(self, lane: Lane) -> None:
        self._segments["files"] += 1
        self.enqueue(in_lane(f"file-{self._segments['files']}", lane))

    def claim(self, worker: str, most: int, lost_reply: bool, batches: Batches = NO_BATCHES) -> None:
        self.waking = max(0, self.waking - 1)
        expected = self.model.claim(worker, self.now, most, batches)
        token = nonce()
        taken = self.queue.claim(worker, token, max_jobs=most, batches=batches, now_ms=self.now)
        assert [(lease.job, lease.generation, lease.attempt, lease.arrival_ms) for lease in taken] == [
            (job.job, job.generation, job.attempts, job.arrival_ms) for job in expected
        ]
        if lost_reply and taken:
            assert self.queue.claim(worker, token, max_jobs=most, batches=batches, now_ms=self.now + 5) == taken
        self.leases += taken
        self.seen["claimed"] += len(taken)
        self.seen["lifted"] += sum(lease.lane != taken[0].lane for lease in taken)

    def report(self, lease: LeasedJob, verb: str, times: int) -> None:
        """By anyone who ever held a lease, also one who lost it long ago; more than once when replies are lost."""
        job_id, generation = lease.job.id, lease.generation
        for _ in range(times):
            if verb == "complete":
                answer = self.queue.complete(lease, {"text": job_id}, decode_ms=50, now_ms=self.now)
                assert answer == self.model.complete(job_id, generation)
                self.seen[f"{lease.job.kind} complete {answer}"] += 1
            elif verb in ("fail", "give up"):
                retry = verb == "fail"
                answer = self.queue.fail(lease, "decode_failed", "x", retry=retry, now_ms=self.now)
                assert answer == self.model.fail(job_id, generation, retry=retry)
                self.seen[f"{lease.job.kind} fail {answer}"] += 1
            elif verb == "release":
                assert self.queue.release([lease]) == self.model.release(job_id, generation)
            else:
                lost = self.queue.renew([lease], now_ms=self.now)
                assert (lost == Renewed()) == self.model.renew(job_id, generation, self.now)
                self.seen["renewed" if lost == Renewed() else "lost"] += 1

    def time_passes(self, ms: int) -> None:
        self.now += ms

    def sweep(self, sweepers: int) -> None:
        self.model.sweep(self.now)
        reports = [self.queue.sweep(now_ms=self.now) for _ in range(sweepers)]
        assert not any(report.requeued or report.dead or report.dropped_partials for report in reports[1:])
        self.seen["swept"] += reports[0].requeued + reports[0].dead + reports[0].dropped_partials

    def cancel_partial(self, session: str) -> None:
        assert self.queue.cancel_partial(session) == self.model.cancel_partial(session)

    def end_session(self, session: str) -> None:
        assert self.queue.cancel_session(session) == self.model.end_session(session)

    def change_policy(self, name: str) -> None:
        self.queue.set_policy(name, now_ms=self.now)
        self.model.ranks = self.queue.policy().ranks

    def refresh_policy(self) -> None:
        self.queue.refresh_policy(now_ms=self.now)
        self.model.ranks = self.queue.policy().ranks

    def forget_scripts(self) -> None:
        self.client.script_flush()

    def wake_up(self) -> None:
        """A blocked worker takes a token: it will claim."""
        self.waking += self.queue.wait(0)

    def check(self) -> None:
        """What Redis holds is what the model holds."""
        keys, lanes = self.queue.keys, all_lanes()
        pipeline = self.client.pipeline()
        for lane in lanes:
            pipeline.zrange(keys.lane(lane), 0, -1, withscores=True)
        pipeline.zrange(keys.leases, 0, -1, withscores=True)
        pipeline.hgetall(keys.open_partial)
        pipeline.llen(keys.wake)
        pipeline.get(keys.heads)
        replies: list[Any] = pipeline.execute()
        *in_lanes, leases, open_partials, tokens, index = replies

        queued = {job.job.id: job for job in self.model.in_state("queued")}
        held = {
            name.decode(): (lane, score) for lane, jobs in zip(lanes, in_lanes, strict=True) for name, score in jobs
        }
        assert held == {
            name: (job.lane, self.model.ranks[job.lane].score(job.arrival_ms)) for name, job in queued.items()
        }
        assert {name.decode(): until for name, until in leases} == {
            job.job.id: job.lease_until_ms for job in self.model.in_state("leased")
        }
        opened = {session: self.model.open_partial(session) for session in SESSIONS}
        assert {name.decode(): job_id.decode() for name, job_id in open_partials.items()} == {
            session: job.job.id for session, job in opened.items() if job
        }
        assert not queued or tokens + self.waking > 0, "ready work implies a worker that wakes"
        self._check_index(in_lanes, struct.unpack(f"<{5 * len(lanes)}d", index[: 40 * len(lanes)]))

    def _check_index(self, in_lanes: list[list[tuple[bytes, float]]], index: tuple[float, ...]) -> None:
        for place, (lane, jobs) in enumerate(zip(all_lanes(), in_lanes, strict=True)):
            depth, score, overdue, tier, rate = index[5 * place : 5 * place + 5]
            rank = self.model.ranks[lane]
            assert (tier, rate, depth) == (rank.tier, rank.rate, len(jobs))
            if jobs:
                arrival = self.model.jobs[jobs[0][0].decode()].arrival_ms
                assert (score, overdue) == (jobs[0][1], arrival + rank.max_age_ms)

    def finish(self) -> None:
        """Everything still in the queue gets done; then sent equals received."""
        for job in self.model.in_state("leased"):
            (lease,) = (one for one in self.leases if (one.job.id, one.generation) == (job.job.id, job.generation))
            self.report(lease, "complete", 1)
        while self.model.in_state("queued"):
            before = len(self.leases)
            self.claim("last", 8, lost_reply=False)
            for lease in self.leases[before:]:
                self.report(lease, "complete", 1)
        assert self.queue.claim("last", nonce(), now_ms=self.now) == ()
        heard = self.ears.heard()
        assert Counter((delivery.job, delivery.outcome) for delivery in heard) == Counter(self.model.deliveries)
        for job in self.model.jobs.values():
            told = [outcome for name, outcome in self.model.deliveries if name == job.job.id]
            assert told == ([] if job.state == "cancelled" else [job.state])
            assert job.state in ("done", "dead", "cancelled")
        for session in SESSIONS:
            kept = [one for one in heard if one.session == session and one.event_id]
            assert list(self.queue.events(session)) == ([] if session in self.model.ended else kept)

    def close(self) -> None:
        self.ears.close()


def worth_seeing() -> set[str]:
    """What a long enough walk must have come across, or it proves little."""
    kinds = ("partial", "final", "file")
    return {
        *(f"{kind} {status}" for kind in kinds for status in ("queued", "full")),
        *(f"partial {status}" for status in ("extended", "busy", "obsolete")),
        "final duplicate", "superseded", "claimed", "lifted", "swept", "lost", "renewed",
        *(f"{kind} complete {CompleteStatus.DONE}" for kind in kinds),
        *(f"{kind} complete {CompleteStatus.STALE}" for kind in kinds),
        *(f"{kind} complete {CompleteStatus.CANCELLED}" for kind in ("partial", "final")),
        *(f"{kind} fail {CompleteStatus.DEAD}" for kind in kinds),
        *(f"{kind} fail {CompleteStatus.REQUEUED}" for kind in ("final", "file")),
    }  # fmt: skip
