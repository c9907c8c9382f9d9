"""A session out of what Redis holds of it: how a stream goes on on another connection, at whichever front end.

The detector of speech goes on from the newest anchor that was noted: the audio stored since then is heard once more,
and cut as it would have been (`sessions.anchor`); what was asked for stays as it was noted (`sessions.ledger`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sessions.anchor import Anchor
from sessions.codes import ErrorCode
from sessions.course import Ending
from sessions.endpointing import FRAME_BYTES
from sessions.errors import WireError
from sessions.ledger import NotedFinal, StoredSession, final_field, seq_field
from sessions.options import StreamOptions
from sessions.wire import Start, decode_client


@dataclass(frozen=True, slots=True)
class Resumption:
    """What a session goes on from. Positions are bytes."""

    session: str
    epoch: int
    options: StreamOptions
    endpoint_s: float | None
    started_ms: int
    label: str
    language: str | None
    """That of the stream, where it is known."""
    ending: Ending | None
    """Set where no more audio is taken."""
    error: tuple[ErrorCode, str] | None
    """That ended the stream."""
    segment: int
    """The next one."""
    said: tuple[NotedFinal, ...]
    """Finals that the client has, oldest first, as far as they are noted."""
    lacking: tuple[NotedFinal, ...]
    """Finals that it does not have, oldest first."""
    forgotten: bool
    """It lacks others that nobody knows any more."""
    covered: int
    base: int
    held: int
    anchor: Anchor
    """The stored audio is heard once more from here on."""

    @property
    def received(self) -> int:
        """Everything before was accepted and need not be sent again."""
        return max(self.held, self.covered)

    @property
    def hear_to(self) -> int:
        return max(self.held, self.anchor.hear_from)


def resumption(stored: StoredSession, last_seq: int) -> Resumption:
    """Read a stored session for a client that has everything up to number ``last_seq``. Raises ValueError when it
    cannot be read."""
    fields = stored.fields
    finals = _finals(fields)
    # What is said comes in order, so the first final that the client lacks is the first of all that it lacks.
    first = next((i for i, noted in enumerate(finals) if noted.seq is None or noted.seq > last_seq), len(finals))
    newest = finals[-1] if finals else None
    covered = 0 if newest is None else newest.covers_to
    error = json.loads(fields["over"]) if "over" in fields else None
    endpoint = fields["endpoint_ms"]
    return Resumption(
        session=stored.session,
        epoch=stored.epoch,
        options=StreamOptions(_start(fields["start"]), chosen=True),
        endpoint_s=None if endpoint == "off" else int(endpoint) / 1000,
        started_ms=int(fields.get("started_ms", 0)),
        label=fields.get("label", ""),
        language=fields.get("language_found"),
        ending=Ending(fields["ending"]) if "ending" in fields else None,
        error=None if error is None else (ErrorCode(error[0]), str(error[1])),
        segment=0 if newest is None else newest.segment + 1,
        said=tuple(finals[:first]),
        lacking=tuple(finals[first:]),
        forgotten=int(fields.get("forgotten_seq", 0)) > last_seq,
        covered=covered,
        base=stored.base,
        held=stored.held,
        anchor=_anchor(fields.get("anchor"), max(stored.base, covered)),
    )


def _anchor(text: str | None, needed_from: int) -> Anchor:
    if text is not None:
        return Anchor.decode(text)
    # None was noted yet; or never will be, by a front end that knows no anchors: then the detector begins anew here.
    at = -(-needed_from // FRAME_BYTES) * FRAME_BYTES
    return Anchor(at, at)


def _finals(fields: Mapping[str, str]) -> list[NotedFinal]:
    prefix = final_field(0)[:-1]
    segments = sorted(int(name.removeprefix(prefix)) for name in fields if name.startswith(prefix))
    return [NotedFinal.read(at, fields[final_field(at)], fields.get(seq_field(at))) for at in segments]


def _start(text: str) -> Start:
    try:
        message = decode_client(text)
    except WireError as error:
        raise ValueError(f"not a start message: {error}") from error
    if not isinstance(message, Start):
        raise TypeError("not a start message")
    return message
