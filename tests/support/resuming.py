"""A stream whose connection and front end are lost again and again: a model of what Redis holds, and of a client.

Effects are carried out one by one, up to a crash between any two of them; what was carried out is all that the next
front end knows. A write that Redis does not answer is given up, whether Redis carried it out or not. The client
checks at every message what must hold over all its connections.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from api.effects import BUILT_ON_WRITES
from queueing.job import Delivery, Enqueued, EnqueueStatus, NewJob
from queueing.lane import Kind
from sessions.effects import (
    AppendAudio,
    CancelJobs,
    CancelPartial,
    CancelSession,
    Close,
    Effect,
    Enqueue,
    OpenBuffer,
    Park,
    ReadEvents,
    Remember,
    Send,
    TrimAudio,
)
from sessions.ledger import ResumeTerms, StoredSession
from sessions.limits import SessionLimits
from sessions.resumption import resumption
from sessions.session import Session
from sessions.wire import (
    BYTES_PER_SECOND,
    Ack,
    ClientMessage,
    Done,
    Error,
    Final,
    Partial,
    Ready,
    ServerMessage,
    decode_server,
    encode,
)

TERMS = ResumeTerms("a token", 30.0)


WRITES = (OpenBuffer, AppendAudio, Remember, Enqueue)


class Crash(Exception):
    """The front end is gone, between two effects."""


class Store:
    """What `AudioBuffer` holds of one session, as its scripts do it."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.base = 0
        self.audio = b""
        self.parked = False

    @property
    def held(self) -> int:
        return self.base + len(self.audio)

    def append(self, effect: AppendAudio) -> None:
        offset, held = effect.offset, self.held
        assert held >= effect.follows or effect.keep_from >= offset, "nothing that is needed is lost"
        if held < offset and effect.keep_from >= held:
            self.base, self.audio = offset, b""
        if self.held < offset + len(effect.data):
            self.audio = self.audio[: offset - self.base].ljust(offset - self.base, b"\0") + effect.data
        self.fields |= effect.fields

    def remember(self, effect: Remember) -> None:
        for name in effect.gone:
            self.fields.pop(name, None)
        self.fields |= effect.fields
        self.trim(effect.before)

    def trim(self, before: int) -> None:
        if before > self.base:
            before = min(before, self.held)
            self.audio = self.audio[before - self.base :]
            self.base = before

    def take_up(self) -> StoredSession:
        self.fields["epoch"] = str(int(self.fields["epoch"]) + 1)
        self.parked = False
        return StoredSession("s1", {**self.fields, "base": str(self.base)}, self.held)


class Client:
    """Sends ``sound`` and checks what it hears, over all its connections."""

    def __init__(self, sound: bytes) -> None:
        self.sound = sound
        self.position = 0
        """The next byte that it sends."""
        self.said_end = False
        self.known = self.ready = self.done = False
        """Whether it heard of the session; on this connection; that it is complete."""
        self.last_seq = 0
        self.acked = 0
        self.finals: list[Final] = []
        self.errors: list[str] = []

    def hear(self, message: ServerMessage) -> None:
        assert decode_server(encode(message)) == message
        match message:
            case Ready():
                self.known = self.ready = True
                assert message.token is not None
                received = round(message.received_s * 16_000) * 2
                assert received / BYTES_PER_SECOND == message.received_s, "a whole sample"
                assert self.acked <= received <= self.position, "what was acknowledged is not asked for again"
                self.position = received if message.resumed else self.position
            case Ack():
                assert self.acked < round(message.received_s * 16_000) * 2 <= self.position
                self.acked = round(message.received_s * 16_000) * 2
            case Partial() | Final():
                assert not self.done
                assert message.seq == self.last_seq + 1, "numbers follow each other, over all connections"
                self.last_seq = message.seq
                covered = self.finals[-1].end_s if self.finals else 0.0
                if isinstance(message, Final):
                    assert message.start_s == covered, "each sample is in one final, and they come in order"
                    assert not any(final.last for final in self.finals)
                    self.finals.append(message)
                else:
                    assert message.start_s >= covered
            case Done():
                assert message.finals == len(self.finals), "each final came once"
                assert message.audio_s == self.finals[-1].end_s
                self.done = True
            case Error():
                self.errors.append(message.code)


class Resuming:
    """One client, one session, any number of front ends."""

    def __init__(self, limits: SessionLimits, sound: bytes, *, endpoint_s: float | None) -> None:
        self.limits = replace(limits, endpoint_s=endpoint_s)
        self.now = 1_000.0
        self.client = Client(sound)
        self.store: Store | None = None
        self.session = Session("s1", "front-1", self.limits, now=self.now, resume=TERMS)
        self.crash_in: int | None = None
        """Effects until the front end is gone."""
        self.gives_up_in: int | None = None
        """Writes until one is given up."""
        self.executed = False
        """Whether that one was carried out all the same."""
        self.under_way: list[ServerMessage] = []
        """Sent, and not at the client yet."""
        self.over = self.lost = False
        self.connections = 1
        self.enqueue: Callable[[NewJob], EnqueueStatus | Enqueued] = lambda _: EnqueueStatus.QUEUED
        self.cancel_partial: Callable[[], None] = lambda: None
        self.cancel_jobs: Callable[[], None] = lambda: None
        self.events: Callable[[str | None], list[Delivery]] = lambda _: []

    def text(self, message: ClientMessage) -> None:
        self.run(self.session.on_text(self.now, encode(message)))

    def speak(self, size: int) -> None:
        data = self.client.sound[self.client.position : self.client.position + size]
        self.client.position += len(data)
        self.run(self.session.on_audio(self.now, data))

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while not self.lost and (at := self.session.next_tick()) is not None and at <= until:
            self.now = max(self.now, at)
            self.run(self.session.on_tick(self.now))
        self.now = until

    def run(self, effects: list[Effect]) -> None:
        """Carry them out, up to the crash; then the connection is ``lost``."""
        if self.lost:
            return
        try:
            self._carry_out(effects)
        except Crash:
            self.lost = True

    def _carry_out(self, effects: list[Effect]) -> None:
        skip: set[type[Effect]] = set()
        after: list[Effect] = []
        for effect in effects:
            if type(effect) in skip:
                continue
            if self.crash_in is not None:
                self.crash_in -= 1
                if self.crash_in < 0:
                    raise Crash
            if self._is_given_up(effect):
                partial = isinstance(effect, Enqueue) and effect.job.kind is Kind.PARTIAL
                skip |= {Enqueue} if partial else BUILT_ON_WRITES
                after += self._given_up(effect)
            else:
                self._do(effect)
        if after:
            self._carry_out(after)

    def _is_given_up(self, effect: Effect) -> bool:
        if self.gives_up_in is None or not isinstance(effect, WRITES):
            return False
        self.gives_up_in -= 1
        return self.gives_up_in < 0

    def _given_up(self, effect: Effect) -> list[Effect]:
        """What follows, as `api.effects` has it."""
        self.gives_up_in = None
        if isinstance(effect, Enqueue):
            if self.executed:
                self.enqueue(effect.job)
            return self.session.on_enqueue_failed(self.now, effect.job, "Redis does not answer")
        if isinstance(effect, Remember):
            if self.executed and self.store is not None:
                self.store.remember(effect)
            return self.session.on_remember_failed(self.now, "Redis does not answer")
        if self.executed and isinstance(effect, AppendAudio) and self.store is not None:
            self.store.append(effect)
        elif self.executed and isinstance(effect, OpenBuffer):
            self.store = self.store or Store()
            self.store.fields |= effect.meta
        return self.session.on_append_failed(self.now, lost=False, detail="Redis does not answer")

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, OpenBuffer):
            self.store = self.store or Store()
            self.store.fields |= effect.meta
            return
        if isinstance(effect, Send):
            self.under_way.append(effect.message)
            return
        if isinstance(effect, Close):
            self.over = True
            return
        store = self.store
        if store is None and isinstance(effect, Park | CancelSession | CancelJobs):
            return  # it could not be described
        assert store is not None, "nothing is written before the session is described"
        match effect:
            case AppendAudio():
                store.append(effect)
                self._carry_out(self.session.on_stored(self.now, effect.offset + len(effect.data)))
            case Remember():
                store.remember(effect)
            case TrimAudio(before):
                store.trim(before)
            case Enqueue(job):
                assert store.base <= job.start_byte < job.end_byte <= store.held, "its audio is stored"
                held = store.audio[job.start_byte - store.base : job.end_byte - store.base]
                assert held == self.client.sound[job.start_byte : job.end_byte], "what is decoded is what was sent"
                answer = self.enqueue(job)
                answer = answer if isinstance(answer, Enqueued) else Enqueued(answer)
                self._carry_out(self.session.on_enqueued(self.now, job, answer))
            case CancelPartial():
                self.cancel_partial()
            case ReadEvents(after):
                self._carry_out(self.session.on_events(self.now, self.events(after)))
            case Park(keep_slot, fields):
                assert not store.parked
                assert keep_slot == self.session.keeps_slot
                store.fields |= fields
                store.parked = True
            case CancelSession():
                self.store = None
            case CancelJobs(fields):
                store.fields |= fields
                self.cancel_jobs()

    def receive(self, lost: int = 0) -> None:
        """The client gets what is under way, but for the last ``lost`` messages."""
        arrived = self.under_way[: len(self.under_way) - lost]
        self.under_way.clear()
        for message in arrived:
            self.client.hear(message)

    def close(self, *, answered: bool) -> None:
        """After a Close: the client answers, or is not there."""
        self.run(self.session.on_closed(self.now, answered=answered))

    def resume(self) -> None:
        """The client is back, at another front end."""
        assert self.store is not None
        self.under_way.clear()
        self.client.ready = False  # until then it does not know where to go on
        self.over = self.lost = False
        self.crash_in = None
        self.connections += 1
        stored = self.store.take_up()
        past = resumption(stored, self.client.last_seq)
        audio = self.store.audio[past.anchor.hear_from - stored.base : past.hear_to - stored.base]
        front = f"front-{self.connections}"
        self.session = Session.resumed(past, audio, self.client.last_seq, front, self.limits, TERMS, now=self.now)
