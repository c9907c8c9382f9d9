"""Jobs as Redis holds them: the hash's text fields to values and back."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from queueing.errors import BadJob
from queueing.job import LeasedJob, NewJob
from queueing.keys import FRONT_CHANNEL_PREFIX
from queueing.lane import Kind, Lane
from queueing.limits import QueueLimits
from queueing.verbs import Complete, Scalar

NAME = re.compile(r"[A-Za-z0-9_.:@-]{1,128}")
"""What ids of jobs, sessions, workers and front ends look like: they become parts of keys and of JSON."""

MAX_OPTIONS_BYTES = 16_384
MAX_RESULT_BYTES = 1_048_576
MAX_MESSAGE_CHARS = 500

LEASED_VALUES = (
    "generation", "attempts", "session", "segment", "start_byte", "end_byte", "audio_s", "speech_s", "front", "options",
    "cost_ms", "id", "lane", "arrival_ms", "claimed_ms", "lease_until_ms",
)  # fmt: skip
"""The order in which claim returns what there is to know of a job."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Everything Redis knows of a job; what does not apply is None.

    ``lease_until_ms`` is not in the hash: only a listing of leased jobs fills it in.
    """

    job: NewJob
    lane: Lane
    state: str
    arrival_ms: int
    attempts: int
    generation: int
    cost_ms: float
    worker: str | None
    claimed_ms: int | None
    lease_until_ms: int | None
    completed_ms: int | None
    died_ms: int | None
    error_code: str | None
    error_message: str | None


def text(value: Any) -> str:
    """A reply's string, whichever way the client decodes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def text_map(reply: Mapping[Any, Any]) -> dict[str, str]:
    """A hash as HGETALL gives it, as names and values."""
    return {text(name): text(value) for name, value in reply.items()}


def decode_job(fields: Mapping[str, str]) -> NewJob:
    """The job itself, from its hash's fields."""
    return NewJob(
        id=fields["id"],
        session=fields["session"],
        kind=Kind(fields["kind"]),
        segment=int(fields["segment"]),
        start_byte=int(fields["start_byte"]),
        end_byte=int(fields["end_byte"]),
        audio_s=float(fields["audio_s"]),
        speech_s=float(known) if (known := fields.get("speech_s")) else None,
        front=fields["front"],
        options=json.loads(fields.get("options", "{}")),
    )


def decode_leased(values: Sequence[Any]) -> LeasedJob:
    """Read a job as claim returns it."""
    fields = {name: text(value) for name, value in zip(LEASED_VALUES, values, strict=True) if value is not None}
    lane = Lane.parse(fields["lane"])
    fields["kind"] = lane.kind
    return LeasedJob(
        job=decode_job(fields),
        lane=lane,
        generation=int(fields["generation"]),
        attempt=int(fields["attempts"]),
        arrival_ms=int(fields["arrival_ms"]),
        claimed_ms=int(fields["claimed_ms"]),
        lease_until_ms=int(fields["lease_until_ms"]),
        cost_ms=float(fields["cost_ms"]),
    )


def decode_record(reply: Mapping[Any, Any]) -> JobRecord:
    """Read a job's hash."""
    fields = text_map(reply)

    def number(name: str) -> int | None:
        return int(fields[name]) if name in fields else None

    return JobRecord(
        job=decode_job(fields),
        lane=Lane.parse(fields["lane"]),
        state=fields["state"],
        arrival_ms=int(fields["arrival_ms"]),
        attempts=int(fields["attempts"]),
        generation=int(fields["generation"]),
        cost_ms=float(fields["cost_ms"]),
        worker=fields.get("worker"),
        claimed_ms=number("claimed_ms"),
        lease_until_ms=None,
        completed_ms=number("completed_ms"),
        died_ms=number("died_ms"),
        error_code=fields.get("error_code"),
        error_message=fields.get("error_message"),
    )


def encode_fields(job: NewJob) -> tuple[tuple[str, Scalar], ...]:
    """The fields of a job's hash that neither identify nor place it."""
    return (
        ("start_byte", job.start_byte),
        ("end_byte", job.end_byte),
        ("audio_s", float(job.audio_s)),
        ("speech_s", "" if job.speech_s is None else float(job.speech_s)),
        ("front", job.front),
        ("options", json.dumps(job.options, separators=(",", ":"))),
    )


def checked_lane(job: NewJob) -> Lane:
    """The lane of a job that may be queued; raises `BadJob` with what is wrong, the limit and the fix."""
    for what, value in (("id", job.id), ("session", job.session), ("front", job.front)):
        check_name(what, value)
    if job.segment < 0:
        raise BadJob(f"job {job.id}: segment is {job.segment}, segments count from 0")
    if not 0 <= job.start_byte < job.end_byte:
        raise BadJob(f"job {job.id}: bytes {job.start_byte} to {job.end_byte} are no audio; 0 <= start < end must hold")
    try:
        size = len(json.dumps(job.options))
        lane = job.lane
    except (TypeError, ValueError) as error:
        raise BadJob(f"job {job.id}: {error}") from error
    if size > MAX_OPTIONS_BYTES:
        raise BadJob(f"job {job.id}: its options take {size} bytes of JSON, at most {MAX_OPTIONS_BYTES} are allowed")
    return lane


def check_name(what: str, value: str) -> None:
    """Raise `BadJob` unless ``value`` can stand in a key."""
    if not NAME.fullmatch(value):
        raise BadJob(f"{what} {value!r} must be 1 to 128 characters of A-Z a-z 0-9 _ . : @ -")


def encode_result(job_id: str, result: Mapping[str, object]) -> str:
    """A worker's result as JSON; raises `BadJob` when it is none or too long."""
    try:
        body = json.dumps(result, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadJob(f"the result of job {job_id} is not JSON: {error}") from error
    if len(body) > MAX_RESULT_BYTES:
        raise BadJob(f"the result of job {job_id} takes {len(body)} bytes, at most {MAX_RESULT_BYTES} are allowed")
    return body


@dataclass(frozen=True, slots=True)
class Completion:
    """A result to be published: JSON text, and this job's share (ms) of a worker's time.

    Without ``learn`` the lane's cost stays as it is: the time says nothing of what its jobs cost.
    """

    lease: LeasedJob
    result: str
    decode_ms: float
    learn: bool = True

    @classmethod
    def of(cls, lease: LeasedJob, result: Mapping[str, object], *, decode_ms: float, learn: bool = True) -> Self:
        """Raises `BadJob` for a result that is not JSON or is over `MAX_RESULT_BYTES`."""
        return cls(lease, encode_result(lease.job.id, result), max(0.001, float(decode_ms)), learn)

    def verb(self, limits: QueueLimits, now_ms: int) -> Complete:
        """The call of the script that publishes it."""
        return Complete(
            now_ms=now_ms,
            id=self.lease.job.id,
            session=self.lease.job.session,
            generation=self.lease.generation,
            decode_ms=self.decode_ms,
            result=self.result,
            front_prefix=FRONT_CHANNEL_PREFIX,
            events_ttl_ms=limits.events_ttl_ms,
            max_events=limits.max_events,
            job_ttl_ms=limits.job_ttl_ms,
            learn=int(self.learn),
        )
