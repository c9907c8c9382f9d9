"""What the web process reads from its environment, beyond the queue's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from api.addresses import parse_networks
from api.origins import ANY, Allowed, parse_list, split_authority, split_origin
from queueing.settings import QueueSettings
from sessions.exposure import listens_on_loopback
from sessions.wire import MAX_ENDPOINT_MS, MIN_ENDPOINT_MS

MAX_TEXT_BYTES = 65_536
"""Largest text message: a start message with every field set is below 1 KiB."""


class ApiSettings(QueueSettings):
    """Settings of ``python -m api``; times in seconds, sizes in bytes."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address to listen on. One that other machines reach (0.0.0.0, ::) needs HEARLINE_API_KEYS or "
        "HEARLINE_ALLOW_ANONYMOUS.",
    )
    port: int = Field(8000, ge=1, le=65_535, description="TCP port to listen on.")
    api_keys: Path | None = Field(
        None,
        description="File of API keys, made by `hearline keys add` and read again when it changes. Unset: nobody needs "
        "a key.",
    )
    allow_anonymous: bool = Field(
        False, description="Whether a service without API keys may listen where other machines reach it."
    )
    metrics_open: bool = Field(False, description="Whether /metrics needs no API key where streams need one.")
    allowed_origins: str = Field(
        "",
        description="Web pages that may open streams beside those of this server itself: https://NAME[:PORT], "
        "comma-separated; * for all.",
    )
    allowed_hosts: str = Field(
        "",
        description="Names by which requests may call this server, comma-separated; * for all. Unset: names of this "
        "machine (localhost) while it listens on loopback, else all.",
    )
    web_processes: int = Field(1, ge=1, le=64, description="gunicorn processes that share the port.")
    max_streams: int = Field(
        200,
        ge=1,
        le=100_000,
        description="Streams open at once over every web process and machine of this queue; more get HTTP 503.",
    )
    process_streams: int = Field(
        200,
        ge=1,
        le=2_000,
        description="Streams open at once in one web process (a thread each); more get HTTP 503.",
    )
    http_threads: int = Field(
        16, ge=4, le=256, description="Threads kept free of streams, for health, metrics and refusals."
    )
    http_timeout_s: float = Field(
        10.0,
        ge=1,
        le=120,
        description="Longest silence before a request, and longest time from its whole head to its answer.",
    )
    max_streams_per_address: int = Field(
        0,
        ge=0,
        le=100_000,
        description="Streams open at once from one client address (of IPv6: one /64), over every web process and "
        "machine; more get HTTP 429. This machine's own addresses do not count. 0: any number.",
    )
    max_tries_per_address: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Streams that one client address may ask for in a minute, counted likewise; more get HTTP 429. "
        "0: any number.",
    )
    max_stream_rate: float = Field(
        50.0,
        ge=0,
        le=10_000,
        description="Audio that one stream may send, in multiples of real time, after 200 s at once; what comes faster "
        "is read more slowly. 0: as fast as it comes.",
    )
    trusted_proxies: str = Field(
        "",
        description="Addresses and networks of proxies, separated by commas, whose X-Forwarded-For says where a "
        "request comes from.",
    )
    max_predicted_wait_s: float = Field(
        10.0,
        ge=0,
        le=3_600,
        description="New streams get HTTP 503 while a final would wait longer than this for a worker. 0: never.",
    )
    redis_memory_limit: int = Field(
        0,
        ge=0,
        description="Bytes that Redis may use, where its own maxmemory does not say so; at 90 % of the lower one new "
        "streams get HTTP 503. 0: only maxmemory counts.",
    )
    max_audio_s: float | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Audio one stream may send; then it is ended, and told so. Unset: no limit.",
    )
    max_frame_bytes: int = Field(
        1_048_576, ge=64, le=16_777_216, description="Largest binary message; a larger one ends the stream with 1009."
    )
    handshake_timeout_s: float = Field(
        10.0, ge=0.1, le=120, description="Wait for a first message before the stream starts with default options."
    )
    idle_timeout_s: float = Field(
        60.0, ge=0.2, le=3_600, description="Silence of a client (no message, not even keepalive) that ends its stream."
    )
    inference_timeout_s: float = Field(
        60.0, ge=0.2, le=3_600, description="Longest wait for a final transcript before its stream fails."
    )
    send_timeout_s: float = Field(
        10.0, ge=0.1, le=120, description="Longest time one message may take to reach a client's socket."
    )
    ping_interval_s: float = Field(
        20.0,
        ge=0.1,
        le=600,
        description="Quiet time after which a client is pinged; twice this without a byte is dead.",
    )
    partial_interval_s: float = Field(
        1.0, ge=0.1, le=60, description="New audio between two partial transcripts of a stream."
    )
    min_partial_audio_s: float = Field(
        0.5, ge=0.1, le=20, description="Speech a segment must have before its first partial."
    )
    endpoint_ms: int = Field(
        800,
        ge=0,
        le=MAX_ENDPOINT_MS,
        description="Pause that ends a segment, in milliseconds from 100 on; a stream may choose its own. "
        "0: none does, and silence is decoded too.",
    )
    drain_s: float = Field(
        30.0,
        ge=0,
        le=600,
        description="Time after SIGTERM in which streams get the final of their audio so far, then `shutting_down`.",
    )
    stop_mark: str = Field(
        "",
        description="A file that whoever stops the service for good makes before it sends SIGTERM, as `hearline up` "
        "does. Where it is, clients that would come back get the final of their audio so far as well.",
    )
    resume_grace_s: float = Field(
        30.0,
        ge=0,
        le=900,
        description="Time in which a client whose connection was lost may resume its stream. 0: never, nothing waits.",
    )
    event_timing: bool = Field(True, description="Whether finals carry queue and decode times.")
    metrics_dir: str = Field(
        "",
        alias="PROMETHEUS_MULTIPROC_DIR",
        description="Folder in which all processes of one machine keep their metrics; empty: a temporary one.",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _networks_are_valid(cls, value: str) -> str:
        parse_networks(value)
        return value

    @field_validator("endpoint_ms")
    @classmethod
    def _pause_is_possible(cls, value: int) -> int:
        if 0 < value < MIN_ENDPOINT_MS:
            raise ValueError(f"give {MIN_ENDPOINT_MS} to {MAX_ENDPOINT_MS}, or 0 for no cuts at pauses")
        return value

    @field_validator("allowed_origins")
    @classmethod
    def _origins_are_origins(cls, value: str) -> str:
        for entry in parse_list(value) - {ANY, "null"}:
            if split_origin(entry) is None:
                raise ValueError(f"{entry!r} is no origin; write https://NAME or https://NAME:PORT, without a path")
        return value

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts_are_names(cls, value: str) -> str:
        for entry in parse_list(value) - {ANY}:
            if (authority := split_authority(entry)) is None or authority[1] is not None:
                raise ValueError(f"{entry!r} is no host name; write NAME, or an IPv6 address in brackets, no port")
        return value

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_audio_s is not None and self.min_partial_audio_s > self.max_audio_s:
            raise ValueError(
                f"no stream could have a partial: HEARLINE_MIN_PARTIAL_AUDIO_S={self.min_partial_audio_s} exceeds "
                f"HEARLINE_MAX_AUDIO_S={self.max_audio_s}; lower the first or raise the second"
            )
        return self

    @property
    def bind(self) -> str:
        """Address and port as gunicorn wants them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def allowed(self) -> Allowed:
        """Which pages may use the service, and under which names. Raises OSError when ``host`` has no address."""
        return Allowed(
            origins=parse_list(self.allowed_origins),
            hosts=parse_list(self.allowed_hosts),
            loopback_only=listens_on_loopback(self.host),
        )

    @property
    def threads(self) -> int:
        """Threads of one web process: one a stream, and the reserve."""
        return self.process_streams + self.http_threads
