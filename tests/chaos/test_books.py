"""A harness that cannot fail is worthless: every kind of broken promise, planted, is found; a whole stream is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from ops.chaos.audio import SAMPLE_RATE, Clip, make_clips, scripted_text
from ops.chaos.books import check
from ops.chaos.excuses import Faults
from ops.chaos.records import Injected, Joined, Leave, Record, Seen, StreamPlan, Variant
from ops.chaos.recovery import recovery
from ops.chaos.settings import SHORT
from ops.chaos.watch import snapshot_faults
from sessions.wire import Done, Error, Final, Partial
from workers.scripted import scripted_text as workers_text

CUTS = ((0.0, 2.4), (2.4, 5.3), (5.3, 8.0))


def clip() -> Clip:
    turns = next(clip for clip in make_clips(random.Random(3)) if clip.name == "turns")
    return Clip("turns", turns.pcm[: 8 * 2 * SAMPLE_RATE])


CLIP = clip()


def final(number: int, seq: int) -> Final:
    start_s, end_s = CUTS[number]
    text = scripted_text(CLIP.part(start_s, end_s))
    return Final(
        seq=seq, start_s=start_s, end_s=end_s, text=text, last=number == len(CUTS) - 1,
        speech_start_s=start_s, speech_end_s=end_s,
    )  # fmt: skip


def partial(number: int, seq: int, text: str = "", stable: str = "") -> Partial:
    start_s, end_s = CUTS[number]
    return Partial(seq=seq, start_s=start_s, end_s=end_s, text=text, stable=stable)


REFERENCE = [final(number, number + 1) for number in range(3)]


def whole(**changes: object) -> Record:
    """A stream as it should be: a connection, three finals with a partial before each, done."""
    total = len(CLIP.pcm) // 2
    pairs = [(partial(number, 2 * number + 1), final(number, 2 * number + 2)) for number in range(3)]
    messages = [*(message for pair in pairs for message in pair), Done(audio_s=8.0, finals=3)]
    record = Record(
        StreamPlan("s", 0.0, Variant("turns"), 0), total, session="abc", begun_s=1.0, speaks_since_s=1.0, ended_s=10.0,
        sent=total, outcome="done", close_code=1000,
        joined=[Joined(1.0, 1, resumed=False, received=0, acknowledged=0, sent=0, resumable=False)],
        seen=[Seen(2.0 + number, 1, message) for number, message in enumerate(messages)],
    )  # fmt: skip
    for name, value in changes.items():
        setattr(record, name, value)
    return record


def found(record: Record, injected: Sequence[Injected] = (), reference: Sequence[Final] = REFERENCE) -> set[str]:
    text_of: Callable[[bytes], str] = scripted_text
    return {violation.what for violation in check(record, CLIP, reference, Faults(injected, SHORT), text_of=text_of)}


def with_message(place: int, message: Partial | Final | Done | Error) -> Record:
    """A whole stream in which the message at ``place`` is another."""
    record = whole()
    record.seen[place] = replace(record.seen[place], message=message)
    return record


def failed(code: str, **changes: object) -> Record:
    """A stream that was told an error after its first final."""
    record = whole(outcome="error", code=code, close_code=1011, **changes)
    record.seen = [*record.seen[:2], Seen(5.0, 1, Error(code=code, message="no", fatal=True))]
    return record


def test_a_whole_stream_balances() -> None:
    assert found(whole()) == set()


def test_the_books_spell_as_scripted_workers_do() -> None:
    for start_s, end_s in ((0.0, 8.0), (1.25, 3.9), (0.0, 0.3), (4.0, 4.0)):
        assert scripted_text(CLIP.part(start_s, end_s)) == workers_text(CLIP.part(start_s, end_s))


def test_a_final_said_twice_is_found() -> None:
    record = whole()
    record.seen[6] = replace(record.seen[6], message=record.seen[6].message.model_copy(update={"finals": 4}))
    record.seen.insert(4, Seen(5.5, 1, final(1, 5)))
    assert {"final twice", "number twice"} <= found(record)


def test_a_missing_final_is_a_gap() -> None:
    record = whole()
    del record.seen[2:4]
    assert {"gap", "number gap", "miscounted"} <= found(record)


@pytest.mark.parametrize(
    ("what", "record"),
    [
        ("wrong text", with_message(3, final(1, 4).model_copy(update={"text": "bababada"}))),
        ("changed text", with_message(3, final(1, 4).model_copy(update={"text": "bababada"}))),
        ("wrong text", with_message(3, final(1, 4).model_copy(update={"text": final(2, 4).text}))),
        ("other range", with_message(3, final(1, 4).model_copy(update={"end_s": 5.2}))),
        ("number gap", with_message(4, partial(2, 6))),
        ("partial after final", with_message(4, partial(1, 5))),
        ("unstable", with_message(4, partial(2, 5, text="ba", stable="da"))),
        ("after the last", with_message(1, final(0, 2).model_copy(update={"last": True}))),
        ("no last final", with_message(5, final(2, 6).model_copy(update={"last": False}))),
        ("miscounted", with_message(6, Done(audio_s=8.0, finals=2))),
        ("lost samples", with_message(6, Done(audio_s=7.9, finals=3))),
        ("lost samples", with_message(5, final(2, 6).model_copy(update={"end_s": 7.9}))),
        ("more than sent", whole(sent=7 * SAMPLE_RATE)),
        ("wrong close", whole(close_code=1011)),
        ("hanging", whole(outcome="hung")),
        ("hanging", whole(outcome="")),
        ("odd", whole(odd=["something"])),
        ("unexcused lost", whole(outcome="lost", code="connection")),
        ("unexcused refused", whole(outcome="refused", code="overloaded")),
        ("unexcused error", failed("internal")),
        ("unexcused error", failed("unavailable")),
        ("unexcused error", failed("a code nobody knows")),
    ],
)  # fmt: skip
def test_a_planted_violation_is_found(what: str, record: Record) -> None:
    assert what in found(record)


def test_a_message_after_the_end_is_found() -> None:
    record = whole()
    record.seen.append(Seen(9.0, 1, partial(2, 7)))
    assert "after the end" in found(record)


def test_stable_words_that_change_are_found() -> None:
    record = whole()
    record.seen[4:5] = [Seen(6.0, 1, partial(2, 5, "ba da", "ba")), Seen(6.5, 1, partial(2, 6, "bi da", "bi"))]
    record.seen[6] = replace(record.seen[6], message=final(2, 7))
    assert found(record) == {"unstable"}


def resumed(received: int, acknowledged: int = 0, *, sent: int = 6 * SAMPLE_RATE) -> Record:
    record = whole()
    record.joined[0] = replace(record.joined[0], resumable=True)
    record.joined.append(
        Joined(5.0, 2, resumed=True, received=received, acknowledged=acknowledged, sent=sent, resumable=True)
    )
    record.seen = [replace(seen, connection=1 if number < 4 else 2) for number, seen in enumerate(record.seen)]
    return record


def test_where_a_resumed_stream_goes_on() -> None:
    five_s = round(5.3 * SAMPLE_RATE)
    assert found(resumed(five_s, five_s)) == set()
    assert found(resumed(five_s + 1_000, five_s + 1_001)) == {"acknowledged audio lost"}
    assert found(resumed(five_s - 1)) == {"acknowledged audio lost"}, "what is final is kept"
    assert found(resumed(6 * SAMPLE_RATE + 1)) == {"wrong position"}


def test_an_error_needs_a_fault_that_explains_it() -> None:
    def excused(code: str, kind: str, length_s: float = 1.0, target: str = "redis") -> bool:
        return not found(failed(code), [Injected(kind, target, 2.0, 2.0 + length_s)])

    assert excused("state_lost", "redis.empty")
    assert not excused("state_lost", "redis.kill", 9.0), "its file keeps what it was told"
    assert excused("unavailable", "redis.stop", 8.0)
    assert not excused("unavailable", "redis.stop", 2.0), "so short an absence is ridden out"
    away = failed("unavailable")
    away.joined[0] = replace(away.joined[0], resumable=True)
    assert found(away, [Injected("redis.stop", "redis", 2.0, 18.0)]) == {"unexcused error"}, "it can come back"
    assert not found(away, [Injected("redis.stop", "redis", 2.0, 9.0 + SHORT.grace_s)])
    on_its_way = failed("unavailable", away_s=SHORT.grace_s)
    on_its_way.joined[0] = away.joined[0]
    assert not found(on_its_way, [Injected("redis.stop", "redis", 2.0, 2.0 + SHORT.grace_s)])
    assert found(on_its_way, [Injected("redis.stop", "redis", 2.0, SHORT.grace_s)]) == {"unexcused error"}
    assert excused("unavailable", "link.silent", 12.0, "web1")
    assert not excused("unavailable", "link.silent", 12.0, "worker1")
    assert not excused("internal", "redis.stop", 8.0)
    assert not excused("decode_failed", "worker.kill")
    assert not excused("inference_timeout", "worker.stop", 7.0)
    assert excused("inference_timeout", "clock.redis", 4.0)


def test_a_redis_that_is_killed_while_its_disk_is_full_may_forget_what_it_answered() -> None:
    full, after = Injected("disk.full", "redis", 2.0, 3.0), Injected("disk.full", "redis", 5.0, 6.0)
    assert found(failed("state_lost"), [full, Injected("redis.kill", "redis", 2.5, 4.0)]) == set()
    assert found(failed("state_lost"), [full, Injected("redis.kill", "redis", 4.5, 5.0)]) == {"unexcused error"}
    assert found(failed("state_lost"), [Injected("redis.kill", "redis", 2.0, 3.0), after]) == {"unexcused error"}
    assert found(failed("resume_refused"), [full, Injected("redis.kill", "redis", 2.5, 4.0)]) == {"unexcused error"}


def test_a_client_that_did_not_know_that_its_connection_was_gone_may_come_too_late() -> None:
    record = failed("resume_refused")
    late = record.ended_s - SHORT.grace_s
    record.joined[0] = replace(record.joined[0], at_s=late - 1.0)
    assert found(record, [Injected("client.half_open", "streams", late, late)]) == set()
    assert found(record, [Injected("client.half_open", "streams", late + 1.0, late + 1.0)]) == {"unexcused error"}
    assert found(record, [Injected("client.half_open", "streams", late - 2.0, late - 2.0)]) == {"unexcused error"}
    assert found(record, [Injected("client.reset", "streams", late, late)]) == {"unexcused error"}


def test_what_was_over_when_the_stream_was_let_in_explains_nothing() -> None:
    for code, kind in (("state_lost", "redis.empty"), ("resume_refused", "redis.empty"), ("overloaded", "disk.full")):
        record = failed(code)
        record.joined[0] = replace(record.joined[0], at_s=4.0)
        assert found(record, [Injected(kind, "redis", 1.0, 2.0)]) == {"unexcused error"}
        assert found(record, [Injected(kind, "redis", 1.0, 4.0)]) == set()


def test_a_client_that_was_kept_out_may_end_as_idle_and_no_other() -> None:
    assert found(failed("idle_timeout")) == {"unexcused error"}
    assert found(failed("idle_timeout", away_s=SHORT.idle_s)) == set()
    record = failed("idle_timeout")
    record.joined[0] = replace(record.joined[0], at_s=record.ended_s - SHORT.idle_s - 1.0)
    for earlier_s, expected in ((SHORT.idle_s, set()), (SHORT.idle_s - 1.0, {"unexcused error"})):
        at_s = record.ended_s - earlier_s
        assert found(record, [Injected("client.half_open", "streams", at_s, at_s)]) == expected


def test_absences_of_redis_add_up() -> None:
    twice = [Injected("redis.stop", "redis", 0.0, 4.5), Injected("redis.kill", "redis", 5.0, 7.2)]
    assert found(failed("unavailable"), twice) == set()
    assert found(failed("inference_timeout"), twice[:1]) == set()
    assert found(failed("unavailable"), twice[:1]) == {"unexcused error"}


def test_a_lost_connection_is_an_end_only_where_nothing_can_be_resumed() -> None:
    struck = [Injected("web.kill", "web1", 4.0, 4.0)]
    record = whole(outcome="lost", code="connection")
    record.seen = record.seen[:2]
    assert found(record, struck) == set()
    record.joined[0] = replace(record.joined[0], resumable=True)
    assert found(record, struck) == {"unexcused lost"}


def test_a_client_that_leaves_owes_and_is_owed_nothing() -> None:
    record = whole(outcome="left", close_code=None)
    record.plan = replace(record.plan, leave=Leave.VANISH)
    record.seen = record.seen[:3]
    assert found(record) == set()


def test_a_drain_may_cut_where_no_quiet_run_does() -> None:
    record = with_message(3, final(1, 4).model_copy(update={"end_s": 5.0, "speech_end_s": 5.0}))
    record.seen[3] = replace(
        record.seen[3], message=record.seen[3].message.model_copy(update={"text": scripted_text(CLIP.part(2.4, 5.0))})
    )
    record.seen[5] = replace(record.seen[5], message=final(2, 6).model_copy(update={"start_s": 5.0}))
    assert found(record) == {"other range"}
    assert found(record, [Injected("web.term", "web1", 4.0, 4.0)]) == set()
    killed, deaf = Injected("web.kill", "web1", 4.0, 4.0), Injected("client.half_open", "streams", 3.0, 3.0)
    assert found(record, [killed]) == found(record, [deaf]) == {"other range"}
    assert found(record, [deaf, killed]) == set(), "it has not heard that its server ends"
    record.seen.insert(4, Seen(5.5, 1, Error(code="shutting_down", message="its parent was killed", fatal=True)))
    assert found(record) == {"after the end"}
    record.seen[5:] = [replace(seen, connection=2) for seen in record.seen[5:]]
    assert found(record) == set(), "it came back"


def test_on_the_next_connection_nothing_is_cut_elsewhere_not_even_after_a_drain_of_who_promised_to_come_back() -> None:
    record = with_message(3, final(1, 4).model_copy(update={"end_s": 5.0, "speech_end_s": 5.0}))
    record.seen[5] = replace(record.seen[5], message=final(2, 6).model_copy(update={"start_s": 5.0}))
    record.joined.append(Joined(3.5, 2, resumed=True, received=80_000, acknowledged=0, sent=90_000, resumable=True))
    record.seen[3:] = [replace(seen, connection=2) for seen in record.seen[3:]]
    assert found(record) == {"other range", "wrong text"}
    right = record.seen[3].message.model_copy(update={"text": scripted_text(CLIP.part(2.4, 5.0))})
    record.seen[3] = replace(record.seen[3], message=right)
    assert found(record) == {"other range"}
    record.plan = replace(record.plan, promises=True)
    assert found(record, [Injected("web.term", "web1", 4.0, 4.0)]) == {"other range"}


def test_an_older_connection_is_told_that_it_is_one_or_what_a_fault_did() -> None:
    assert found(whole(older_told=["taken_over"])) == set()
    record = whole(older_told=["state_lost"])
    assert found(record) == {"odd"}
    assert found(record, [Injected("redis.empty", "redis", 4.0, 5.0)]) == set()


def test_recovery_runs_from_the_fault_or_from_when_the_final_was_due() -> None:
    record = whole()  # finals due at 1 s + 3.2, 6.1 and 8.0 s; they came at 3.0, 5.0, 7.0
    record.seen = [Seen(at_s, 1, final(number, number + 1)) for number, at_s in enumerate((4.5, 9.0, 9.5))]
    assert recovery([record], [Injected("worker.kill", "worker1", 6.0, 6.0)]) == {"worker.kill": [pytest.approx(1.9)]}
    assert recovery([record], [Injected("worker.kill", "worker1", 8.0, 8.0)]) == {"worker.kill": [pytest.approx(1.0)]}
    assert recovery([record], [Injected("worker.kill", "worker1", 4.6, 4.6)]) == {}, "nobody waited over it"
    assert recovery([record], [Injected("", "worker1", 6.0, 6.0)]) == {}, "it did not come about"


def test_looks_into_redis_find_what_must_never_be() -> None:
    assert snapshot_faults(["a:f:0", "a:p:1"], ["b:p:4", "b:f:0"], ["n a:f:0 1 a:p:1 1", "m b:f:0 2"]) == []
    assert snapshot_faults(["a:p:1"], ["a:p:2"], []) == [("two partials", "session a has 2 partials that wait or run")]
    assert snapshot_faults(["a:f:1"], ["a:f:1"], []) == [("waits and runs", "a:f:1")]
    assert snapshot_faults([], [], ["n a:f:0 1", "m a:f:0 1"])[0][0] == "two leases"
    assert snapshot_faults([], [], ["n a:f:0 1", "m a:f:0 2"]) == [], "another generation is another lease"
