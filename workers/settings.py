"""What a worker can be told through its environment."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from queueing.settings import QueueSettings


class WorkerSettings(QueueSettings):
    """Settings of ``python -m workers``."""

    model: str = Field(
        "bundled",
        min_length=1,
        description="The Whisper model: `bundled` (tiny.en, installed with Hearline), a directory in CTranslate2 "
        "format, or a faster-whisper size such as tiny.en, base.en or large-v3 (fetched from the model hub once).",
    )
    model_dir: Path | None = Field(
        None,
        description="Where models from the hub are kept; a model found there is used without asking the hub. "
        "Unset: the hub client's own cache.",
    )
    device: str = Field(
        "auto",
        pattern=r"^(auto|cpu|cuda)$",
        description="Where to decode: auto (a GPU if there is one), cpu or cuda.",
    )
    compute_type: str = Field(
        "default",
        pattern=r"^(default|auto|int8|int8_float32|int8_float16|int8_bfloat16|int16|float16|bfloat16|float32)$",
        description="Arithmetic of the model: default is int8 on a CPU and float16 on a GPU; "
        "else a CTranslate2 compute type.",
    )
    threads: int = Field(
        0,
        ge=0,
        le=256,
        description="CPU threads of one decode; 0 takes all CPUs that this process may use but one, at most 4.",
    )
    language: str | None = Field(
        None,
        pattern=r"^[a-z]{2,3}$",
        description="Language when a stream names none, as a code such as en or de. "
        "Unset: English-only models use en, multilingual ones detect it (one more encoder pass).",
    )
    partial_beam: int = Field(1, ge=1, le=10, description="Beam size of partials; 1 is greedy.")
    final_beam: int = Field(5, ge=1, le=10, description="Beam size of finals.")
    window: str = Field(
        "auto",
        pattern=r"^(auto|full)$",
        description="Length of the encoder's window: auto sizes it to the audio as calibrated for the model, "
        "full always takes Whisper's 30 s.",
    )
    calibration: Path | None = Field(
        None,
        description="File that `hearline calibrate` wrote for the model. Unset: `hearline-calibration.json` in the "
        "model's directory if it is there, else what ships for the model.",
    )
    max_batch: int = Field(
        8, ge=1, le=32, description="Jobs that a worker decodes at once, as far as their predicted time allows."
    )
    max_batch_ms: float = Field(
        500.0,
        ge=1,
        le=60_000,
        description="Milliseconds that a batch of several jobs may take, as the worker predicts it from its own "
        "decodes: a final that comes just behind it waits so long.",
    )
    audio_cache_bytes: int = Field(
        67_108_864,
        ge=0,
        le=2**40,
        description="Bytes of open segments' audio that a worker keeps, so that a partial reads only what is new; "
        "a second of audio takes 32,000. 0 keeps none.",
    )
    max_decode_s: float = Field(
        60.0,
        ge=1,
        le=3600,
        description="Seconds a decode may take for each job in it; beyond it the worker ends itself, so that its jobs "
        "go to others.",
    )
    drain_s: float = Field(
        30.0,
        ge=0,
        le=600,
        description="Seconds after SIGTERM in which a running decode may finish; then its jobs are given back.",
    )
    transcriber: str = Field(
        "whisper",
        pattern=r"^(whisper|scripted)$",
        description="whisper decodes; scripted makes text up from the bytes in a simulated time, without a model.",
    )
    script: Path | None = Field(
        None,
        description="Table (JSON) of the scripted transcriber: times, texts, faults. Unset: its defaults.",
    )
    worker_metrics_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="Port on which this worker serves its own /metrics; unset: none. `hearline up` gives it to the "
        "first of its workers, and the next ones count up.",
    )
    worker_metrics_host: str = Field("127.0.0.1", description="Address of that port.")

    @model_validator(mode="after")
    def _script_belongs_to_the_scripted(self) -> Self:
        if self.script is not None and self.transcriber != "scripted":
            raise ValueError(
                f"HEARLINE_SCRIPT={str(self.script)!r} needs HEARLINE_TRANSCRIBER=scripted, not {self.transcriber!r}"
            )
        return self
