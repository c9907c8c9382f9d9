"""Every key of a session. ``{s:ID}`` is a hash tag, so sessions spread over a cluster's slots; all expire."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SESSION_ID = re.compile(r"^[A-Za-z0-9_-]{1,64}$")


def check_session_id(session: str) -> str:
    """Return the id; raises ValueError for one that could not be part of a key or a job id."""
    if not _SESSION_ID.match(session):
        raise ValueError(f"session id {session!r}: 1 to 64 letters, digits, '-' and '_' are allowed")
    return session


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """The keys of the session ``session``."""

    session: str

    @property
    def prefix(self) -> str:
        return f"hl:{{s:{self.session}}}:"

    @property
    def audio(self) -> str:
        return f"{self.prefix}audio"

    @property
    def meta(self) -> str:
        return f"{self.prefix}meta"


def partial_job_id(session: str, number: int) -> str:
    """The id of the session's ``number``-th partial request."""
    return f"{session}:p:{number}"


def final_job_id(session: str, segment: int) -> str:
    """The id of the final of a segment: asking for it twice is one job."""
    return f"{session}:f:{segment}"
