"""The claim loop: claim, fetch the audio, decode, report.

A claim carries a nonce and keeps it until an answer came, so a lost reply loses no job. Every claimed job ends in
exactly one report: its result, its own fault, or its release. A report whose lease is gone is refused by the queue,
which is not a fault. While Redis is away the loop waits, with jitter, and a finished result is kept and offered again
with the same generation.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeGuard, TypeVar

import structlog

from queueing.clock import Clock
from queueing.errors import BadJob, QueueUnavailable
from queueing.job import CompleteStatus, LeasedJob
from queueing.job_queue import JobQueue
from queueing.records import Completion
from sessions.audio_buffer import AudioBuffer
from sessions.errors import AudioLost
from sessions.results import DecodedWord, DecodeOptions, DecodeResult
from workers.audio_cache import AudioCache
from workers.batching import BatchTimes
from workers.lease_keeper import LeaseKeeper
from workers.lifecycle import Activity, Stop, backoff_s
from workers.metrics import WorkerMetrics
from workers.transcriber import (
    DECODE_FAILED,
    UNSUPPORTED_LANGUAGE,
    DecodeError,
    DecodeRequest,
    Transcriber,
    Transcript,
    samples_of,
)

IDLE_WAIT_S = 5.0
"""One blocking wait of an idle worker; also the longest time that a lost wake-up can cost."""

AUDIO_MISSING = "audio_missing"

Answer = TypeVar("Answer")

log = structlog.get_logger()


class Worker:
    """One worker's loop. `run` belongs to one thread; everything it shares is thread-safe."""

    def __init__(
        self,
        worker_id: str,
        queue: JobQueue,
        audio: AudioBuffer,
        transcriber: Transcriber,
        *,
        keeper: LeaseKeeper,
        activity: Activity,
        stop: Stop,
        metrics: WorkerMetrics,
        clock: Clock,
        rng: random.Random,
        max_batch: int = 1,
        max_batch_ms: float = 500.0,
        audio_cache_bytes: int = 0,
        idle_wait_s: float = IDLE_WAIT_S,
    ) -> None:
        self._id = worker_id
        self._queue = queue
        self._audio = AudioCache(audio.read, audio_cache_bytes, metrics.fetched)
        self._transcriber = transcriber
        self._keeper = keeper
        self._activity = activity
        self._stop = stop
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._times = BatchTimes(
            max_batch,
            max_batch_ms,
            batches_finals=transcriber.batches_finals,
            lifts_partials=transcriber.lifts_partials,
        )
        self._idle_wait_s = idle_wait_s
        self._nonces: Iterator[int] = count(1)

    def run(self) -> None:
        """Work until told to stop."""
        while self._activity.begin_work():
            leases = self._claim()
            if leases:
                self._handle(leases)
            self._activity.end_work()
            if not leases:
                self._wait()

    def _claim(self) -> tuple[LeasedJob, ...]:
        nonce = str(next(self._nonces))
        return self._persist("claim", lambda: self._timed_claim(nonce), until=self._stop.draining) or ()

    def _timed_claim(self, nonce: str) -> tuple[LeasedJob, ...]:
        began_s = self._clock.monotonic()
        leases = self._queue.claim(self._id, nonce, max_jobs=self._times.max_batch, batches=self._times.bounds)
        self._metrics.claimed(leases, self._clock.monotonic() - began_s)
        return leases

    def _wait(self) -> None:
        try:
            self._queue.wait(self._idle_wait_s)
        except QueueUnavailable as error:  # the claim that follows says so, if it fails too
            log.debug("redis_away", operation="wait", reason=str(error))
            self._metrics.redis_failures.labels("wait").inc()
            self._stop.draining.wait(backoff_s(3, self._rng))

    def _handle(self, leases: tuple[LeasedJob, ...]) -> None:
        self._keeper.hold(leases)
        try:
            if self._stop.draining.is_set():
                self._release(leases)
                return
            work = [(lease, request) for lease in leases if (request := self._request(lease)) is not None]
            if work:
                self._decode_and_report(work)
        finally:
            self._keeper.drop(leases)

    def _release(self, leases: tuple[LeasedJob, ...]) -> None:
        self._persist("release", lambda: self._queue.release(leases), until=self._stop.forced)
        for lease in leases:
            self._metrics.finished(lease, "released")

    def _request(self, lease: LeasedJob) -> DecodeRequest | None:
        """The job's audio and options; None when there is nothing to decode any more (and that was reported)."""
        job = lease.job
        try:
            pcm = self._persist(
                "read_audio",
                lambda: self._audio.fetch(job),
                until=self._stop.forced,
                give_up=lambda: self._keeper.is_lost(lease),
            )
            options = DecodeOptions.from_dict(job.options)
        except AudioLost as error:
            self._fail(lease, AUDIO_MISSING, str(error), retry=False)
            return None
        except ValueError as error:
            self._fail(lease, DECODE_FAILED, str(error), retry=False)
            return None
        if self._keeper.is_lost(lease):
            self._metrics.finished(lease, CompleteStatus.STALE)
            return None
        if pcm is None:
            return None
        return DecodeRequest(
            samples_of(pcm),
            job.kind,
            options.language,
            options.words,
            options.translate,
            options.initial_prompt,
            options.hotwords,
        )

    def _decode_and_report(self, work: Sequence[tuple[LeasedJob, DecodeRequest]]) -> None:
        requests = [request for _, request in work]
        log.debug("decoding", jobs=[lease.job.id for lease, _ in work])
        self._activity.begin_decode(len(requests))
        try:
            answers, in_one_call = self._decode(requests)
        finally:
            seconds = self._activity.end_decode()
        self._metrics.decoded(work[0][0].job.kind, len(work), sum(request.audio_s for request in requests), seconds)
        self._metrics.redone(self._transcriber.counters)
        heard = [(lease, answer) for (lease, _), answer in zip(work, answers, strict=True) if _reached_model(answer)]
        shared_ms = 1000 * max(0.0, seconds - sum(answer.alone_s for _, answer in heard))
        learn = in_one_call and not any(isinstance(answer, DecodeError) for answer in answers)
        if learn and heard:
            largest = max((lease.lane for lease, _ in heard), key=lambda lane: lane.window_s)
            self._times.learn(largest, len(heard), 1000 * seconds)  # what a final behind it waits, second looks and all
        self._report_batch([lease for lease, _ in work], answers, shared_ms / (len(heard) or len(work)), learn)

    def _decode(self, requests: Sequence[DecodeRequest]) -> tuple[Sequence[Transcript | DecodeError], bool]:
        """The transcriber's answers, and whether one call gave them: when a call fails as a whole, each request is
        decoded alone, so that only the culprit fails."""
        try:
            answers = self._transcriber.decode(requests)
            if len(answers) != len(requests):
                raise ValueError(f"{len(requests)} requests got {len(answers)} answers")
            return answers, True
        except Exception as error:
            log.exception("decode_fault", jobs=len(requests))
            if len(requests) == 1:
                return [DecodeError(f"{type(error).__name__}: {error}", retry=True)], False
            return [answer for request in requests for answer in self._decode([request])[0]], False

    def _report_batch(
        self, leases: Sequence[LeasedJob], answers: Sequence[Transcript | DecodeError], shared_ms: float, learn: bool
    ) -> None:
        """Results first and all at once, then the faults. ``shared_ms``: each job's share of what the batch shared."""
        done: list[Completion] = []
        faults: list[tuple[LeasedJob, DecodeError]] = []
        for lease, answer in zip(leases, answers, strict=True):
            try:
                if isinstance(answer, DecodeError):
                    raise answer
                decode_ms = (shared_ms if answer.decoded else 0.0) + 1000 * answer.alone_s
                done.append(
                    Completion.of(lease, self._result(answer), decode_ms=decode_ms, learn=learn and answer.decoded)
                )
            except BadJob as error:
                faults.append((lease, DecodeError(str(error))))
            except DecodeError as error:
                faults.append((lease, error))
        if done:
            self._report([one.lease for one in done], "complete", lambda: self._queue.complete_all(done))
        for lease, fault in faults:
            self._fail(lease, fault.code, str(fault), retry=fault.retry)

    def _result(self, transcript: Transcript) -> dict[str, Any]:
        return DecodeResult(
            text=transcript.text,
            model=self._transcriber.name,
            language=transcript.language,
            words=tuple(DecodedWord(w.text, w.start_s, w.end_s, w.probability) for w in transcript.words),
            language_probability=transcript.language_probability,
        ).to_dict()

    def _fail(self, lease: LeasedJob, code: str, message: str, *, retry: bool) -> None:
        if self._keeper.is_lost(lease):
            self._metrics.finished(lease, CompleteStatus.STALE)
            return
        keep = code != UNSUPPORTED_LANGUAGE
        tell = log.warning if keep else log.info
        tell("job_failed", job=lease.job.id, attempt=lease.attempt, code=code, reason=message, retry=retry)
        self._report([lease], "fail", lambda: (self._queue.fail(lease, code, message, retry=retry, keep=keep),))

    def _report(
        self, leases: Sequence[LeasedJob], operation: str, send: Callable[[], Sequence[CompleteStatus]]
    ) -> None:
        def timed() -> Sequence[CompleteStatus]:
            began_s = self._clock.monotonic()
            statuses = send()
            self._metrics.complete_s.observe(self._clock.monotonic() - began_s)
            return statuses

        statuses = self._persist(operation, timed, until=self._stop.forced)
        for lease, status in zip(leases, statuses or (), strict=statuses is not None):
            self._metrics.finished(lease, status)
            log.debug("job_reported", job=lease.job.id, generation=lease.generation, status=status)

    def _persist(
        self,
        operation: str,
        send: Callable[[], Answer],
        *,
        until: threading.Event,
        give_up: Callable[[], bool] = lambda: False,
    ) -> Answer | None:
        """``send``'s answer, tried again with backoff while Redis is away; None once ``until`` or ``give_up`` say."""
        for attempt in count():
            try:
                answer = send()
                if attempt:
                    log.info("redis_back", operation=operation, attempts=attempt + 1)
                return answer
            except QueueUnavailable as error:
                self._metrics.redis_failures.labels(operation).inc()
                if attempt == 0:
                    log.warning("redis_away", operation=operation, reason=str(error))
                if until.wait(backoff_s(attempt, self._rng)) or give_up():
                    return None
        raise AssertionError("count() never ends")


def _reached_model(answer: Transcript | DecodeError) -> TypeGuard[Transcript]:
    return isinstance(answer, Transcript) and answer.decoded
