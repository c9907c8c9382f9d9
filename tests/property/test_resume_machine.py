"""A stream that loses its connection, its front end or Redis at any step and goes on elsewhere, from what Redis holds.

At the end every sample is in exactly one final, finals came in order, each once, and ``seq`` had no gap: the client of
`tests.support.resuming` checks that at every message. What nobody cut by hand is cut as if nothing had happened.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from queueing.job import Enqueued, EnqueueStatus, NewJob
from queueing.lane import Kind
from sessions.course import Phase
from sessions.decodes import MIN_DECODE_BYTES
from sessions.endpointing import Endpointer
from sessions.limits import SessionLimits
from sessions.wire import BYTES_PER_SECOND, End, Flush, Keepalive, Start
from tests.property.test_session_machine import SimulatedQueue
from tests.support.recordings import recording
from tests.support.resuming import Resuming
from tests.support.session_driver import speechlike

LIMITS = SessionLimits(
    idle_timeout_s=1e6, inference_timeout_s=1e6, partial_interval_s=0.3, min_partial_audio_s=0.2, coalesce_s=0.2
)
SOUND = speechlike(40.0)
SPEECH = recording("pauses")
PAUSE_S = 0.3


class ResumeMachine(RuleBasedStateMachine):
    """Client, workers, losses and returns in any interleaving."""

    @initialize(partials=st.booleans(), start=st.booleans(), promised=st.booleans(), speech=st.booleans())
    def connect(self, partials: bool, start: bool, promised: bool, speech: bool) -> None:
        self.queue = SimulatedQueue()
        self.cut_by_hand = False
        self.decoded: dict[int, tuple[int, int]] = {}
        self.stream = Resuming(LIMITS, SPEECH if speech else SOUND, endpoint_s=PAUSE_S if speech else None)
        self.stream.enqueue = self.enqueue
        self.stream.cancel_partial = self.queue.cancel_partial
        self.stream.events = lambda after: self.queue.read(after)
        options = Start(partials=partials, resume=promised or None) if start else None
        self.stream.text(options or Keepalive())
        self.stream.receive()

    def enqueue(self, job: NewJob) -> EnqueueStatus | Enqueued:
        if job.kind is Kind.FINAL:
            part = job.start_byte, job.end_byte
            assert self.decoded.setdefault(job.segment, part) == part
        return self.queue.enqueue(job)

    def takes_audio(self) -> bool:
        stream = self.stream
        open_ = stream.session._stream.phase in (Phase.WAITING, Phase.OPEN)
        return (
            open_
            and stream.client.ready
            and stream.session.accepts
            and not (stream.client.said_end or stream.lost or stream.over)
        )

    # The client.

    @precondition(lambda self: self.takes_audio())
    @rule(size=st.sampled_from([2, 641, 3_200, 6_400, 32_001, 100_000]), count=st.integers(1, 3))
    def speak(self, size: int, count: int) -> None:
        for _ in range(count):
            if self.takes_audio():
                self.stream.now += 0.1
                self.stream.speak(size)

    @precondition(lambda self: self.takes_audio())
    @rule()
    def flush(self) -> None:
        self.cut_by_hand = True
        self.stream.text(Flush())

    @precondition(lambda self: self.takes_audio() and self.stream.client.position > 150_000)
    @rule()
    def end(self) -> None:
        self.stream.client.said_end = True
        self.stream.text(End())

    @rule()
    def receive(self) -> None:
        self.stream.receive()

    @rule(seconds=st.sampled_from([0.3, 1.1, 2.1]))
    def wait(self, seconds: float) -> None:
        self.stream.wait(seconds)

    # Workers.

    @precondition(lambda self: self.queue.queued)
    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        self.queue.claim(data.draw(st.sampled_from(sorted(self.queue.queued))))

    @precondition(lambda self: self.queue.leased)
    @rule(data=st.data(), published=st.booleans())
    def finish(self, data: st.DataObject, published: bool) -> None:
        outcome = self.queue.finish(data.draw(st.sampled_from(sorted(self.queue.leased))), dead=False)
        if outcome is not None and published and not self.stream.lost:
            self.stream.run(self.stream.session.on_delivery(self.stream.now, outcome))

    # Losses and returns.

    @precondition(lambda self: not self.stream.lost and self.stream.crash_in is None)
    @rule(effects=st.integers(0, 6))
    def crash_soon(self, effects: int) -> None:
        self.stream.crash_in = effects

    @precondition(lambda self: not self.stream.lost and self.stream.gives_up_in is None)
    @rule(writes=st.integers(0, 4), executed=st.booleans())
    def redis_goes_away_soon(self, writes: int, executed: bool) -> None:
        self.stream.gives_up_in, self.stream.executed = writes, executed

    @precondition(lambda self: not self.stream.lost and not self.stream.over)
    @rule(messages=st.integers(0, 5))
    def lose_the_connection(self, messages: int) -> None:
        self.stream.receive(min(messages, len(self.stream.under_way)))
        self.stream.run(self.stream.session.on_disconnect(self.stream.now))
        self.stream.lost = True

    @precondition(lambda self: not self.stream.lost and not self.stream.over)
    @rule(patience=st.sampled_from([0.0, 1.0]), for_good=st.booleans())
    def drain(self, patience: float, for_good: bool) -> None:
        self.cut_by_hand |= for_good or not self.stream.session._stream.comes_back
        now = self.stream.now
        self.stream.run(self.stream.session.on_drain(now, now + patience, for_good=for_good))
        self.stream.wait(patience)

    @precondition(lambda self: self.stream.lost or self.stream.over)
    @rule(messages=st.integers(0, 5))
    def come_back(self, messages: int) -> None:
        self.stream.receive(min(messages, len(self.stream.under_way)))
        self.go_on()

    def go_on(self) -> None:
        """What a client does that has not got its ``done``."""
        stream = self.stream
        if stream.over and not stream.lost:
            stream.close(answered=stream.client.done)
        if stream.client.done or not stream.client.known or stream.store is None:
            return
        stream.resume()
        stream.run(stream.session.on_resumed(stream.now))
        if stream.client.said_end:
            stream.receive()
            stream.text(End())

    # What always holds.

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "stream"):
            assert self.stream.session.buffered_bytes <= 150_000
            assert self.stream.store is None or len(self.stream.store.fields) < 400

    def teardown(self) -> None:
        """The last connection holds: the stream comes to its end."""
        if not hasattr(self, "stream"):
            return
        stream, queue, client = self.stream, self.queue, self.stream.client
        stream.crash_in = stream.gives_up_in = None
        stream.receive()
        if not client.done and (stream.lost or stream.over or stream.session.closed):
            self.go_on()
            stream.receive()
        if not client.known:
            return
        if not client.said_end:
            client.said_end = True
            stream.text(End())
        for _ in range(200):
            for job_id in sorted(queue.queued):
                queue.claim(job_id)
            for job_id in sorted(queue.leased):
                queue.finish(job_id, dead=False)
            stream.wait(LIMITS.repair_after_s + 0.01)
            stream.receive()
            if client.done:
                break
            if stream.over and not stream.session._stream._settled:
                self.go_on()
        assert client.done, f"errors: {client.errors}"
        assert set(client.errors) <= {"shutting_down", "unavailable"}
        assert client.finals[-1].last
        assert client.finals[-1].end_s == round(client.position // 2 * 2 / BYTES_PER_SECOND, 4)
        texts = [final.text for final in client.finals if final.text]
        assert texts == sorted(set(texts), key=lambda text: int(text.rpartition(":")[2])), "each decode is said once"
        stream.close(answered=True)
        # A front end that is lost over that leaves it to expire.
        assert stream.store is None or stream.lost, "nothing stays of a stream whose end was heard"
        if not self.cut_by_hand:
            assert self.decoded == self.undisturbed(client.sound[: client.position // 2 * 2])

    def undisturbed(self, sound: bytes) -> dict[int, tuple[int, int]]:
        cutter = Endpointer(self.stream.limits.endpoint_s)
        segments = cutter.feed(sound)
        last = cutter.finish()
        segments += [last] if last is not None else []
        parts = enumerate((segment.start_byte, segment.end_byte) for segment in segments)
        return {number: (start, end) for number, (start, end) in parts if end - start >= MIN_DECODE_BYTES}


ResumeMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestResume = ResumeMachine.TestCase
