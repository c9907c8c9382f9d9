"""Workers for tests, in threads and as real processes, with the scripted transcriber; and a desk that gives work."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import redis
from prometheus_client import CollectorRegistry

from queueing.clock import Clock, SystemClock
from queueing.connect import connect
from queueing.job import Delivery, Enqueued, NewJob
from queueing.job_queue import JobQueue, QueueLimits
from queueing.keys import front_channel
from queueing.lane import Kind
from sessions.audio_buffer import AudioBuffer
from tests.support.eventually import eventually
from workers.lease_keeper import LeaseKeeper
from workers.lifecycle import Activity, Stop
from workers.metrics import WorkerMetrics
from workers.scripted import Script, ScriptedTranscriber
from workers.transcriber import Transcriber
from workers.worker import Worker

FRONT = "front-of-the-test"
ROOT = Path(__file__).resolve().parent.parent.parent


def noise_pcm(rng: random.Random, seconds: float, first: int | None = None) -> bytes:
    """PCM16 that no other call gives; ``first`` sets its first sample (the scripted faults look at it)."""
    samples = np.random.default_rng(rng.getrandbits(63)).integers(-20_000, 20_000, int(seconds * 16_000), dtype="<i2")
    if first is not None:
        samples[0] = first
    return samples.tobytes()


class Desk:
    """The front end's side: stores audio, queues jobs, hears what is published."""

    def __init__(self, client: redis.Redis, limits: QueueLimits) -> None:
        self._client = client
        self.queue = JobQueue(client, limits=limits)
        self.audio = AudioBuffer(client, ttl_s=600)
        self._pubsub = client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._pubsub.subscribe(front_channel(FRONT))
        self._pubsub.get_message(timeout=5)
        self.heard: list[Delivery] = []

    def redis_ms(self) -> int:
        """What orders jobs: Redis's clock."""
        seconds, micros = self._client.time()
        return seconds * 1000 + micros // 1000

    def store(self, session: str, pcm: bytes) -> None:
        """Put a session's whole audio into Redis."""
        self.audio.append(session, 0, pcm)

    def final(self, session: str, pcm: bytes, segment: int = 0, start: int = 0) -> str:
        """Store ``pcm`` and queue a final over it; returns the job's id."""
        self.store(session, pcm)
        return self.ask(Kind.FINAL, session, start, len(pcm), segment)

    def ask(self, kind: Kind, session: str, start: int, end: int, segment: int = 0, number: int = 0) -> str:
        """Queue a job over bytes ``start`` to ``end``; returns its id."""
        name = f"{session}:p:{number}" if kind is Kind.PARTIAL else f"{session}:f:{segment}"
        audio_s = max(0.0, (end - start) / 32_000)
        answer: Enqueued = self.queue.enqueue(NewJob(name, session, kind, segment, start, end, audio_s, FRONT))
        assert answer.status == "queued", answer
        return name

    def listen(self) -> list[Delivery]:
        """Everything published for this front so far."""
        while (message := self._pubsub.get_message(timeout=0)) is not None:
            self.heard.append(Delivery.from_wire(message["data"]))
        return self.heard

    def await_deliveries(self, count: int, timeout_s: float = 20.0) -> list[Delivery]:
        """Wait until ``count`` messages were published; returns all."""
        eventually(lambda: len(self.listen()) >= count, timeout_s, f"{count} publication(s), had {len(self.heard)}")
        return self.heard

    def await_state(self, job_id: str, state: str, timeout_s: float = 20.0) -> None:
        eventually(lambda: self.queue.job_state(job_id) == state, timeout_s, f"job {job_id} {state}")

    def close(self) -> None:
        self._pubsub.close()


class ThreadWorker:
    """A worker's loop and lease keeper in threads of the test."""

    def __init__(
        self,
        client: redis.Redis,
        limits: QueueLimits,
        transcriber: Transcriber,
        *,
        name: str = "w1",
        max_batch: int = 1,
        audio_cache_bytes: int = 1_000_000,
        seed: int = 1,
        clock: Clock | None = None,
    ) -> None:
        clock, rng = clock or SystemClock(), random.Random(seed)
        self.stop = Stop()
        self.queue = JobQueue(client, limits=limits)
        self.metrics = WorkerMetrics(CollectorRegistry())
        self.activity = Activity(clock, self.stop)
        self.lost: list[str] = []
        self.keeper = LeaseKeeper(
            self.queue, limits.lease_ms / 1000, rng, on_lost=lambda lease: self.lost.append(lease.job.id)
        )
        self.worker = Worker(
            name,
            self.queue,
            AudioBuffer(client),
            transcriber,
            keeper=self.keeper,
            activity=self.activity,
            stop=self.stop,
            metrics=self.metrics,
            clock=clock,
            rng=rng,
            max_batch=max_batch,
            audio_cache_bytes=audio_cache_bytes,
            idle_wait_s=0.5,
        )
        self._threads = [
            threading.Thread(target=self.worker.run, daemon=True),
            threading.Thread(target=self.keeper.run, args=(self.stop.draining,), daemon=True),
        ]

    def __enter__(self) -> ThreadWorker:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop.request()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive(), "the worker did not end"

    def outcomes(self) -> dict[str, float]:
        """Jobs by what became of them, over all kinds."""
        found: dict[str, float] = {}
        for metric in self.metrics.jobs.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    found[sample.labels["outcome"]] = found.get(sample.labels["outcome"], 0) + sample.value
        return found


def scripted(script: Script | None = None) -> ScriptedTranscriber:
    """A stand-in that takes its simulated time in real time."""
    return ScriptedTranscriber(
        script or Script(base_s=0, per_audio_s=0), pause=threading.Event().wait, crash=lambda status: None
    )


class WorkerProcess:
    """``python -m workers`` as a child process."""

    def __init__(
        self,
        redis_url: str,
        folder: Path,
        script: Mapping[str, object],
        *,
        prometheus_dir: Path | None = None,
        **settings: object,
    ) -> None:
        table = folder / f"script-{random.SystemRandom().getrandbits(32):08x}.json"
        table.write_text(json.dumps(script))
        self.log = table.with_suffix(".log")
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}  # noqa: TID251
        environment |= {
            "REDIS_URL": redis_url,
            "HEARLINE_TRANSCRIBER": "scripted",
            "HEARLINE_SCRIPT": str(table),
            "HEARLINE_LOG_LEVEL": "debug",
            **{f"HEARLINE_{name.upper()}": str(value) for name, value in settings.items()},
        }
        if prometheus_dir is not None:
            environment["PROMETHEUS_MULTIPROC_DIR"] = str(prometheus_dir)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "workers"], cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def await_exit(self, timeout_s: float = 20.0) -> int:
        """Its exit status; fails the test with its log when it does not end."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end within {timeout_s} s:\n{self.text()}") from None

    def running(self) -> bool:
        return self._process.poll() is None

    def text(self) -> str:
        """All it wrote."""
        return self.log.read_text(errors="replace")

    def await_log(self, event: str) -> None:
        """Wait until its log has a line about ``event``."""
        eventually(lambda: event in self.text(), 20, f"{event!r} in the worker's log")

    def await_ready(self, queue: JobQueue) -> None:
        """Wait for its heartbeat in state ready."""

        def ready() -> bool:
            assert self.running(), self.text()
            return any(w.info["pid"] == self.pid and w.state == "ready" for w in queue.workers())

        eventually(ready, 30, "a ready worker")

    def end(self) -> None:
        if self.running():
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait()


@contextmanager
def worker_process(
    redis_url: str,
    folder: Path,
    script: Mapping[str, object],
    *,
    prometheus_dir: Path | None = None,
    **settings: object,
) -> Iterator[WorkerProcess]:
    """A worker process that is gone afterwards."""
    process = WorkerProcess(redis_url, folder, script, prometheus_dir=prometheus_dir, **settings)
    try:
        yield process
    finally:
        process.end()


@contextmanager
def desk_at(redis_url: str, limits: QueueLimits) -> Iterator[Desk]:
    """A desk with its own connections."""
    client = connect(redis_url)
    desk = Desk(client, limits)
    try:
        yield desk
    finally:
        desk.close()
        client.close()


@contextmanager
def tidy_desk_at(redis_url: str, limits: QueueLimits) -> Iterator[Desk]:
    """A desk that cancels every session it has heard of, so that nothing of them stays."""
    with desk_at(redis_url, limits) as desk:
        yield desk
        for session in {delivery.session for delivery in desk.listen()}:
            desk.queue.cancel_session(session)
