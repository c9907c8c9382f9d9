"""No job is lost or run twice, whatever the order of verbs, lost replies, expiries and changes of policy."""

from __future__ import annotations

import struct
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from queueing.connect import connect
from queueing.job import EnqueueStatus, LeasedJob, NewJob
from queueing.job_queue import JobQueue, QueueLimits
from queueing.lane import Kind, Lane, all_lanes
from queueing.policies import POLICIES
from tests.support.queue_ears import Ears
from tests.support.queue_jobs import START_MS, final, in_lane, nonce, partial
from tests.support.queue_model import QueueModel

SESSIONS = [f"s{number}" for number in range(5)]
LIMITS = QueueLimits(max_queued=8, max_attempts=2, lease_ms=10_000, stale_partial_ms=30_000)

sessions = st.sampled_from(SESSIONS)
audio = st.sampled_from([0.5, 2.5, 5.5, 9.0])


class QueueMachine(RuleBasedStateMachine):
    """The queue in Redis beside `QueueModel`: every answer and all that Redis holds must agree."""

    url: str

    def __init__(self) -> None:
        super().__init__()
        self.client = connect(self.url)
        self.client.flushall()
        self.ears = Ears(self.client)
        self.queue = JobQueue(self.client, limits=LIMITS, policy="priority")
        self.model = QueueModel(LIMITS, self.queue.policy().ranks)
        self.now = START_MS
        self.leases: list[LeasedJob] = []
        self.waking = 0
        self.segments: Counter[str] = Counter()
        self.partials: Counter[str] = Counter()

    def enqueue(self, job: NewJob) -> EnqueueStatus:
        expected = self.model.enqueue(job, self.now)
        answer = self.queue.enqueue(job, now_ms=self.now)
        assert (answer.status, answer.superseded) == expected
        return answer.status

    @rule(session=sessions, audio_s=audio, lost_reply=st.booleans())
    def enqueue_final(self, session: str, audio_s: float, lost_reply: bool) -> None:
        if session in self.model.ended:
            return
        job = final(session, self.segments[session], audio_s)
        if self.enqueue(job) is EnqueueStatus.QUEUED:
            self.segments[session] += 1
            if lost_reply:
                assert self.enqueue(job) is EnqueueStatus.DUPLICATE

    @rule(session=sessions, audio_s=audio, late=st.booleans())
    def enqueue_partial(self, session: str, audio_s: float, late: bool) -> None:
        if session in self.model.ended:
            return
        self.partials[session] += 1
        segment = max(0, self.segments[session] - late)
        self.enqueue(partial(session, self.partials[session], audio_s, segment=segment))

    @rule(number=st.integers(0, 3), lane=st.sampled_from([lane for lane in all_lanes() if lane.kind is Kind.FILE][:4]))
    def enqueue_file(self, number: int, lane: Lane) -> None:
        self.enqueue(in_lane(f"file-{number}", lane))

    @rule(worker=st.sampled_from(["w1", "w2", "w3"]), most=st.integers(1, 3), lost_reply=st.booleans())
    def claim(self, worker: str, most: int, lost_reply: bool) -> None:
        self.waking = max(0, self.waking - 1)
        expected = self.model.claim(worker, self.now, most)
        token = nonce()
        taken = self.queue.claim(worker, token, max_jobs=most, now_ms=self.now)
        assert [(lease.job, lease.generation, lease.attempt, lease.arrival_ms) for lease in taken] == [
            (job.job, job.generation, job.attempts, job.arrival_ms) for job in expected
        ]
        if lost_reply and taken:
            assert self.queue.claim(worker, token, max_jobs=most, now_ms=self.now + 5) == taken
        self.leases += taken

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), verb=st.sampled_from(["complete", "complete", "fail", "give up", "release", "renew"]))
    def report(self, data: st.DataObject, verb: str) -> None:
        """By anyone who ever held a lease, also one that lost it long ago, and sometimes twice."""
        lease = data.draw(st.sampled_from(self.leases[-12:]))
        job_id, generation = lease.job.id, lease.generation
        for _ in range(data.draw(st.integers(1, 2))):
            if verb == "complete":
                answer = self.queue.complete(lease, {"text": job_id}, decode_ms=50, now_ms=self.now)
                assert answer == self.model.complete(job_id, generation)
            elif verb in ("fail", "give up"):
                retry = verb == "fail"
                answer = self.queue.fail(lease, "decode_failed", "x", retry=retry, now_ms=self.now)
                assert answer == self.model.fail(job_id, generation, retry=retry)
            elif verb == "release":
                assert self.queue.release([lease]) == self.model.release(job_id, generation)
            else:
                lost = self.queue.renew([lease], now_ms=self.now)
                assert (lost == ()) == self.model.renew(job_id, generation, self.now)

    @rule(ms=st.sampled_from([1, 400, 3_000, 10_001, 31_000]))
    def time_passes(self, ms: int) -> None:
        self.now += ms

    @rule(sweepers=st.integers(1, 2))
    def sweep(self, sweepers: int) -> None:
        self.model.sweep(self.now)
        for _ in range(sweepers):
            self.queue.sweep(now_ms=self.now)

    @rule(session=sessions)
    def cancel_partial(self, session: str) -> None:
        assert self.queue.cancel_partial(session) == self.model.cancel_partial(session)

    @precondition(lambda self: len(self.model.ended) < len(SESSIONS) - 2)
    @rule(session=sessions)
    def end_session(self, session: str) -> None:
        assert self.queue.cancel_session(session) == self.model.end_session(session)

    @rule(name=st.sampled_from(list(POLICIES)))
    def change_policy(self, name: str) -> None:
        self.queue.set_policy(name, now_ms=self.now)
        self.model.ranks = self.queue.policy().ranks

    @rule()
    def forget_scripts(self) -> None:
        self.client.script_flush()

    @rule()
    def wake_up(self) -> None:
        self.waking += self.queue.wait(0)

    @invariant()
    def redis_holds_what_the_model_holds(self) -> None:
        keys, lanes = self.queue.keys, all_lanes()
        pipeline = self.client.pipeline()
        for lane in lanes:
            pipeline.zrange(keys.lane(lane), 0, -1, withscores=True)
        pipeline.zrange(keys.leases, 0, -1, withscores=True)
        pipeline.hgetall(keys.open_partial)
        pipeline.llen(keys.wake)
        pipeline.get(keys.heads)
        *in_lanes, leases, open_partials, tokens, index = pipeline.execute()

        queued = {job.job.id: job for job in self.model.in_state("queued")}
        held = {
            name.decode(): (lane, score) for lane, jobs in zip(lanes, in_lanes, strict=True) for name, score in jobs
        }
        assert held == {
            name: (job.lane, job.arrival_ms - self.model.ranks[job.lane].head_start_ms) for name, job in queued.items()
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

    def teardown(self) -> None:
        try:
            self._drain()
        finally:
            self.ears.close()
            self.client.close()

    def _drain(self) -> None:
        """Everything still in the queue gets done; then sent equals received."""
        for job in self.model.in_state("leased"):
            (lease,) = (one for one in self.leases if (one.job.id, one.generation) == (job.job.id, job.generation))
            self.queue.complete(lease, {"text": job.job.id}, decode_ms=50)
            self.model.complete(job.job.id, job.generation)
        while taken := self.queue.claim("last", nonce(), max_jobs=8, now_ms=self.now):
            self.model.claim("last", self.now, 8)
            for lease in taken:
                self.queue.complete(lease, {"text": lease.job.id}, decode_ms=50)
                self.model.complete(lease.job.id, lease.generation)
        heard = self.ears.heard()
        assert Counter((delivery.job, delivery.outcome) for delivery in heard) == Counter(self.model.deliveries)
        for job in self.model.jobs.values():
            told = [outcome for name, outcome in self.model.deliveries if name == job.job.id]
            assert told == ([] if job.state == "cancelled" else [job.state])
            assert job.state in ("done", "dead", "cancelled")
        for session in SESSIONS:
            kept = [one for one in heard if one.session == session and one.event_id]
            assert list(self.queue.events(session)) == ([] if session in self.model.ended else kept)


@pytest.mark.timeout(300)
def test_no_job_is_lost_or_run_twice_under_any_interleaving(redis_url: str) -> None:
    machine = type("QueueMachineOnRedis", (QueueMachine,), {"url": redis_url})
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None,
            max_examples=40,
            stateful_step_count=50,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
