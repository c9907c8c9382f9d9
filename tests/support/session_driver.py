"""Carries out a session's effects in memory and checks, at every step, what must always hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from queueing.job import Delivery, Enqueued, EnqueueStatus, NewJob
from queueing.lane import MAX_JOB_AUDIO_S, Kind
from sessions.effects import (
    AppendAudio,
    CancelPartial,
    CancelSession,
    Close,
    Effect,
    Enqueue,
    OpenBuffer,
    ReadEvents,
    Send,
    TrimAudio,
)
from sessions.limits import SessionLimits
from sessions.results import DecodeResult
from sessions.session import Session
from sessions.wire import (
    BYTES_PER_SECOND,
    ClientMessage,
    Error,
    Final,
    Partial,
    ServerMessage,
    decode_server,
    encode,
)

Message = TypeVar("Message", bound=ServerMessage)


def speechlike(seconds: float, start: int = 0) -> bytes:
    """PCM16 that differs at every position: a counter that never looks like a header or another sample format."""
    count = round(seconds * 16_000)
    return b"".join(((start + i) * 37 % 2_001 - 1_000).to_bytes(2, "little", signed=True) for i in range(count))


def delivery(job: NewJob, text: str = "", *, event: int | None = None, **changes: Any) -> Delivery:
    """A worker's successful answer to ``job``; ``changes`` replace fields."""
    fields: dict[str, Any] = {
        "event_id": f"{event}-0" if event is not None else None,
        "session": job.session,
        "job": job.id,
        "kind": job.kind,
        "segment": job.segment,
        "outcome": "done",
        "start_byte": job.start_byte,
        "end_byte": job.end_byte,
        "audio_s": job.audio_s,
        "attempt": 1,
        "queue_ms": 12,
        "decode_ms": 34,
        "completed_ms": 0,
        "result": DecodeResult(text or f"text of {job.id}", "m", "en", language_probability=0.9).to_dict(),
        "error": None,
    }
    return Delivery(**(fields | changes))


def failure(job: NewJob, code: str, message: str = "it failed") -> Delivery:
    """A job that ended in the dead set."""
    return delivery(job, event=1, outcome="dead", result=None, error={"code": code, "message": message})


class Driver:
    """One session and everything around it. ``answers`` says what the queue replies to an enqueue.

    ``endpoint_s``: the pause that ends a segment; None, as most tests need it, for synthetic sound is no speech:
    none does.
    """

    def __init__(
        self, limits: SessionLimits | None = None, *, start: float = 1_000.0, endpoint_s: float | None = None
    ) -> None:
        self.now = start
        limits = replace(limits or SessionLimits(), endpoint_s=endpoint_s)
        self.session = Session("s1", "front-1", limits, now=start, started_ms=5)
        self.session.set_load(0.0, workers=8)
        self.sent: list[ServerMessage] = []
        self.buffer = bytearray()
        """What was stored; zeros where silence was left out."""
        self.left_out = 0
        self.kept_from = 0
        """What lies before was trimmed."""
        self.needed_from = 0
        self.meta: list[dict[str, str]] = []
        self.jobs: list[NewJob] = []
        self.reads: list[str | None] = []
        self.closed: tuple[int, str] | None = None
        self.cancelled = 0
        self.answers: Callable[[NewJob], EnqueueStatus | Enqueued] = lambda job: EnqueueStatus.QUEUED
        self.cancel_partial: Callable[[], None] = lambda: None
        self.events: Callable[[str | None], Sequence[Delivery]] | None = None

    # Inputs.

    def text(self, message: ClientMessage | str) -> list[Effect]:
        return self.run(self.session.on_text(self.now, message if isinstance(message, str) else encode(message)))

    def audio(self, data: bytes | float, frame: int = 3_200) -> None:
        """Send bytes, or seconds of audio, in frames of ``frame`` bytes."""
        if isinstance(data, float | int):
            data = speechlike(data, self.session.summary.audio_bytes // 2)
        for at in range(0, max(len(data), 1), frame):
            self.run(self.session.on_audio(self.now, data[at : at + frame]))

    def live(self, seconds: float) -> None:
        """Send audio as a microphone does: 100 ms of it each 100 ms."""
        for _ in range(round(seconds * 10)):
            self.wait(0.1)
            self.audio(0.1)

    def deliver(self, job: NewJob, text: str = "", **changes: Any) -> list[Effect]:
        return self.run(self.session.on_delivery(self.now, delivery(job, text, **changes)))

    def wait(self, seconds: float) -> None:
        """Let time pass, with every timer that is due on the way."""
        until = self.now + seconds
        while (at := self.session.next_tick()) is not None and at <= until:
            assert at >= self.now - 1e-9 or self.session.closed is False
            self.now = max(self.now, at)
            before = self.session.next_tick()
            self.run(self.session.on_tick(self.now))
            assert self.session.next_tick() != before, "a timer that was handled must not stay due"
        self.now = until

    # Effects.

    def run(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case OpenBuffer(meta):
                    assert not self.buffer
                    self.meta.append(dict(meta))
                case AppendAudio(offset, data, follows, keep_from):
                    assert follows == len(self.buffer) <= offset, "appends follow each other"
                    assert len(data) % 2 == 0
                    assert self.meta, "the buffer is opened before it is filled"
                    assert keep_from >= self.kept_from, "what is not needed now will not be needed again"
                    self._check_needed(keep_from)
                    self.left_out += offset - follows
                    self.needed_from = keep_from
                    self.buffer += bytes(offset - follows) + data
                case TrimAudio(before):
                    assert self.kept_from < before <= len(self.buffer)
                    self._check_needed(before)
                    self.kept_from = self.needed_from = before
                case Enqueue(job):
                    assert self.kept_from <= job.start_byte < job.end_byte <= len(self.buffer), "its audio is stored"
                    assert self.needed_from <= job.start_byte, "and was not said to be needed no more"
                    assert job.audio_s <= MAX_JOB_AUDIO_S
                    assert job.start_byte % 2 == job.end_byte % 2 == 0
                    assert job.lane, "there is a lane for it"
                    self.jobs.append(job)
                    answer = self.answers(job)
                    answer = answer if isinstance(answer, Enqueued) else Enqueued(answer)
                    self.run(self.session.on_enqueued(self.now, job, answer))
                case ReadEvents(after):
                    self.reads.append(after)
                    if self.events is not None:
                        self.run(self.session.on_events(self.now, self.events(after)))
                case Send(message):
                    assert self.closed is None, "nothing is sent after the close"
                    assert decode_server(encode(message)) == message
                    self.sent.append(message)
                case Close(code, reason):
                    assert self.closed is None
                    self.closed = (int(code), reason)
                case CancelPartial():
                    self.cancel_partial()
                case CancelSession():
                    self.cancelled += 1
                    assert self.cancelled == 1
        numbers = [message.seq for message in self.sent if isinstance(message, Partial | Final)]
        assert numbers == list(range(1, len(numbers) + 1)), "seq has no gap"
        assert (self.closed is not None) <= self.session.closed
        return effects

    def _check_needed(self, position: int) -> None:
        due = [final.start_byte for final in self.session._stream.decodes.outbox._due]
        assert all(position <= start for start in due), "the audio of a final is kept until it is said"

    # What came of it.

    def of(self, kind: type[Message]) -> list[Message]:
        """The messages of one type, oldest first."""
        return [message for message in self.sent if isinstance(message, kind)]

    @property
    def finals(self) -> list[Final]:
        return self.of(Final)

    @property
    def partials(self) -> list[Partial]:
        return self.of(Partial)

    @property
    def errors(self) -> list[str]:
        return [message.code for message in self.of(Error)]

    @property
    def last_error(self) -> Error:
        return self.of(Error)[-1]

    def asked(self, kind: Kind) -> list[NewJob]:
        """The jobs of one kind that were enqueued."""
        return [job for job in self.jobs if job.kind is kind]


def at(seconds: float) -> int:
    """The byte position of a time."""
    return round(seconds * BYTES_PER_SECOND)
