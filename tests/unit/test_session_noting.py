"""What another connection would go on from is noted before it counts: the order of a session's effects."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from queueing.job import Enqueued, EnqueueStatus, NewJob
from sessions.codes import CloseCode
from sessions.effects import AppendAudio, CancelSession, Close, Effect, Enqueue, Park, Remember, Send
from sessions.finals import DueFinal
from sessions.ledger import KEPT_FINALS, Ledger, ResumeTerms, final_field, seq_field
from sessions.limits import SessionLimits
from sessions.session import Session
from sessions.wire import End, Error, Final, Flush, Start, encode
from tests.support.session_driver import delivery, speechlike

TERMS = ResumeTerms("a token", 30.0)
LIMITS = SessionLimits(endpoint_s=None, coalesce_s=0.5)


def begun() -> Session:
    session = Session("s1", "front-1", LIMITS, now=0.0, resume=TERMS)
    session.on_text(0.0, encode(Start(language="en", partials=False)))
    return session


def asked(effects: list[Effect]) -> list[NewJob]:
    return [effect.job for effect in effects if isinstance(effect, Enqueue)]


def place_of(effects: list[Effect], kind: type[Effect], field: str = "") -> int:
    """Where the first effect of this kind is, that notes ``field`` if one is named."""
    for at, effect in enumerate(effects):
        if isinstance(effect, kind) and (not field or field in getattr(effect, "fields", {})):
            return at
    raise AssertionError(f"no {kind.__name__} {field} in {effects}")


def answered(session: Session, job: NewJob) -> list[Effect]:
    session.on_enqueued(1.0, job, Enqueued(EnqueueStatus.QUEUED))
    return session.on_delivery(1.0, delivery(job, "text", event=1))


def nothing_stored(session: Session) -> list[Effect]:
    return session.on_append_failed(1.0, lost=False, detail="Redis does not answer")


def nothing_noted(session: Session) -> list[Effect]:
    return session.on_remember_failed(1.0, "Redis does not answer")


def nothing_queued(session: Session) -> list[Effect]:
    (job,) = asked(session.on_text(0.5, encode(Flush())))
    return session.on_enqueue_failed(1.0, job, "Redis does not answer")


@pytest.mark.parametrize("failed", [nothing_stored, nothing_noted, nothing_queued])
@pytest.mark.parametrize("answered", [True, False])
def test_a_stream_without_redis_is_left_to_be_resumed(
    failed: Callable[[Session], list[Effect]], answered: bool
) -> None:
    session = begun()
    session.on_audio(0.1, speechlike(1.0))
    told, parked, close = failed(session)
    assert isinstance(told, Send)
    assert isinstance(told.message, Error)
    assert (told.message.code, told.message.fatal) == ("unavailable", True)
    assert parked == Park(keep_slot=True)
    assert close == Close(CloseCode.INTERNAL, "unavailable")
    assert session.keeps_slot
    assert session.on_closed(2.0, answered=answered) == [], "whoever answered: nothing of it is removed"
    assert session.on_disconnect(2.0, "disconnected") == []


@pytest.mark.parametrize("message", [Flush(), End()])
def test_what_a_final_covers_is_noted_with_its_audio_before_its_job_is_queued(message: Flush | End) -> None:
    session = begun()
    session.on_audio(0.1, speechlike(0.2))  # too little for a round trip of its own
    effects = session.on_text(0.2, encode(message))
    assert place_of(effects, AppendAudio, final_field(0)) < place_of(effects, Enqueue)


def test_where_its_audio_is_stored_already_it_is_noted_by_itself_before() -> None:
    session = begun()
    stored = session.on_audio(0.1, speechlike(1.0))
    assert [effect for effect in stored if isinstance(effect, AppendAudio)]
    effects = session.on_text(0.2, encode(Flush()))
    assert not [effect for effect in effects if isinstance(effect, AppendAudio)]
    assert place_of(effects, Remember, final_field(0)) < place_of(effects, Enqueue)


def test_that_no_more_is_taken_is_noted_before_the_last_final_is_asked_for_or_said() -> None:
    session = begun()
    session.on_audio(0.1, speechlike(0.2))
    effects = session.on_text(0.2, encode(End()))
    assert place_of(effects, AppendAudio, "ending") < place_of(effects, Enqueue)
    silent = begun().on_text(0.2, encode(End()))
    said = next(
        at for at, effect in enumerate(silent) if isinstance(effect, Send) and isinstance(effect.message, Final)
    )
    assert place_of(silent, Remember, "ending") < said


def test_the_number_of_a_final_is_noted_before_it_is_sent() -> None:
    session = begun()
    session.on_audio(0.1, speechlike(1.0))
    (job,) = asked(session.on_text(0.2, encode(Flush())))
    effects = answered(session, job)
    assert place_of(effects, Remember, seq_field(0)) < place_of(effects, Send)


def test_without_a_token_nothing_is_noted() -> None:
    session = Session("s1", "front-1", LIMITS, now=0.0)
    session.on_text(0.0, encode(Start(language="en", partials=False)))
    session.on_audio(0.1, speechlike(1.0))
    effects = session.on_text(0.2, encode(Flush()))
    effects += answered(session, asked(effects)[0])
    assert not [effect for effect in effects if isinstance(effect, Remember)]
    assert not any(effect.fields for effect in effects if isinstance(effect, AppendAudio))


def test_who_was_taken_over_is_told_and_what_it_wrote_since_the_other_ended_goes() -> None:
    """The cleanup is of its own epoch: where a newer connection has the session it removes nothing."""
    session = begun()
    session.on_audio(0.1, speechlike(1.0))
    effects = session.on_taken_over(0.2)
    assert [type(effect) for effect in effects] == [Send, Close, CancelSession]
    told = effects[0]
    assert isinstance(told, Send)
    assert isinstance(told.message, Error)
    assert told.message.code == "taken_over"
    assert session.keeps_slot
    assert not session.unheard
    assert session.on_disconnect(0.3) == session.on_closed(0.4, answered=True) == []


def test_what_is_noted_of_finals_is_bounded_and_what_is_forgotten_is_known() -> None:
    ledger = Ledger(TERMS)
    noted: set[str] = set()
    for segment in range(3 * KEPT_FINALS):
        due = DueFinal(segment, segment, segment + 1, False, 0.0, None)
        final = Final(seq=2 * segment + 1, start_s=segment, end_s=segment + 1, text="", last=False)
        fields = ledger.asked([due])
        said, gone = ledger.saying([(due, final)], "en")
        noted = (noted | set(fields) | set(said)) - set(gone)
        assert len(noted) <= 2 * KEPT_FINALS + 2, "two of each final, the language, what is forgotten"
    assert said["forgotten_seq"] == str(2 * (2 * KEPT_FINALS - 1) + 1)
