"""What of a session must outlive its connection, as fields of its description in Redis (`docs/redis-keys.md`).

Written before it counts: what a final covers before its job is queued, the number of a final before it is sent. So
whenever a connection or a front end is lost, what Redis holds is enough for another (`sessions.resumption`), and what
the client may have heard is known there. Audio speaks for itself: the stream goes on where the stored audio ends.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sessions.codes import ErrorCode
from sessions.finals import DueFinal
from sessions.wire import Final

KEPT_FINALS = 64
"""Finals of which it is known under which number they were sent. A client that lacks older ones cannot be helped; what
is under way to a client that has stopped reading is less (`api.socket` bounds it), and twice as many events are kept
(`queueing.limits`)."""


def digest(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def final_field(segment: int) -> str:
    """Name of the field that says what a final covers and decodes."""
    return f"final:{segment}"


def seq_field(segment: int) -> str:
    """Name of the field with the number under which a final was said last."""
    return f"seq:{segment}"


@dataclass(frozen=True, slots=True)
class ResumeTerms:
    """How a stream can be resumed: by whom, and for how long after its connection was lost."""

    token: str = field(repr=False)
    """Of this connection."""
    grace_s: float
    label: str = ""
    """Of the API key that its client came with."""


@dataclass(slots=True)
class Ledger:
    """One stream's fields. Without ``terms`` it is never resumed, and nothing is noted of it."""

    terms: ResumeTerms | None
    epoch: int = 1
    opened: bool = False
    """Redis has the description: from now on a lost connection may come back."""
    said: deque[tuple[int, int]] = field(default_factory=deque)
    """(segment, number) of the finals that are noted as said, oldest first."""

    @property
    def on(self) -> bool:
        return self.terms is not None

    @property
    def held(self) -> bool:
        """Whether the session waits for its client should the connection be lost."""
        return self.terms is not None and self.opened

    def go_on(self, epoch: int, said: Iterable[NotedFinal]) -> None:
        """Take up the fields of a stream as they are; ``said``: the finals that its client has."""
        self.epoch, self.opened = epoch, True
        self.said.extend((final.segment, final.seq or 0) for final in said)

    def opening(self, start: str) -> dict[str, str]:
        """The stream's options are settled: its start message as JSON."""
        if self.terms is None:
            return {"token": ""} if self.opened else {}
        return {
            "token": digest(self.terms.token),
            "label": self.terms.label,
            "epoch": str(self.epoch),
            "start": start,
        }

    def asked(self, finals: Iterable[DueFinal]) -> dict[str, str]:
        """These finals are asked for."""
        if not self.on:
            return {}
        return {final_field(due.segment): _encoded(due) for due in finals}

    def saying(
        self, finals: Sequence[tuple[DueFinal, Final]], language: str | None
    ) -> tuple[dict[str, str], tuple[str, ...]]:
        """These finals are about to be sent: fields to note, and names of those to forget. ``language``: the stream's
        by now."""
        fields = {seq_field(due.segment): str(message.seq) for due, message in finals}
        if language is not None:
            fields["language_found"] = language
        self.said += [(due.segment, message.seq) for due, message in finals]
        gone: list[str] = []
        while len(self.said) > KEPT_FINALS:
            segment, seq = self.said.popleft()
            gone += [final_field(segment), seq_field(segment)]
            fields["forgotten_seq"] = str(seq)
        return fields, tuple(gone)


def ended(why: str) -> dict[str, str]:
    """No more audio is taken, and that holds for every connection to come."""
    return {"ending": why}


def failed(code: ErrorCode, problem: str) -> dict[str, str]:
    """The stream ended with an error that its client may have missed."""
    return {"over": json.dumps([code.value, problem])}


def _encoded(due: DueFinal) -> str:
    job = due.job
    part = [] if job is None else [job.start_byte, job.end_byte, job.speech_s]
    return json.dumps([due.covers_from, due.covers_to, due.last, *part], separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as Redis holds it: its description, and the audio from ``base`` up to ``held``."""

    session: str
    fields: Mapping[str, str]
    held: int

    @property
    def epoch(self) -> int:
        return int(self.fields.get("epoch", 0))

    @property
    def base(self) -> int:
        return int(self.fields.get("base", 0))


@dataclass(frozen=True, slots=True)
class NotedFinal:
    """A final as it was noted. ``part``: start and end byte of what is decoded, seconds of speech in it; None: nothing
    is. ``seq``: the number it was said under, None while it was not."""

    segment: int
    covers_from: int
    covers_to: int
    last: bool
    part: tuple[int, int, float | None] | None
    seq: int | None

    @classmethod
    def read(cls, segment: int, text: str, seq: str | None) -> NotedFinal:
        """From its two fields. Raises ValueError when they are not those of a final."""
        try:
            covers_from, covers_to, last, *part = json.loads(text)
            start, end, speech_s = part or (0, 0, None)
        except TypeError as error:
            raise ValueError(f"not a noted final: {text!r}") from error
        return cls(
            segment, covers_from, covers_to, last, (start, end, speech_s) if part else None, int(seq) if seq else None
        )
