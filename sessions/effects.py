"""What a session asks its surroundings to do: values, carried out in order by the stream's one thread.

When an effect fails, the later effects of its own class in the same list are skipped, the others are still
carried out, and the session is told:

=================  =======================================================================
AppendAudio        ``on_append_failed``; Enqueue effects of the list are skipped too
Remember           ``on_remember_failed``; Enqueue and Send effects of the list are skipped too
TakeUp             ``on_resume_refused`` or ``on_append_failed``
Enqueue            its answer goes to ``on_enqueued``; when Redis stays away, ``on_enqueue_failed``
ReadEvents         its answer goes to ``on_events``; a failure is left to the next ReadEvents
TrimAudio          nothing: a later one makes up for it
Send, Close        the client is gone: ``on_disconnect``
=================  =======================================================================

What writes to the session's keys names the session's ``epoch``. Where Redis answers that a newer connection has the
session, ``on_taken_over`` is told instead, and Append, Remember, Enqueue and Send effects of the list are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from queueing.job import NewJob
from sessions.codes import CloseCode
from sessions.wire import Resume, ServerMessage


@dataclass(frozen=True, slots=True)
class OpenBuffer:
    """Create the session's buffer with this description (`AudioBuffer.create`); before any AppendAudio."""

    meta: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AppendAudio:
    """Append whole samples at this byte offset (`AudioBuffer.append`). Empty data only renews the expiry.

    ``follows``: where the piece before ended: silence between the two was left out. ``keep_from``: what lies before
    will not be read again. ``fields`` are noted in the description, together with the audio or not at all.
    """

    offset: int
    data: bytes
    follows: int
    keep_from: int
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Remember:
    """Note ``fields`` of the session's description and forget those ``gone`` (`AudioBuffer.remember`), before anything
    that follows. Audio before ``before`` is final."""

    fields: Mapping[str, str]
    gone: tuple[str, ...] = ()
    before: int = 0


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
class CancelJobs:
    """The session has failed, and nobody waits for its decodes any more: note ``fields`` and remove its jobs. Its
    events stay, for a client that may have missed the end (`JobQueue.cancel_session`)."""

    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Park:
    """The connection is lost: keep everything for a client that may come back (`Parking.park`), with these ``fields``
    noted before. ``keep_slot``: its slot too, for the stream was cut off."""

    keep_slot: bool
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TakeUp:
    """Go on with another session on this connection: the one that this message names, if it is this client's."""

    message: Resume


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


Effect = (
    OpenBuffer
    | AppendAudio
    | Remember
    | TrimAudio
    | Enqueue
    | CancelPartial
    | CancelSession
    | CancelJobs
    | Park
    | TakeUp
    | ReadEvents
    | Send
    | Close
)
