"""Metrics of the streams' side. docs/measurements.md says from where to where each time runs."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sessions.summary import StreamSummary

LATENCY_BUCKETS_S = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 30.0, 60.0)
DELAY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
AMPLIFICATION_BUCKETS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 13.0, 20.0, 40.0)
GAUGE_MODES = ("livesum", "livemax")


@dataclass(frozen=True, slots=True)
class Delivered:
    """What is known of a message that carries a transcript when it has been handed to the socket."""

    kind: str
    policy: str
    delay_s: float


class StreamMetrics:
    """Counters, gauges and histograms of one web process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.active = Gauge(
            "hearline_streams_active",
            "Streams open at this moment.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.ended = Counter(
            "hearline_streams",
            "Streams that ended, by outcome (done, disconnected or an error code) and the server's close code.",
            ["outcome", "close_code"],
            registry=registry,
        )
        self.rejected = Counter(
            "hearline_streams_rejected",
            "Upgrade requests refused before the upgrade.",
            ["reason"],
            registry=registry,
        )
        self.buffered_bytes = Gauge(
            "hearline_buffered_audio_bytes",
            "Audio accepted but not yet in Redis, over all streams.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.held_up = Gauge(
            "hearline_streams_held_up",
            "Streams whose step waits for Redis or for their client at this moment.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.received_s = Counter(
            "hearline_audio_received_seconds", "Audio accepted and stored, in seconds of audio.", registry=registry
        )
        self.decoded_s = Counter(
            "hearline_audio_decoded_seconds",
            "Audio in decodes that were delivered, in seconds of audio; over the received seconds: re-decoding.",
            ["kind", "policy"],
            registry=registry,
        )
        self.messages = Counter(
            "hearline_transcripts_sent", "Transcript messages sent.", ["kind", "policy"], registry=registry
        )
        self.delivery_delay_s = Histogram(
            "hearline_delivery_delay_seconds",
            "From the completion in Redis to the socket.",
            ["kind", "policy"],
            registry=registry,
            buckets=DELAY_BUCKETS_S,
        )
        self.final_latency_s = Histogram(
            "hearline_final_latency_seconds",
            "From the request for a final (flush, end, limit) to its message at the socket.",
            ["policy"],
            registry=registry,
            buckets=LATENCY_BUCKETS_S,
        )
        self.partial_staleness_s = Histogram(
            "hearline_partial_staleness_seconds",
            "Age of the newest audio in a partial when it is sent.",
            ["policy"],
            registry=registry,
            buckets=LATENCY_BUCKETS_S,
        )
        self.first_partial_s = Histogram(
            "hearline_first_partial_seconds",
            "From a stream's first audio to its first partial.",
            registry=registry,
            buckets=LATENCY_BUCKETS_S,
        )
        self.amplification = Histogram(
            "hearline_stream_amplification_ratio",
            "Decoded seconds per second of audio, one value a stream.",
            registry=registry,
            buckets=AMPLIFICATION_BUCKETS,
        )
        self.send_timeouts = Counter(
            "hearline_send_timeouts", "Streams closed because their client did not read in time.", registry=registry
        )
        self.dead_peers = Counter(
            "hearline_dead_peers", "Streams closed because no byte came after a ping.", registry=registry
        )
        self.gap_repairs = Counter(
            "hearline_gap_repairs",
            "Finals that arrived through the durable events because their publication was lost.",
            registry=registry,
        )
        self.mailbox_overflows = Counter(
            "hearline_mailbox_overflows", "Times a stream's mailbox was full and dropped a delivery.", registry=registry
        )
        self.redis_failures = Counter(
            "hearline_redis_failures",
            "Redis operations of streams that failed, by operation, each attempt counted.",
            ["operation"],
            registry=registry,
        )
        self.parked = Counter(
            "hearline_streams_parked", "Streams whose connection was lost and that wait for it.", registry=registry
        )
        self.resumes = Counter(
            "hearline_resumes",
            "Clients that came to resume a stream, by outcome (resumed, refused, failed).",
            ["outcome"],
            registry=registry,
        )
        self.reaped = Counter(
            "hearline_streams_reaped", "Parked streams that nobody resumed in time.", registry=registry
        )
        self.handler_faults = Counter("hearline_stream_faults", "Unexpected exceptions in a stream.", registry=registry)

    def stream_ended(self, summary: StreamSummary, *, delivered: bool) -> None:
        """Account for a finished stream; ``delivered``: whether any decode was delivered to it."""
        self.ended.labels(summary.outcome, str(summary.close_code or "none")).inc()
        if summary.gap_repairs:
            self.gap_repairs.inc(summary.gap_repairs)
        if summary.first_partial_s is not None:
            self.first_partial_s.observe(summary.first_partial_s)
        if delivered and summary.audio_bytes:
            self.amplification.observe(summary.amplification)


class KeyMetrics:
    """What is known of API keys in one web process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.keys = Gauge(
            "hearline_api_keys", "API keys that the key file holds.", registry=registry, multiprocess_mode="livemax"
        )
        self.broken = Gauge(
            "hearline_api_keys_file_broken",
            "1 while the key file cannot be used, and the keys read before are valid still.",
            registry=registry,
            multiprocess_mode="livemax",
        )
        self.failures = Counter(
            "hearline_api_keys_read_failures",
            "Times that the log was told of a key file that cannot be used.",
            registry=registry,
        )
        self.refused = Counter(
            "hearline_access_refused",
            "Requests refused for who or where they come from: no_key, wrong_key, expired_key, conflicting_keys, "
            "too_many_attempts, origin, host.",
            ["reason"],
            registry=registry,
        )
