"""One worker process put together: its parts, its threads, its end."""

from __future__ import annotations

import os
import platform
import random
import re
import threading
from collections.abc import Callable
from importlib.metadata import version

import redis
import structlog
from prometheus_client import CollectorRegistry

from queueing.clock import Clock
from queueing.connect import check_redis
from queueing.errors import QueueUnavailable, SettingsError
from queueing.job_queue import JobQueue
from queueing.rescue import Rescuer
from sessions.audio_buffer import AudioBuffer
from workers.heartbeat import HEARTBEAT_S, Heartbeat
from workers.lease_keeper import LeaseKeeper
from workers.lifecycle import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_SETTINGS,
    Activity,
    Stop,
    Watch,
    WatchLimits,
    WorkerState,
    backoff_s,
    said_in_time,
)
from workers.load import Loaded, load_transcriber
from workers.metrics import WorkerMetrics
from workers.model_files import ModelError
from workers.settings import WorkerSettings
from workers.worker import Worker

POLICY_EVERY_BEATS = 5
"""The policy is only a label of metrics here: ten seconds late is early enough."""

log = structlog.get_logger()


class Process:
    """The parts of one worker process and their threads."""

    def __init__(
        self,
        settings: WorkerSettings,
        client: redis.Redis,
        stop: Stop,
        *,
        clock: Clock,
        rng: random.Random,
        registry: CollectorRegistry,
        crash: Callable[[int], object],
    ) -> None:
        self.settings = settings
        self.stop = stop
        self.clock = clock
        self.rng = rng
        self._crash = crash
        host = re.sub(r"[^A-Za-z0-9_.-]", "-", platform.node())[:64] or "host"
        self.worker_id = f"{host}-{os.getpid()}-{self.rng.getrandbits(24):06x}"
        self.client = client
        self.queue = JobQueue.of(client, settings)
        self.metrics = WorkerMetrics(registry)
        self.activity = Activity(self.clock, stop)
        self.keeper = LeaseKeeper(
            self.queue, settings.lease_s, self.rng, on_lost=lambda _lease: self.metrics.lease_losses.inc()
        )
        self.heartbeat = Heartbeat(self.queue, self.worker_id, self._info, self._after_beat)
        self.rescuer = Rescuer(self.queue, clock, rng)
        self.finished = threading.Event()
        self.failure = ""
        self.failure_status = EXIT_FAILED
        self._beats = 0
        self._loaded: Loaded | None = None

    def run(self) -> int:
        """Work until told to stop; returns the exit status. The model loads and decodes in a thread of its own, so
        that signals and deadlines are seen at any time."""
        heart = self._start("heartbeat", self.heartbeat.run)
        if not self._await_redis():
            return EXIT_DONE
        self._start("lease-keeper", lambda: self.keeper.run(self.finished))
        self._start("rescue", lambda: self.rescuer.run(self.stop.draining))
        self._start("decode", self._load_and_work)
        watch = Watch(
            self.activity,
            self.stop,
            WatchLimits(self.settings.max_decode_s, self.settings.drain_s),
            self.clock,
            held=self.keeper.held,
            release=self.queue.release,
            on_drain=self.heartbeat.nudge,
        )
        status = watch.run(self.finished)
        if status is None:
            status = self.failure_status if self.failure else EXIT_DONE
        leaves = status == EXIT_DONE or self.finished.is_set()
        if leaves and not said_in_time(lambda: self._farewell(heart)):
            log.info("left_unnoticed", reason="Redis does not answer")
        return status

    def _await_redis(self) -> bool:
        """Wait until Redis answers and is safe to use; False when told to stop first. Raises `UnsafeRedis`."""
        attempt = 0
        while not self.stop.draining.is_set():
            try:
                log.info("redis_found", redis_version=check_redis(self.client), queue=self.settings.queue)
                return True
            except QueueUnavailable as error:
                if attempt == 0:
                    log.warning("redis_away", reason=str(error))
            self.stop.draining.wait(backoff_s(attempt, self.rng))
            attempt += 1
        return False

    def _load_and_work(self) -> None:
        try:
            self._enter(WorkerState.LOADING)
            began_s = self.clock.monotonic()
            self._loaded = load_transcriber(self.settings, crash=self._crash)
            log.info("model_ready", seconds=round(self.clock.monotonic() - began_s, 2), **self._loaded.description)
            self._enter(WorkerState.READY)
            Worker(
                self.worker_id,
                self.queue,
                AudioBuffer(self.client),
                self._loaded.transcriber,
                keeper=self.keeper,
                activity=self.activity,
                stop=self.stop,
                metrics=self.metrics,
                clock=self.clock,
                rng=self.rng,
                max_batch=self.settings.max_batch,
                max_batch_ms=self.settings.max_batch_ms,
                audio_cache_bytes=self.settings.audio_cache_bytes,
            ).run()
        except (ModelError, SettingsError) as error:
            self.failure = str(error)
            if not (isinstance(error, ModelError) and error.retry):
                self.failure_status = EXIT_SETTINGS
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            log.exception("worker_failed")
        finally:
            self.finished.set()

    def _enter(self, state: WorkerState) -> None:
        self.activity.enter(state)
        self.heartbeat.nudge()

    def _info(self) -> dict[str, object]:
        settings = self.settings
        return {
            "state": str(self.activity.state),
            "model": settings.model if settings.transcriber == "whisper" else settings.transcriber,
            "host": platform.node(),
            "pid": os.getpid(),
            "version": version("hearline"),
            "last_decode_ms": round(self.activity.last_decode_ms, 1),
            "decodes": self.activity.decodes,
            "max_batch": settings.max_batch,
            **(self._loaded.description if self._loaded else {}),
        }

    def _after_beat(self) -> None:
        self.metrics.measure_process()
        if self._beats % POLICY_EVERY_BEATS == 0:
            self.metrics.policy = self.queue.policy().name
        self._beats += 1

    def _farewell(self, heart: threading.Thread) -> None:
        self.heartbeat.end()
        heart.join(HEARTBEAT_S)  # a beat after the farewell would bring the record back
        try:
            self.queue.forget_worker(self.worker_id)
        except QueueUnavailable as error:
            log.info("left_unnoticed", reason=str(error))

    @staticmethod
    def _start(name: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        return thread
