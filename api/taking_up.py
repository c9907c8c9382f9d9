"""A client is back: its session is taken up where Redis has it, by this process."""

from __future__ import annotations

from dataclasses import dataclass

import redis
import structlog

from api.admission import Ticket
from api.cleaner import Cleaner
from api.limiter import Limiter
from api.metrics import StreamMetrics
from queueing.clock import Clock
from queueing.errors import QueueUnavailable
from queueing.job_queue import JobQueue
from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer
from sessions.errors import AudioLost, ResumeRefused
from sessions.events import FrontListener, announce_taken
from sessions.keys import check_session_id
from sessions.ledger import ResumeTerms, StoredSession, digest
from sessions.limits import SessionLimits
from sessions.parking import Parking
from sessions.resumption import Resumption, resumption
from sessions.session import Session
from sessions.wire import Resume

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TakingUp:
    """What it takes, shared by all streams of a process."""

    client: redis.Redis
    queue: JobQueue
    buffer: AudioBuffer
    slots: StreamSlots
    parking: Parking
    limiter: Limiter
    cleaner: Cleaner
    metrics: StreamMetrics
    clock: Clock
    listener: FrontListener
    front: str
    limits: SessionLimits

    def __call__(self, message: Resume, ticket: Ticket, terms: ResumeTerms) -> Session:
        """The session that ``message`` names, for the connection of ``ticket``, which has its slot and its mail then.

        Raises `ResumeRefused`, `QueueUnavailable`, and `AudioLost` when what is needed of it is not held any more.
        """
        try:
            stored = self._claim(message, terms)
            session = self._go_on(stored, message.last_seq, ticket, terms)
        except ResumeRefused:
            self.metrics.resumes.labels("refused").inc()
            raise
        except (QueueUnavailable, AudioLost):
            self.metrics.resumes.labels("failed").inc()
            raise
        self.metrics.resumes.labels("resumed").inc()
        return session

    def _go_on(self, stored: StoredSession, last_seq: int, ticket: Ticket, terms: ResumeTerms) -> Session:
        past, audio = self._read(stored, last_seq)
        try:
            # First: should a later step fail, the next attempt finds this front end noted, not the older one.
            announce_taken(self.client, stored.fields.get("front", ""), stored.session, stored.epoch)
            self.slots.ask(stored.session, resumed=True)
            self.queue.adopt(stored.session, self.front)
            self.limiter.go_on(ticket.connection, stored.session)
        except QueueUnavailable:
            self.cleaner.park(stored.session, stored.epoch, {}, keep_slot=True)
            raise
        if not ticket.only_resume:
            self.cleaner.release_slot(ticket.session)
        self.listener.unregister(ticket.session, ticket.mailbox.put)
        ticket.epoch, ticket.session, ticket.only_resume = stored.epoch, stored.session, False
        self.listener.register(stored.session, ticket.mailbox.put)
        log.info("session_resumed", session=stored.session, epoch=stored.epoch, lacking=len(past.lacking))
        return Session.resumed(past, audio, last_seq, self.front, self.limits, terms, now=self.clock.monotonic())

    def _claim(self, message: Resume, terms: ResumeTerms) -> StoredSession:
        try:
            session = check_session_id(message.session)
        except ValueError:
            raise ResumeRefused from None
        until_ms = self.parking.unpark(session)
        try:
            return self.buffer.take_up(
                session, digest(message.token), digest(terms.token), label=terms.label, front=self.front
            )
        except ResumeRefused:
            if until_ms is not None:
                self.parking.repark(session, until_ms)
            raise

    def _read(self, stored: StoredSession, last_seq: int) -> tuple[Resumption, bytes]:
        """What the session goes on from. One that cannot be read is no session any more."""
        try:
            past = resumption(stored, last_seq)
            return past, self.buffer.read(stored.session, past.anchor.hear_from, past.hear_to)
        except (KeyError, TypeError, ValueError) as error:
            log.exception("session_unreadable", session=stored.session)
            self.cleaner.end_session(stored.session, stored.epoch)
            raise ResumeRefused from error
        except AudioLost:
            self.cleaner.end_session(stored.session, stored.epoch)
            raise
