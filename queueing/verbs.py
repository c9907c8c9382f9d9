"""The typed signature of each script: which keys it gets, which arguments, in which order.

The class of a verb and the header of its Lua file say the same; tests/lua/test_headers.py holds them together.
``KEYS`` are attribute names of `QueueKeys`. A field that is a tuple comes last and is passed element by element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import chain
from typing import ClassVar

Scalar = str | int | float

LANE_KEYS = ("heads", "lane_prefix", "wake")
"""What a script needs to move jobs in and out of lanes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One call of a script."""

    SCRIPT: ClassVar[str]
    KEYS: ClassVar[tuple[str, ...]]

    def arguments(self) -> Iterator[Scalar]:
        """ARGV in order."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, tuple):
                yield value
            elif value and isinstance(value[0], tuple):
                yield from chain.from_iterable(value)
            else:
                yield from value


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue(Verb):
    SCRIPT = "enqueue"
    KEYS = (
        *LANE_KEYS, "job_prefix", "leases", "open_partial", "session_prefix", "session_jobs_prefix",
        "arrivals_prefix", "costs", "counts",
    )  # fmt: skip

    now_ms: int
    id: str
    session: str
    kind: str
    segment: int
    lane: str
    prior_cost_ms: float
    max_queued: int
    job_ttl_ms: int
    tombstone_ms: int
    fields: tuple[tuple[str, Scalar], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Verb):
    SCRIPT = "claim"
    KEYS = (*LANE_KEYS, "job_prefix", "leases", "claim_prefix", "counts")

    now_ms: int
    worker: str
    nonce: str
    max_jobs: int
    lease_ms: int
    batches: str
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renew(Verb):
    SCRIPT = "renew"
    KEYS = ("job_prefix", "leases")

    now_ms: int
    lease_ms: int
    job_ttl_ms: int
    held: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete(Verb):
    SCRIPT = "complete"
    KEYS = (
        "job_prefix", "leases", "open_partial", "session_prefix", "session_jobs_prefix", "events_prefix",
        "costs", "counts",
    )  # fmt: skip

    now_ms: int
    id: str
    session: str
    generation: int
    decode_ms: float
    result: str
    front_prefix: str
    events_ttl_ms: int
    max_events: int
    job_ttl_ms: int
    learn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail(Verb):
    SCRIPT = "fail"
    KEYS = (
        *LANE_KEYS, "job_prefix", "leases", "open_partial", "session_prefix", "session_jobs_prefix",
        "events_prefix", "dead", "counts",
    )  # fmt: skip

    now_ms: int
    id: str
    session: str
    generation: int
    retry: int
    error_code: str
    message: str
    max_attempts: int
    front_prefix: str
    events_ttl_ms: int
    max_events: int
    job_ttl_ms: int
    dead_ttl_ms: int
    max_dead: int
    keep: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Verb):
    SCRIPT = "release"
    KEYS = (*LANE_KEYS, "job_prefix", "leases", "counts")

    job_ttl_ms: int
    held: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelPartial(Verb):
    SCRIPT = "cancel_partial"
    KEYS = (*LANE_KEYS, "job_prefix", "leases", "open_partial", "session_jobs_prefix", "counts")

    session: str
    tombstone_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSession(Verb):
    SCRIPT = "cancel_session"
    KEYS = (
        *LANE_KEYS, "job_prefix", "leases", "open_partial", "session_prefix", "session_jobs_prefix",
        "events_prefix", "counts",
    )  # fmt: skip

    session: str
    tombstone_ms: int
    keep: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopt(Verb):
    SCRIPT = "adopt"
    KEYS = ("job_prefix", "session_jobs_prefix")

    session: str
    front: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Verb):
    SCRIPT = "sweep"
    KEYS = Fail.KEYS

    now_ms: int
    batch: int
    max_attempts: int
    stale_partial_ms: int
    max_wait_ms: int
    front_prefix: str
    events_ttl_ms: int
    max_events: int
    job_ttl_ms: int
    dead_ttl_ms: int
    max_dead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPolicy(Verb):
    SCRIPT = "set_policy"
    KEYS = ("policy", *LANE_KEYS, "job_prefix")

    now_ms: int
    name: str
    expected: str
    ranks: tuple[tuple[str, int, float, float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Register(Verb):
    SCRIPT = "register"
    KEYS = ("workers", "worker_prefix")

    now_ms: int
    worker: str
    ttl_ms: int
    record: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleDead(Verb):
    SCRIPT = "settle_dead"
    KEYS = (*LANE_KEYS, "job_prefix", "session_jobs_prefix", "dead", "counts")

    now_ms: int
    id: str
    retry: int
    job_ttl_ms: int


VERBS: tuple[type[Verb], ...] = (
    Enqueue, Claim, Renew, Complete, Fail, Release, CancelPartial, CancelSession, Adopt, Sweep,
    SetPolicy, Register, SettleDead,
)  # fmt: skip
