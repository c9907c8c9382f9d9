"""What of a stream is kept in Redis, and from when on: its audio, and what another connection would go on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sessions.course import Course, Phase
from sessions.decodes import Decodes
from sessions.degraded import Degraded
from sessions.effects import AppendAudio, Effect, Remember, Send, TrimAudio
from sessions.finals import DueFinal
from sessions.intake import Intake
from sessions.ledger import ResumeTerms
from sessions.limits import KEEP_BUFFER_S, MAX_WAITING_AUDIO_S, MAX_WAITING_FINALS, SessionLimits, in_bytes
from sessions.segments import Segment
from sessions.wire import BYTES_PER_SECOND, Ack, Final

ACK_BYTES = in_bytes(2.0)
ACK_PAUSE_S = 1.0
"""A client that may come back is told what is stored after this much more of it, and not more often."""

_MAX_WAITING_BYTES = in_bytes(MAX_WAITING_AUDIO_S)


class Storing(Course):
    """A stream's audio on its way in, the decodes it asks for, and what is noted of both."""

    def __init__(
        self, session: str, front: str, limits: SessionLimits, terms: ResumeTerms | None, *, now: float
    ) -> None:
        super().__init__(session, limits, terms, now=now)
        self.intake = Intake(limits)
        self.decodes = Decodes(session, front, limits)
        self._degraded = Degraded()
        self._stored_at = now
        self._trimmed = 0
        self._acked = self._held = 0
        self._acked_at = now

    @property
    def full(self) -> bool:
        """So much waits for its final that no more shall be taken."""
        outbox = self.decodes.outbox
        starts_at = outbox.starts_at()
        behind = 0 if starts_at is None else self.intake.accepted - starts_at
        return len(outbox) >= MAX_WAITING_FINALS or behind >= _MAX_WAITING_BYTES

    @property
    def lag_s(self) -> float:
        """How much of the newest audio has no text yet, not even a partial's; 0 where none will come."""
        waiting, spoken = self.decodes.outbox.starts_at(), self.intake.open
        if waiting is None and spoken is not None and self.decodes.partials_wanted:
            waiting = spoken.start_byte
        if waiting is None:
            return 0.0
        return max(0, self.intake.accepted - max(waiting, self.decodes.plan.shown)) / BYTES_PER_SECOND

    def tell_load(self, now: float) -> list[Effect]:
        """How the stream lags, when that has changed notably."""
        if self.phase in (Phase.WAITING, Phase.CLOSED):
            return []
        plan = self.decodes.plan
        stretched = plan.stretched if self.decodes.partials_wanted else 1.0
        status = self._degraded.look(now, lag_s=self.lag_s, interval_s=plan.interval_s, stretched=stretched)
        return [] if status is None else [Send(status)]

    def keep_buffer(self, now: float) -> list[Effect]:
        """Renew the expiry of what is stored, now and then."""
        stored = self.intake.stored
        if not stored or now < self._stored_at + KEEP_BUFFER_S:
            return []
        self._stored_at = now
        return [AppendAudio(stored, b"", follows=stored, keep_from=self._needed_from())]

    @property
    def ack_at(self) -> float | None:
        """When the client is to be told how far its audio is held; None while there is no news."""
        if not self.ledger.on or self.phase is Phase.CLOSED or self._held < self._acked + ACK_BYTES:
            return None
        return self._acked_at + ACK_PAUSE_S

    def acknowledge(self, now: float) -> list[Effect]:
        """As `stored`, of what was before."""
        return self.stored(now, self._held)

    def stored(self, now: float, position: int) -> list[Effect]:
        """The buffer holds the audio up to here: a client that may come back is told, now and then."""
        self._held = position
        if self.ack_at is None or now < self.ack_at:
            return []
        self._acked, self._acked_at = position, now
        return [Send(Ack(received_s=position / BYTES_PER_SECOND))]

    def _store(self, now: float, parts: Sequence[Segment] = ()) -> list[Effect]:
        """Store what is not stored yet; ``parts``: segments that have ended in it and will be asked for."""
        needed_from = self._needed_from()
        pieces = self.intake.store(min(needed_from, parts[0].start_byte) if parts else needed_from)
        if not pieces:
            return []
        self._stored_at = now
        return [*pieces[:-1], replace(pieces[-1], fields=self._anchor())]

    def _anchor(self) -> dict[str, str]:
        anchor = self.intake.note_anchor()
        return {} if anchor is None else {"anchor": anchor.encode()}

    def _needed_from(self) -> int:
        return self.decodes.needed_from(self.intake.keep_from)

    def _noted(self, stored: list[Effect], finals: int, fields: Mapping[str, str]) -> list[Effect]:
        """What the newest ``finals`` finals cover is noted together with their audio, or by itself."""
        if not self.ledger.on:
            return stored
        fields = self.ledger.asked(self.decodes.outbox.newest(finals)) | dict(fields)
        if stored and isinstance(stored[-1], AppendAudio):
            return [*stored[:-1], replace(stored[-1], fields={**stored[-1].fields, **fields})]
        return [*stored, Remember(fields | self._anchor())]

    def _say(self, finals: Sequence[tuple[DueFinal, Final]]) -> list[Effect]:
        """Send finals; of a stream that may be resumed, their numbers are noted before, in one go with forgetting their
        audio: their texts are kept by the queue."""
        sends: list[Effect] = [Send(message) for _, message in finals]
        if not finals or not self.ledger.on:
            return sends
        before = min(self._needed_from(), self.intake.stored)
        self._trimmed = max(self._trimmed, before)
        return [Remember(*self.ledger.saying(finals, self.decodes.options.language), self._trimmed), *sends]

    def _trim(self) -> list[Effect]:
        before = min(self._needed_from(), self.intake.stored)
        if before <= self._trimmed:
            return []
        self._trimmed = before
        return [TrimAudio(before)]

    def confirm(self) -> list[Effect]:
        """Learn from a write that changes nothing whether a newer connection has the stream: word of it may be lost."""
        return [TrimAudio(self._trimmed)] if self.ledger.held else []
