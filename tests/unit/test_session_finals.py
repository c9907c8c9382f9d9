"""Finals: which audio, in which order, exactly once; and how a stream ends."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from queueing.job import EnqueueStatus
from queueing.lane import MAX_JOB_AUDIO_S, Kind
from sessions.effects import CancelPartial
from sessions.limits import MAX_WAITING_AUDIO_S, MAX_WAITING_FINALS, SessionLimits
from sessions.wire import Done, End, Error, Flush, Keepalive, Ready, Start, Timing, Word
from tests.support.session_driver import Driver, at, delivery, failure


def held_back(driver: Driver) -> bool:
    """Whether the client's next message shall wait unread."""
    return not driver.session.accepts


@pytest.mark.parametrize("seconds", [0.3, 0.9, 1.1, 17.3, 27.8])
def test_end_asks_for_one_final_over_everything(seconds: float) -> None:
    driver = Driver()
    driver.text(Start(partials=False, language="en"))
    driver.audio(seconds)
    driver.text(End())
    (job,) = driver.jobs
    assert (job.id, job.kind, job.segment, job.start_byte) == ("s1:f:0", Kind.FINAL, 0, 0)
    assert job.end_byte == at(seconds) == len(driver.buffer)
    driver.deliver(job, "all of it", event=1)
    (final,) = driver.finals
    assert (final.text, final.last, final.seq) == ("all of it", True, 1)
    assert (final.start_s, final.end_s) == (0.0, seconds)
    assert driver.sent[-1] == Done(audio_s=seconds, finals=1)
    assert driver.closed == (1000, "done")
    assert driver.cancelled == 1


@pytest.mark.parametrize("seconds", [29.9, 60.1])
def test_more_than_one_job_can_hold_is_cut_and_the_last_final_ends_with_the_stream(seconds: float) -> None:
    driver = Driver()
    driver.text(Start(partials=False, language="en"))
    driver.audio(seconds)
    driver.text(End())
    edges = [job.start_byte for job in driver.jobs] + [at(seconds)]
    assert edges[0] == 0
    assert [job.end_byte for job in driver.jobs] == edges[1:]
    assert len(driver.jobs) > seconds / MAX_JOB_AUDIO_S
    for number, job in enumerate(list(driver.jobs)):
        driver.deliver(job, event=number)
    assert [final.last for final in driver.finals] == [False] * (len(edges) - 2) + [True]
    assert driver.sent[-1] == Done(audio_s=seconds, finals=len(edges) - 1)


def test_nothing_said_at_all_is_an_empty_last_final_without_a_decode() -> None:
    driver = Driver()
    driver.text(End())
    assert [type(message).__name__ for message in driver.sent] == ["Ready", "Final", "Done"]
    (final,) = driver.finals
    assert (final.text, final.last, final.start_s, final.end_s) == ("", True, 0.0, 0.0)
    assert driver.jobs == []
    assert driver.closed == (1000, "done")


@pytest.mark.parametrize("data", [b"\x01\x00", b"\x01", b"", b"RI", bytes(1_598)])
def test_less_than_a_word_can_last_is_an_empty_final_at_once(data: bytes) -> None:
    driver = Driver()
    driver.audio(data)
    driver.text(End())
    assert driver.jobs == []
    assert [final.text for final in driver.finals] == [""]
    assert driver.of(Done) == [Done(audio_s=round(len(data) // 2 / 16_000, 4), finals=1)]


def test_flush_is_a_final_and_the_stream_stays_open() -> None:
    driver = Driver()
    driver.live(2.0)
    driver.text(Flush())
    job = driver.jobs[-1]
    assert (job.kind, job.segment, job.start_byte, job.end_byte) == (Kind.FINAL, 0, 0, at(2))
    driver.deliver(job, "one", event=1)
    assert (driver.finals[0].text, driver.finals[0].last) == ("one", False)
    assert driver.closed is None
    driver.live(1.0)
    driver.text(End())
    last = driver.jobs[-1]
    assert (last.id, last.segment, last.start_byte, last.end_byte) == ("s1:f:1", 1, at(2), at(3))
    driver.deliver(last, "two", event=2)
    assert [(final.text, final.last, final.start_s, final.end_s) for final in driver.finals] == [
        ("one", False, 0.0, 2.0),
        ("two", True, 2.0, 3.0),
    ]
    assert driver.sent[-1] == Done(audio_s=3.0, finals=2)


def test_a_flush_with_nothing_new_causes_no_job_and_no_message() -> None:
    driver = Driver()
    driver.text(Start())
    driver.text(Flush())
    driver.live(1.0)
    driver.text(Flush())
    driver.deliver(driver.jobs[-1], event=1)
    count = (len(driver.jobs), len(driver.sent))
    for _ in range(3):
        driver.text(Flush())
    assert (len(driver.jobs), len(driver.sent)) == count


def test_an_end_right_after_a_flush_adds_an_empty_last_final_behind_the_flushed_one() -> None:
    driver = Driver()
    driver.live(1.0)
    driver.text(Flush())
    driver.text(End())
    assert driver.finals == [], "the empty one waits for its turn"
    driver.deliver(driver.asked(Kind.FINAL)[0], "one", event=1)
    assert [(final.text, final.last, final.seq) for final in driver.finals] == [("one", False, 1), ("", True, 2)]
    assert driver.closed == (1000, "done")


def test_finals_are_said_in_order_whatever_the_order_of_their_decodes() -> None:
    driver = Driver()
    driver.text(Start(partials=False, language="en"))
    for _ in range(4):
        driver.live(0.5)
        driver.text(Flush())
    driver.text(End())
    for index in (2, 0, 3, 1):
        driver.deliver(driver.jobs[index], f"segment {index}", event=index)
    assert [final.text for final in driver.finals] == [*(f"segment {i}" for i in range(4)), ""]
    assert [final.start_s for final in driver.finals] == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert [final.last for final in driver.finals] == [False] * 4 + [True]


def test_a_final_is_said_once_however_often_it_is_delivered() -> None:
    driver = Driver()
    driver.live(1.0)
    driver.text(Flush())
    job = driver.jobs[-1]
    driver.deliver(job, "first", event=1)
    driver.deliver(job, "other", event=1)
    driver.run(driver.session.on_events(driver.now, [delivery(job, "other", event=1)]))
    assert [final.text for final in driver.finals] == ["first"]
    assert driver.session.summary.duplicates == 1


def test_a_final_that_waits_for_its_turn_is_not_changed_by_a_repetition() -> None:
    driver = Driver()
    driver.text(Start(partials=False, language="en"))
    for _ in range(2):
        driver.live(0.5)
        driver.text(Flush())
    one, two = driver.jobs
    driver.deliver(two, "as first heard", event=1)
    driver.deliver(two, "otherwise", event=1)
    driver.deliver(one, "one", event=2)
    assert [final.text for final in driver.finals] == ["one", "as first heard"]


def test_deliveries_of_others_and_of_unknown_segments_are_ignored() -> None:
    driver = Driver()
    driver.live(1.0)
    driver.text(Flush())
    job = driver.jobs[-1]
    driver.deliver(job, session="s2", event=1)
    driver.deliver(replace(job, id="s1:f:7", segment=7), event=1)
    assert driver.finals == []
    assert driver.closed is None


def test_timing_is_there_when_it_is_wanted() -> None:
    driver = Driver(SessionLimits(event_timing=True))
    driver.live(1.0)
    driver.text(End())
    driver.deliver(driver.jobs[-1], event=1, queue_ms=7, decode_ms=90)
    assert driver.finals[0].timing == Timing(queue_ms=7, decode_ms=90, audio_s=1.0)
    plain = Driver(SessionLimits(event_timing=False))
    plain.live(1.0)
    plain.text(End())
    plain.deliver(plain.jobs[-1], event=1)
    assert plain.finals[0].timing is None


def test_word_times_count_from_the_start_of_the_stream() -> None:
    driver = Driver()
    driver.text(Start(words=True, partials=False, language="en"))
    driver.live(2.0)
    driver.text(Flush())
    driver.live(1.0)
    driver.text(End())
    words = [
        {"text": "a", "start_s": -0.01, "end_s": 0.25, "probability": 0.5},
        {"text": "b", "start_s": 0.25, "end_s": 1.5, "probability": 1.0000001},
    ]
    first, second = driver.jobs
    assert first.options == {"words": True, "language": "en"}
    driver.deliver(first, event=1)
    driver.deliver(second, event=2, result={"text": "a b", "model": "m", "language": "en", "words": words})
    assert driver.finals[0].words == ()
    assert driver.finals[1].words == (
        Word(text="a", start_s=2.0, end_s=2.25, probability=0.5),
        Word(text="b", start_s=2.25, end_s=3.0, probability=1.0),
    )


def test_words_lie_inside_what_was_decoded_wherever_that_begins_and_ends(rng: random.Random) -> None:
    driver = Driver()
    driver.text(Start(words=True, partials=False, language="en"))
    for _ in range(100):
        driver.audio(rng.randrange(1_600, 8_000) / 16_000)
        driver.text(Flush())
        job = driver.jobs[-1]
        words = [{"text": "a", "start_s": 0.0, "end_s": job.audio_s + 0.02, "probability": 1.0}]
        driver.deliver(job, result={"text": "a", "model": "m", "words": words})
    finals = [final for final in driver.finals if final.words]
    assert len(finals) == 100
    for final in finals:
        assert final.words is not None
        (word,) = final.words
        assert (word.start_s, word.end_s) == (final.speech_start_s, final.speech_end_s)


def test_without_the_wish_there_are_no_words() -> None:
    driver = Driver()
    driver.live(1.0)
    driver.text(End())
    word = {"text": "a", "start_s": 0, "end_s": 0.25, "probability": 0.5}
    driver.deliver(driver.jobs[-1], event=1, result={"text": "a", "model": "m", "words": [word]})
    assert driver.finals[0].words is None


def test_audio_beyond_the_limit_is_discarded_and_the_stream_ends_by_itself() -> None:
    driver = Driver(SessionLimits(max_audio_s=2.0))
    driver.text(Start(partials=False, language="en"))
    driver.audio(2.0)
    assert driver.errors == [], "exactly the limit is allowed"
    driver.audio(0.1)
    assert driver.errors == ["audio_limit"]
    assert not driver.last_error.fatal
    assert "2 s" in driver.last_error.message
    driver.audio(1.0)
    driver.text(Keepalive())
    driver.text(End())
    assert driver.errors == ["audio_limit"], "what crossed the message on its way is no fault"
    (job,) = driver.jobs
    assert job.end_byte == at(2.0)
    driver.deliver(job, event=1)
    assert driver.finals[-1].last
    assert driver.sent[-1] == Done(audio_s=2.0, finals=1)
    assert driver.closed == (1009, "audio_limit")
    assert driver.session.summary.discarded_bytes == at(1.1)


def test_ten_minutes_in_one_frame_are_cut_at_the_limit() -> None:
    driver = Driver(SessionLimits(max_audio_s=120, max_frame_bytes=32_000_000))
    driver.text(Start(language="en"))
    driver.audio(b"\x01\x00" * 9_600_000, frame=32_000_000)
    assert len(driver.buffer) == at(120)
    assert {job.kind for job in driver.jobs} == {Kind.FINAL}
    assert driver.jobs[-1].end_byte == at(120)
    assert driver.errors == ["audio_limit"]


def test_what_comes_after_end_is_bad_state_and_harmless() -> None:
    driver = Driver()
    driver.live(1.0)
    driver.text(End())
    driver.text(End())
    driver.text(Flush())
    driver.text(Start())
    driver.text(Keepalive())
    for _ in range(200):
        driver.audio(0.1)
    assert driver.errors == ["bad_state"] * 4, "late audio is told once"
    driver.deliver(driver.jobs[-1], event=1)
    assert len(driver.finals) == 1
    assert driver.closed == (1000, "done")


def test_a_client_is_held_back_while_too_many_finals_wait() -> None:
    driver = Driver(SessionLimits(idle_timeout_s=3, inference_timeout_s=100))
    driver.text(Start(partials=False, language="en"))
    for number in range(MAX_WAITING_FINALS):
        assert not held_back(driver), number
        driver.audio(0.1)
        driver.text(Flush())
    assert held_back(driver)
    driver.wait(10)
    assert driver.errors == [], "a client that is held back is not idle"
    driver.deliver(driver.jobs[0], event=1)
    assert not held_back(driver)
    driver.wait(2.9)
    assert driver.errors == []
    driver.wait(0.1)
    driver.text(End())
    assert not held_back(driver), "what comes after the end is discarded at once"


def test_a_client_is_held_back_when_it_is_far_ahead_of_its_oldest_final() -> None:
    driver = Driver()
    driver.text(Start(partials=False, language="en"))
    driver.audio(MAX_WAITING_AUDIO_S - 0.1)
    assert not held_back(driver)
    driver.audio(0.1)
    assert held_back(driver)
    driver.deliver(driver.jobs[0], event=1)
    assert not held_back(driver)


def test_a_full_queue_ends_the_stream_saying_when_to_retry() -> None:
    driver = Driver(SessionLimits(retry_after_s=7))
    driver.answers = lambda job: EnqueueStatus.FULL if job.kind is Kind.FINAL else EnqueueStatus.QUEUED
    driver.live(1.0)
    driver.text(End())
    assert driver.errors == ["overloaded"]
    assert driver.last_error.retry_after_s == 7
    assert driver.closed == (1013, "overloaded")
    assert driver.finals == []


@pytest.mark.parametrize(
    ("code", "told", "close"),
    [
        ("decode_failed", "decode_failed", 1011),
        ("timeout", "decode_failed", 1011),
        ("audio_missing", "state_lost", 1011),
        ("unsupported_language", "unsupported_language", 1003),
    ],
)
def test_a_final_that_failed_for_good_ends_the_stream_after_the_finals_before_it(
    code: str, told: str, close: int
) -> None:
    driver = Driver()
    driver.text(Start(partials=False, language="en"))
    driver.live(1.0)
    driver.text(Flush())
    driver.live(1.0)
    driver.text(Flush())
    first, second = driver.jobs
    driver.run(driver.session.on_delivery(driver.now, failure(second, code, "the reason")))
    assert driver.errors == []
    driver.deliver(first, event=2)
    assert len(driver.finals) == 1
    assert driver.errors == [told]
    assert "the reason" in driver.last_error.message
    assert driver.closed == (close, told)


def test_a_malformed_result_is_an_error_and_no_crash() -> None:
    for result in (None, {}, {"text": 5, "model": "m"}, {"text": "a", "model": "m", "words": [{"text": "a"}]}):
        driver = Driver()
        driver.live(1.0)
        driver.text(End())
        driver.deliver(driver.jobs[-1], event=1, result=result)
        assert driver.errors == ["decode_failed"]
        assert driver.closed == (1011, "decode_failed")


def test_an_empty_final_takes_a_waiting_partial_out_of_the_queue() -> None:
    driver = Driver(SessionLimits(min_partial_audio_s=0.02, partial_interval_s=0.02))
    driver.audio(0.03)
    assert len(driver.jobs) == 1
    effects = driver.text(End())
    assert any(isinstance(effect, CancelPartial) for effect in effects)
    assert driver.closed == (1000, "done")


def test_the_first_messages_come_in_order() -> None:
    driver = Driver()
    driver.audio(0.6)
    driver.deliver(driver.jobs[0])
    driver.text(End())
    driver.deliver(driver.jobs[1], event=1)
    assert [type(message).__name__ for message in driver.sent] == ["Ready", "Partial", "Final", "Done"]
    assert driver.of(Ready)[0].session == "s1"
    assert driver.of(Error) == []
