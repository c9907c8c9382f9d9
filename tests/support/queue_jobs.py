"""Jobs and queues for tests, in a line each."""

from __future__ import annotations

import itertools

from queueing.job import LeasedJob, NewJob
from queueing.job_queue import JobQueue
from queueing.lane import PADDING_S, Kind, Lane

START_MS = 1_700_000_000_000
"""A time of day for tests that give their own."""

_NONCES = itertools.count()


def final(session: str, segment: int = 0, audio_s: float = 3.0, *, front: str = "front-1") -> NewJob:
    """The final of a segment."""
    return NewJob(
        id=f"{session}:f:{segment}",
        session=session,
        kind=Kind.FINAL,
        segment=segment,
        start_byte=0,
        end_byte=max(2, int(audio_s * 16_000) * 2),
        audio_s=audio_s,
        front=front,
        options={"language": "en"},
    )


def partial(session: str, number: int = 0, audio_s: float = 1.0, *, segment: int = 0, front: str = "front-1") -> NewJob:
    """A session's ``number``-th partial."""
    return NewJob(
        id=f"{session}:p:{number}",
        session=session,
        kind=Kind.PARTIAL,
        segment=segment,
        start_byte=0,
        end_byte=max(2, int(audio_s * 16_000) * 2),
        audio_s=audio_s,
        front=front,
        options={"language": "en"},
    )


def in_lane(job_id: str, lane: Lane, *, session: str | None = None) -> NewJob:
    """A job that queues in ``lane``."""
    audio_s = max(0.0, float(lane.window_s) - PADDING_S)
    return NewJob(
        id=job_id,
        session=session or f"session-of-{job_id}",
        kind=lane.kind,
        segment=0,
        start_byte=0,
        end_byte=max(2, int(audio_s * 16_000) * 2),
        audio_s=audio_s,
        front="front-1",
    )


def nonce() -> str:
    """A nonce that was not used before."""
    return f"nonce-{next(_NONCES)}"


def claim_one(queue: JobQueue, worker: str = "worker-1", *, now_ms: int = 0) -> LeasedJob:
    """Claim exactly one job; fails when nothing waits."""
    (lease,) = queue.claim(worker, nonce(), now_ms=now_ms)
    return lease
