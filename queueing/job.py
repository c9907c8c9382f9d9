"""Jobs as values: what is asked for, what a worker holds, what comes back.

queued -> leased -> done | queued again (lease lost, attempt + 1) | dead (attempts used up) | cancelled
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from queueing.lane import MAX_JOB_AUDIO_S, Kind, Lane


@dataclass(frozen=True, slots=True)
class NewJob:
    """A decode to be queued.

    ``start_byte``/``end_byte`` address the session's audio buffer; ``options`` are the decode options of
    this session (opaque to the queue, JSON-able); ``segment`` is the index of the final that this job is,
    or that this partial leads up to. Ids make enqueueing idempotent: the same id twice is one job.
    ``speech_s`` is how many of the ``audio_s`` seconds are speech, when somebody knows: what the decode costs follows
    it, so the lane does too. Raises ValueError when it cannot be.
    """

    id: str
    session: str
    kind: Kind
    segment: int
    start_byte: int
    end_byte: int
    audio_s: float
    front: str
    options: dict[str, Any] = field(default_factory=dict)
    speech_s: float | None = None

    def __post_init__(self) -> None:
        for name, seconds in (("audio_s", self.audio_s), ("speech_s", self.speech_s)):
            if seconds is not None and not 0 <= seconds <= MAX_JOB_AUDIO_S:
                raise ValueError(
                    f"job {self.id}: {name} is {seconds}; a job holds 0 to {MAX_JOB_AUDIO_S:g} s: cut longer audio"
                )

    @property
    def lane(self) -> Lane:
        """Where this job queues, from its kind and its seconds of speech, or of audio while nobody knows those."""
        return Lane.for_audio(self.kind, self.audio_s if self.speech_s is None else min(self.speech_s, self.audio_s))


@dataclass(frozen=True, slots=True)
class LeasedJob:
    """A job in a worker's hands; the (id, generation) pair is the right to complete it."""

    job: NewJob
    lane: Lane
    generation: int
    attempt: int
    arrival_ms: int
    claimed_ms: int
    lease_until_ms: int
    cost_ms: float

    @property
    def queue_ms(self) -> int:
        """Milliseconds from arrival to claim, in Redis time."""
        return self.claimed_ms - self.arrival_ms


@dataclass(frozen=True, slots=True)
class Renewed:
    """The leases that were not extended: ``lost`` to others or to time, or of jobs ``cancelled`` meanwhile."""

    lost: tuple[LeasedJob, ...] = ()
    cancelled: tuple[LeasedJob, ...] = ()

    @classmethod
    def of(cls, leases: Sequence[LeasedJob], places: Sequence[int]) -> Renewed:
        """From the answer of the script: places in ``leases`` from 1, below 0 for a cancelled job."""
        return cls(
            lost=tuple(leases[place - 1] for place in places if place > 0),
            cancelled=tuple(leases[-place - 1] for place in places if place < 0),
        )


class EnqueueStatus(StrEnum):
    """What became of an enqueue."""

    QUEUED = "queued"
    EXTENDED = "extended"
    """The session's queued partial now covers the newer audio and kept its age."""
    BUSY = "busy"
    """The session's partial is being decoded; ask again when its result is in."""
    DUPLICATE = "duplicate"
    """This id is known already (queued, leased or finished): nothing was done."""
    OBSOLETE = "obsolete"
    """A partial whose segment already has its final."""
    FULL = "full"
    """The queue holds as many jobs as it may; finals are still taken above the limit for partials."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer to an enqueue. ``superseded``: a queued partial of this session was removed for it."""

    status: EnqueueStatus
    superseded: bool = False


class CompleteStatus(StrEnum):
    """What became of a completion or failure report."""

    DONE = "done"
    STALE = "stale"
    """The lease was lost to an older or newer generation: nothing was published. Not an error."""
    CANCELLED = "cancelled"
    """The job was cancelled while it was decoded (its session ended, or its final came): nothing was published."""
    REQUEUED = "requeued"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One published outcome, as a front end receives it by pub/sub or reads it from the durable events.

    ``event_id`` is the durable event's id, None for a partial. ``outcome`` is ``done`` or ``dead``;
    ``result`` is the worker's JSON object when done, ``error`` has ``code`` and ``message`` when dead.
    """

    event_id: str | None
    session: str
    job: str
    kind: Kind
    segment: int
    outcome: str
    start_byte: int
    end_byte: int
    audio_s: float
    attempt: int
    queue_ms: int
    decode_ms: int
    completed_ms: int
    result: dict[str, Any] | None
    error: dict[str, str] | None

    def body(self) -> str:
        """The JSON text of everything but the event id."""
        return json.dumps(
            {name: getattr(self, name) for name in self.__slots__ if name != "event_id"},
            separators=(",", ":"),
        )

    def wire(self) -> str:
        """What is published: the event id (``-`` for none), a space, the JSON body."""
        return f"{self.event_id or '-'} {self.body()}"

    @staticmethod
    def from_body(event_id: str | None, body: str | bytes) -> Delivery:
        """Read a body; raises ValueError when it is not one."""
        try:
            fields = json.loads(body)
            fields["kind"] = Kind(fields["kind"])
            return Delivery(event_id=event_id, **fields)
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"not a delivery: {error}") from error

    @staticmethod
    def from_wire(message: str | bytes) -> Delivery:
        """Read a published message; raises ValueError when it is not one."""
        text = message.decode() if isinstance(message, bytes) else message
        event_id, _, body = text.partition(" ")
        return Delivery.from_body(None if event_id == "-" else event_id, body)
