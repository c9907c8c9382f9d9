"""Every key of the queue. ``{q:NAME}`` is a hash tag: one queue lives in one cluster slot.

docs/redis-keys.md lists the same keys with types, contents and expiry; a test compares the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from queueing.lane import Lane

FRONT_CHANNEL_PREFIX = "hl:front:"

PERMANENT = re.compile(
    r"^hl:\{q:[^}]+\}:(lane:.+|heads|leases|open-partial|dead|costs|policy|workers|wake|streams|parked|counts)$"
)
"""The permanent keys of docs/redis-keys.md: bounded by design, so without expiry. Every other key expires."""


def front_channel(front: str) -> str:
    """The pub/sub channel on which one front-end process hears results."""
    return f"{FRONT_CHANNEL_PREFIX}{front}"


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """The keys of the queue ``name``."""

    name: str

    @property
    def prefix(self) -> str:
        return f"hl:{{q:{self.name}}}:"

    @property
    def lane_prefix(self) -> str:
        return f"{self.prefix}lane:"

    def lane(self, lane: Lane) -> str:
        return f"{self.lane_prefix}{lane.name}"

    @property
    def heads(self) -> str:
        return f"{self.prefix}heads"

    @property
    def job_prefix(self) -> str:
        return f"{self.prefix}job:"

    def job(self, job_id: str) -> str:
        return f"{self.job_prefix}{job_id}"

    @property
    def events_prefix(self) -> str:
        return f"{self.prefix}events:"

    def events(self, session: str) -> str:
        return f"{self.events_prefix}{session}"

    @property
    def worker_prefix(self) -> str:
        return f"{self.prefix}worker:"

    def worker(self, worker: str) -> str:
        return f"{self.worker_prefix}{worker}"

    @property
    def leases(self) -> str:
        return f"{self.prefix}leases"

    @property
    def open_partial(self) -> str:
        return f"{self.prefix}open-partial"

    @property
    def dead(self) -> str:
        return f"{self.prefix}dead"

    @property
    def costs(self) -> str:
        return f"{self.prefix}costs"

    @property
    def policy(self) -> str:
        return f"{self.prefix}policy"

    @property
    def workers(self) -> str:
        return f"{self.prefix}workers"

    @property
    def wake(self) -> str:
        return f"{self.prefix}wake"

    @property
    def counts(self) -> str:
        return f"{self.prefix}counts"

    @property
    def streams(self) -> str:
        return f"{self.prefix}streams"

    @property
    def streams_of_prefix(self) -> str:
        return f"{self.prefix}streams-of:"

    def streams_of(self, owner: str) -> str:
        return f"{self.streams_of_prefix}{owner}"

    @property
    def tries_of_prefix(self) -> str:
        return f"{self.prefix}tries-of:"

    def tries_of(self, owner: str) -> str:
        return f"{self.tries_of_prefix}{owner}"

    @property
    def parked(self) -> str:
        return f"{self.prefix}parked"

    @property
    def arrivals_prefix(self) -> str:
        return f"{self.prefix}arrivals:"

    def arrivals(self, minute: int) -> str:
        return f"{self.arrivals_prefix}{minute}"

    @property
    def session_prefix(self) -> str:
        return f"{self.prefix}session:"

    def session(self, session: str) -> str:
        return f"{self.session_prefix}{session}"

    @property
    def session_jobs_prefix(self) -> str:
        return f"{self.prefix}session-jobs:"

    def session_jobs(self, session: str) -> str:
        return f"{self.session_jobs_prefix}{session}"

    @property
    def claim_prefix(self) -> str:
        return f"{self.prefix}claim:"

    def claim(self, worker: str) -> str:
        return f"{self.claim_prefix}{worker}"
