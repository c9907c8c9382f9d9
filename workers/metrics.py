"""Metrics of a worker's side. docs/measurements.md says from where to where each time runs."""

from __future__ import annotations

from collections.abc import Mapping

import psutil
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from queueing.job import LeasedJob

ROUND_TRIP_BUCKETS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)
DECODE_BUCKETS_S = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 30.0, 60.0, 120.0)
WAIT_BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 300.0, 1800.0)
RATIO_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 5.0)
BATCH_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

GAUGE_MODES = ("liveall",)


class WorkerMetrics:
    """Counters, gauges and histograms of one worker process. ``policy`` is the label of all that depends on it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.policy = "unknown"
        self.claim_s = Histogram(
            "hearline_claim_seconds",
            "One claim's round trip, by whether it brought jobs (jobs, none).",
            ["found"],
            registry=registry,
            buckets=ROUND_TRIP_BUCKETS_S,
        )
        self.complete_s = Histogram(
            "hearline_complete_seconds",
            "One round trip that reports results, of a whole batch, or one failure.",
            registry=registry,
            buckets=ROUND_TRIP_BUCKETS_S,
        )
        self.queue_wait_s = Histogram(
            "hearline_queue_wait_seconds",
            "From a job's arrival in the queue to its claim, in Redis time.",
            ["kind", "policy"],
            registry=registry,
            buckets=WAIT_BUCKETS_S,
        )
        self.decode_s = Histogram(
            "hearline_decode_seconds",
            "One call of the model for a batch, voice detection included.",
            ["kind", "policy"],
            registry=registry,
            buckets=DECODE_BUCKETS_S,
        )
        self.real_time_factor = Histogram(
            "hearline_real_time_factor",
            "Decode seconds per second of audio in the batch.",
            ["kind", "policy"],
            registry=registry,
            buckets=RATIO_BUCKETS,
        )
        self.batch_size = Histogram(
            "hearline_batch_size",
            "Jobs decoded in one call.",
            ["kind", "policy"],
            registry=registry,
            buckets=BATCH_BUCKETS,
        )
        self.jobs = Counter(
            "hearline_worker_jobs",
            "Claimed jobs by what became of them: done, stale, cancelled, requeued, dead or released.",
            ["kind", "policy", "outcome"],
            registry=registry,
        )
        self.lease_losses = Counter(
            "hearline_lease_losses",
            "Leases of held jobs that Redis no longer granted, cancelled jobs aside.",
            registry=registry,
        )
        self.decoded_audio_s = Counter(
            "hearline_worker_decoded_audio_seconds",
            "Audio decoded, delivered or not, in seconds of audio; over the received seconds: amplification.",
            ["kind", "policy"],
            registry=registry,
        )
        self.audio_bytes = Counter(
            "hearline_worker_audio_bytes",
            "Bytes of audio of claimed jobs by where they came from: redis, or what was fetched before (cache).",
            ["source"],
            registry=registry,
        )
        self.fallbacks = Counter(
            "hearline_decode_fallbacks",
            "What became of decodes besides their first text, by reason: decoded once more, gone on with, dropped.",
            ["reason"],
            registry=registry,
        )
        self._fallbacks_seen: dict[str, int] = {}
        self.redis_failures = Counter(
            "hearline_worker_redis_failures",
            "Redis operations that failed and were tried again, by operation.",
            ["operation"],
            registry=registry,
        )
        self.cpu_s = Gauge(
            "hearline_worker_cpu_seconds",
            "CPU time of the worker process.",
            registry=registry,
            multiprocess_mode="liveall",
        )
        self.resident_bytes = Gauge(
            "hearline_worker_resident_bytes",
            "Memory of the worker process.",
            registry=registry,
            multiprocess_mode="liveall",
        )
        self.threads = Gauge(
            "hearline_worker_threads",
            "Threads of the worker process, the model's included.",
            registry=registry,
            multiprocess_mode="liveall",
        )
        self._process = psutil.Process()

    def claimed(self, leases: tuple[LeasedJob, ...], seconds: float) -> None:
        """Account for one claim."""
        self.claim_s.labels("jobs" if leases else "none").observe(seconds)
        for lease in leases:
            self.queue_wait_s.labels(lease.job.kind, self.policy).observe(max(lease.queue_ms, 0) / 1000)

    def decoded(self, kind: str, jobs: int, audio_s: float, seconds: float) -> None:
        """Account for one call of the model."""
        self.decode_s.labels(kind, self.policy).observe(seconds)
        self.batch_size.labels(kind, self.policy).observe(jobs)
        self.decoded_audio_s.labels(kind, self.policy).inc(audio_s)
        if audio_s > 0:
            self.real_time_factor.labels(kind, self.policy).observe(seconds / audio_s)

    def fetched(self, read: int, kept: int) -> None:
        """Account for a job's audio: bytes from Redis, bytes that were here."""
        self.audio_bytes.labels("redis").inc(read)
        self.audio_bytes.labels("cache").inc(kept)

    def redone(self, counters: Mapping[str, int]) -> None:
        """Take over what the transcriber has counted since the last time."""
        for reason, count in counters.items():
            self.fallbacks.labels(reason).inc(count - self._fallbacks_seen.get(reason, 0))
            self._fallbacks_seen[reason] = count

    def finished(self, lease: LeasedJob, outcome: str) -> None:
        """Account for what became of a claimed job."""
        self.jobs.labels(lease.job.kind, self.policy, outcome).inc()

    def measure_process(self) -> None:
        """Read CPU, memory and threads from the operating system."""
        with self._process.oneshot():
            times = self._process.cpu_times()
            self.cpu_s.set(times.user + times.system)
            self.resident_bytes.set(self._process.memory_info().rss)
            self.threads.set(self._process.num_threads())
