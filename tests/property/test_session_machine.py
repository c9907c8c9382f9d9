"""A stream, of speech or of sound without pauses, against a simulated queue whose deliveries come late, twice, in any
order or not at all.

Whatever happens: every accepted sample is in exactly one final or an explicit error says that it is not, finals come
in order, seq has no gap (checked at every step by the driver), and a stream that said ``end`` comes to its end.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from queueing.job import Delivery, Enqueued, EnqueueStatus, NewJob
from queueing.lane import Kind
from sessions.course import Phase
from sessions.limits import SessionLimits
from sessions.wire import BYTES_PER_SECOND, Done, End, Final, Flush, Keepalive, Partial, Start
from tests.support.recordings import recording
from tests.support.session_driver import Driver, at, delivery, failure, speechlike

MAX_AUDIO_S = 12.0
LIMITS = SessionLimits(
    max_audio_s=MAX_AUDIO_S,
    idle_timeout_s=15.0,
    inference_timeout_s=10.0,
    partial_interval_s=0.3,
    min_partial_audio_s=0.2,
)
SOUND = speechlike(20.0)
SPEECH = recording("pauses")
PAUSE_S = 0.3


class SimulatedQueue:
    """The promises of `queueing.job_queue` that a session relies on, in memory."""

    def __init__(self) -> None:
        self.queued: dict[str, NewJob] = {}
        self.leased: dict[str, NewJob] = {}
        self.finished: set[str] = set()
        self.open_partial: str | None = None
        self.last_final = -1
        self.events: list[Delivery] = []
        self.full = False
        self.partials_asked = 0

    def enqueue(self, job: NewJob) -> EnqueueStatus | Enqueued:
        if job.id in self.queued or job.id in self.leased or job.id in self.finished:
            return EnqueueStatus.DUPLICATE
        if job.kind is Kind.PARTIAL:
            self.partials_asked += 1
            assert job.segment > self.last_final, "no partial is asked for after its final"
            if self.open_partial in self.leased:
                return EnqueueStatus.BUSY
            if self.open_partial in self.queued:
                held = self.queued[self.open_partial]
                self.queued[self.open_partial] = replace(job, id=held.id)
                return EnqueueStatus.EXTENDED
            if self.full:
                return EnqueueStatus.FULL
            self.open_partial = job.id
        else:
            self.last_final = max(self.last_final, job.segment)
            superseded = self.open_partial in self.queued
            self.cancel_partial()
            self.queued[job.id] = job
            return Enqueued(EnqueueStatus.QUEUED, superseded=superseded)
        self.queued[job.id] = job
        return EnqueueStatus.QUEUED

    def cancel_partial(self) -> None:
        if self.open_partial is not None:
            self.queued.pop(self.open_partial, None)
            self.open_partial = None

    def claim(self, job_id: str) -> None:
        self.leased[job_id] = self.queued.pop(job_id)

    def finish(self, job_id: str, *, dead: bool) -> Delivery | None:
        """The worker's report; nothing is published for a job that became obsolete."""
        job = self.leased.pop(job_id)
        self.finished.add(job_id)
        if job.kind is Kind.PARTIAL:
            if self.open_partial != job_id:
                return None
            self.open_partial = None
            return replace(failure(job, "decode_failed"), event_id=None) if dead else delivery(job)
        outcome = replace(
            failure(job, "decode_failed") if dead else delivery(job), event_id=f"{len(self.events) + 1}-0"
        )
        self.events.append(outcome)
        return outcome

    def read(self, after: str | None) -> list[Delivery]:
        return self.events[0 if after is None else int(after.split("-")[0]) :]


class StreamMachine(RuleBasedStateMachine):
    """Client, time, workers and pub/sub in any interleaving."""

    published = Bundle("published")

    @initialize(partials=st.booleans(), start=st.booleans(), named=st.booleans(), speech=st.booleans())
    def connect(self, partials: bool, start: bool, named: bool, speech: bool) -> None:
        self.queue = SimulatedQueue()
        self.sound = SPEECH if speech else SOUND
        self.driver = Driver(LIMITS, endpoint_s=PAUSE_S if speech else None)
        self.driver.answers = self.enqueue
        self.driver.cancel_partial = self.queue.cancel_partial
        self.sent_bytes = 0
        self.flushes = 0
        self.deliveries = 0
        self.may_fail = False
        if start:
            self.driver.text(Start(partials=partials, language="en" if named else None))

    def enqueue(self, job: NewJob) -> EnqueueStatus | Enqueued:
        held = bytes(self.driver.buffer[job.start_byte : job.end_byte])
        assert held == self.sound[job.start_byte : job.end_byte], "what is decoded is what was sent"
        return self.queue.enqueue(job)

    def heard(self) -> bool:
        """Whether the stream still takes audio."""
        return self.driver.session._stream.phase in (Phase.WAITING, Phase.OPEN)

    # The client.

    @rule(size=st.sampled_from([1, 2, 3, 641, 3_200, 6_400, 32_001, 100_000]), count=st.integers(1, 3))
    def speak(self, size: int, count: int) -> None:
        for _ in range(count):
            if not self.driver.session.accepts:
                return
            data = self.sound[self.sent_bytes : self.sent_bytes + size]
            if self.heard():
                self.sent_bytes += len(data)
            self.driver.audio(data, frame=max(1, len(data)))

    @rule()
    def flush(self) -> None:
        if not self.driver.session.accepts:
            return
        self.flushes += 1
        self.driver.text(Flush())

    @rule(size=st.sampled_from([1_600, 3_201, 16_000]))
    def speak_a_segment(self, size: int) -> None:
        self.speak(size, 1)
        self.flush()

    @rule()
    def keepalive(self) -> None:
        self.driver.text(Keepalive())

    @precondition(lambda self: self.flushes > 2 or self.sent_bytes > 200_000)
    @rule()
    def end(self) -> None:
        self.driver.text(End())

    # Time.

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.9, 2.1, 5.0]))
    def wait(self, seconds: float) -> None:
        self.driver.wait(seconds)

    # Workers.

    @precondition(lambda self: self.queue.queued)
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        self.queue.claim(data.draw(st.sampled_from(sorted(self.queue.queued))))

    @precondition(lambda self: self.queue.leased)
    @rule(target=published, data=st.data(), dead=st.sampled_from([False] * 9 + [True]))
    def finish(self, data: st.DataObject, dead: bool) -> object:
        job_id = data.draw(st.sampled_from(sorted(self.queue.leased)))
        self.may_fail = self.may_fail or (dead and self.queue.leased[job_id].kind is Kind.FINAL)
        outcome = self.queue.finish(job_id, dead=dead)
        return multiple() if outcome is None else outcome

    @precondition(lambda self: self.queue.queued)
    @rule(target=published, data=st.data())
    def work(self, data: st.DataObject) -> object:
        job_id = data.draw(st.sampled_from(sorted(self.queue.queued)))
        self.queue.claim(job_id)
        outcome = self.queue.finish(job_id, dead=False)
        return multiple() if outcome is None else outcome

    @precondition(lambda self: self.queue.open_partial in self.queue.queued)
    @rule()
    def drop_stale_partial(self) -> None:
        self.queue.cancel_partial()

    @rule(full=st.booleans())
    def fill(self, full: bool) -> None:
        self.queue.full = full

    # Pub/sub: any message, any number of times; what is never drawn is lost.

    @rule(message=published)
    def deliver(self, message: Delivery) -> None:
        self.deliveries += 1
        self.driver.run(self.driver.session.on_delivery(self.driver.now, message))

    @rule(readable=st.booleans())
    def reconnect(self, readable: bool) -> None:
        self.driver.events = self.queue.read if readable else None
        self.driver.run(self.driver.session.on_reconnected(self.driver.now))

    # What always holds.

    @invariant()
    def finals_are_in_order_and_without_a_hole(self) -> None:
        if not hasattr(self, "driver"):
            return
        position = 0.0
        decoded = {job.segment for job in self.driver.asked(Kind.FINAL)}
        for segment, final in enumerate(self.driver.finals):
            assert final.text == (f"text of s1:f:{segment}" if segment in decoded else "")
            assert final.start_s == position
            assert final.end_s >= final.start_s
            position = final.end_s
        lasts = [final.last for final in self.driver.finals]
        assert not any(lasts[:-1])

    @invariant()
    def no_partial_follows_its_final(self) -> None:
        if not hasattr(self, "driver"):
            return
        final_until = 0.0
        for message in self.driver.sent:
            if isinstance(message, Final):
                final_until = message.end_s
            elif isinstance(message, Partial):
                assert message.start_s >= final_until
                assert message.end_s > message.start_s

    @invariant()
    def partials_are_asked_for_at_a_bounded_rate(self) -> None:
        if not hasattr(self, "driver"):
            return
        by_cadence = self.driver.session.summary.audio_bytes / at(LIMITS.partial_interval_s)
        segments = self.driver.session.summary.finals_requested
        assert self.queue.partials_asked <= by_cadence + segments + self.deliveries + 2

    @invariant()
    def stable_words_never_change_in_a_segment(self) -> None:
        if not hasattr(self, "driver"):
            return
        stable = ""
        for message in self.driver.sent:
            if isinstance(message, Final):
                stable = ""
            elif isinstance(message, Partial):
                assert message.text.startswith(message.stable)
                assert message.stable.startswith(stable)
                stable = message.stable

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "driver"):
            assert self.driver.session.buffered_bytes <= at(1.5) + 100_000

    def teardown(self) -> None:
        """Pub/sub falls silent, the workers finish, the client says ``end``: the stream must come to its end."""
        if not hasattr(self, "driver"):
            return
        driver, queue = self.driver, self.queue
        driver.events = queue.read
        driver.text(End())
        while True:  # until the language is known finals are asked for one by one
            for job_id in sorted(queue.queued):
                queue.claim(job_id)
            for job_id in sorted(queue.leased):
                queue.finish(job_id, dead=False)
            driver.wait(LIMITS.repair_after_s + 0.01)
            if not queue.queued:
                break
        assert driver.session.closed
        assert driver.cancelled == 1
        assert driver.session.next_tick() is None
        accepted = driver.session.summary.audio_bytes
        assert accepted == min(self.sent_bytes // 2 * 2, at(MAX_AUDIO_S)) or driver.session.summary.outcome != "done"
        covered = driver.finals[-1].end_s if driver.finals else 0.0
        if driver.closed is not None and driver.closed[1] in ("done", "audio_limit"):
            assert covered == round(accepted / BYTES_PER_SECOND, 4)
            assert driver.finals[-1].last
            assert driver.sent[-1] == Done(audio_s=covered, finals=len(driver.finals))
            assert all(code in ("audio_limit", "bad_state") for code in driver.errors)
        else:
            assert driver.errors, "an end without done is an explicit error"
            assert driver.errors[-1] in ("inference_timeout", "idle_timeout", "decode_failed")
            assert driver.errors[-1] != "decode_failed" or self.may_fail
            if driver.errors[-1] == "idle_timeout":
                assert covered == round(accepted / BYTES_PER_SECOND, 4)


StreamMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestStream = StreamMachine.TestCase
