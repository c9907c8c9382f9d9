"""What a session asks its surroundings to do: values, carried out in order by the stream's one thread.

When an effect fails, the later effects of its own class in the same list are skipped, the others are still
carried out, and the session is told:

=================  =======================================================================
AppendAudio        ``on_append_failed``; Enqueue effects of the list are skipped too
Enqueue            its answer goes to ``on_enqueued``; when Redis stays away, ``on_enqueue_failed``
ReadEvents         its answer goes to ``on_events``; a failure is left to the next ReadEvents
TrimAudio          nothing: a later one makes up for it
Send, Close        the client is gone: ``on_disconnect``
=================  =======================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queueing.job import NewJob
from sessions.codes import CloseCode
from sessions.wire import ServerMessage


@dataclass(frozen=True, slots=True)
class OpenBuffer:
    """Create the session's buffer with this description (`AudioBuffer.create`); before any AppendAudio."""

    meta: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AppendAudio:
    """Append whole samples at this byte offset (`AudioBuffer.append`). Empty data only renews the expiry.

    ``follows``: where the piece before ended: silence between the two was left out. ``keep_from``: what lies before
    will not be read again.
    """

    offset: int
    data: bytes
    follows: int
    keep_from: int


@dataclass(frozen=True, slots=True)
class TrimAudio:
    """Forget the audio before this position (`AudioBuffer.trim`): it is final. Best effort."""

    before: int


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Queue this job (`JobQueue.enqueue`); the answer belongs to ``on_enqueued`` before the next input."""

    job: NewJob


@dataclass(frozen=True, slots=True)
class CancelPartial:
    """Remove the session's partial from the queue (`JobQueue.cancel_partial`)."""


@dataclass(frozen=True, slots=True)
class CancelSession:
    """The session is over: remove its jobs and events (`JobQueue.cancel_session`) and its audio. Idempotent."""


@dataclass(frozen=True, slots=True)
class ReadEvents:
    """Read the durable events after this id (`JobQueue.events`) and hand them to ``on_events``."""

    after: str | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message to the client."""

    message: ServerMessage


@dataclass(frozen=True, slots=True)
class Close:
    """Close the socket; nothing is sent afterwards."""

    code: CloseCode
    reason: str


Effect = OpenBuffer | AppendAudio | TrimAudio | Enqueue | CancelPartial | CancelSession | ReadEvents | Send | Close
