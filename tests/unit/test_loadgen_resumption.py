"""When a client comes back, where, how soon, for how long; and when it does not."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from loadgen.errors import CannotConnect, CannotResume, ClientError, NoAnswer, ProtocolBroken, Refused, ServerFailed
from loadgen.resumption import FRUITLESS_LIMIT, Resuming, Resumption
from sessions.wire import Ack, Error, ErrorCode, Partial, Ready, Resume, Start
from tests.support.fake_service import LIMITS

A, B, C = "ws://a/v1/stream", "ws://b/v1/stream", "ws://c/v1/stream"
BROKEN = ServerFailed("", "broken", None)
DOWN = CannotConnect(A, "refused")
OPTIONS = Resuming(base_s=0.1, cap_s=5.0, extra_s=10.0)


def ready(**fields: Any) -> Ready:
    return Ready(**{"session": "s", "limits": LIMITS, "token": "t", "resume_s": 30.0, **fields})


def begun(rng: random.Random, *urls: str, options: Resuming = OPTIONS, **fields: Any) -> Resumption:
    """A stream whose first connection, to the first URL, has had its `ready` at second 100."""
    course = Resumption(Start(), urls or (A,), options, rng)
    assert course.attempt(100.0).url == (urls or (A,))[0]
    assert course.take(100.0, ready(**fields))
    course.sent = 64_000
    return course


def busy(seconds: float) -> Refused:
    return Refused(503, "overloaded", "full", seconds)


def test_delays_have_full_jitter_grow_and_are_capped(rng: random.Random) -> None:
    delays: list[list[float]] = [[] for _ in range(12)]
    for _ in range(400):
        course = begun(rng)
        course.failed(101.0, BROKEN)
        for found in delays:
            found.append(course.attempt(101.0).delay_s)
            course.failed(101.0, DOWN)
    for attempt, found in enumerate(delays):
        longest = min(5.0, 0.1 * 2**attempt)
        assert 0 <= min(found) < 0.1 * longest
        assert 0.9 * longest < max(found) <= longest
        # Uniform: the mean of 400 draws is within 5 standard errors of the middle.
        assert sum(found) / 400 == pytest.approx(longest / 2, abs=5 * longest / math.sqrt(12 * 400))


def test_the_first_attempt_is_quick_again_after_news_but_not_after_none(rng: random.Random) -> None:
    course = begun(rng)
    for _ in range(6):
        course.failed(101.0, BROKEN)
        course.attempt(101.0)
        assert course.take(101.0, ready(resumed=True))
    assert course._tries == 6
    course.take(101.0, Ack(received_s=1.0))
    course.failed(101.0, BROKEN)
    assert course.attempt(101.0).delay_s <= 0.1


def test_it_gives_up_when_the_server_would_have_too(rng: random.Random) -> None:
    course = begun(rng, resume_s=30.0)
    assert course.failed(200.0, BROKEN), "true for the loss itself, once"
    now = 200.0
    while (now := now + course.attempt(now).delay_s) < 240.0 - 1e-6:
        assert course.failed(now, DOWN) is False
    assert now == pytest.approx(240.0), "the last attempt is made when the time is over"
    with pytest.raises(CannotResume, match="refused") as caught:
        course.failed(240.0, DOWN)
    assert caught.value.last is DOWN
    assert caught.value.waited_s == pytest.approx(40.0)


def test_front_ends_are_tried_in_turn_the_one_that_failed_last(rng: random.Random) -> None:
    course = begun(rng, A, B, C)
    course.failed(101.0, BROKEN)
    tried = []
    for _ in range(5):
        tried.append(course.attempt(101.0).url)
        course.failed(101.0, DOWN)
    assert tried == [B, C, A, B, C]


def test_a_front_end_that_asks_for_time_gets_it_and_others_are_tried_meanwhile(rng: random.Random) -> None:
    course = begun(rng, A, B)
    course.failed(101.0, BROKEN)
    assert course.attempt(101.0).url == B
    course.failed(101.0, busy(5.0))
    assert course.attempt(101.0).url == A
    course.failed(101.0, busy(9.0))
    attempt = course.attempt(101.0)
    assert attempt.url == B
    assert 5.0 <= attempt.delay_s <= 5.4


def test_a_front_end_that_asks_for_too_much_time_does_not_get_it(rng: random.Random) -> None:
    course = begun(rng)
    course.failed(100.0, BROKEN)
    course.attempt(100.0)
    course.failed(100.0, busy(3_600.0))
    assert course.attempt(100.0).delay_s == pytest.approx(20.0, abs=0.3), "half of the 40 s that are left"


def test_a_server_that_ends_is_no_reason_to_wait_where_its_successor_may_be_there(rng: random.Random) -> None:
    course = begun(rng)
    told = Error(code=ErrorCode.SHUTTING_DOWN, message="ends", fatal=True, retry_after_s=5.0)
    assert not course.take(100.0, told), "an error that the stream survives is none for the caller"
    course.failed(100.0, ServerFailed("shutting_down", "ends", 1012, 5.0))
    assert course.attempt(100.0).delay_s <= 0.1


@pytest.mark.parametrize(
    "failure",
    [
        ServerFailed("", "why", 1000), ServerFailed("", "why", 1009), ServerFailed("", "why", 1011),
        ServerFailed("", "why", 1008), ServerFailed("overloaded", "full", 1013, 5.0),
        ServerFailed("decode_failed", "no", 1011), ServerFailed("taken_over", "by another", 1008),
        NoAnswer("the last final", 90), ProtocolBroken("what?"),
    ],
)  # fmt: skip
def test_an_end_that_is_the_streams_own_is_the_end(failure: ClientError, rng: random.Random) -> None:
    with pytest.raises(type(failure)) as caught:
        begun(rng).failed(101.0, failure)
    assert caught.value is failure


@pytest.mark.parametrize("code", ["shutting_down", "unavailable"])
def test_an_error_that_the_stream_outlives_is_not_its_end(code: str, rng: random.Random) -> None:
    told = Error(code=ErrorCode(code), message="not here", fatal=True, retry_after_s=2.0)
    course = begun(rng)
    assert not course.take(100.5, told), "who reads the transcript is not told"
    assert course.failed(101.0, ServerFailed(code, "not here", 1011, 2.0))
    assert course.attempt(101.0).delay_s >= (0.0 if code == "shutting_down" else 2.0)
    assert begun(rng, token=None).take(100.5, told)


@pytest.mark.parametrize("code", [None, 1001, 1006, 1012, 1013, 1014])
def test_an_end_of_the_connection_is_not(code: int | None, rng: random.Random) -> None:
    course = begun(rng)
    assert course.failed(101.0, ServerFailed("", "why", code))
    course.attempt(101.0)
    assert course.opening == Resume(session="s", token="t", last_seq=0)


@pytest.mark.parametrize(
    ("failure", "final"),
    [
        (ServerFailed("resume_refused", "no such stream", 1008), True), (ServerFailed("taken_over", "", 1008), True),
        (ServerFailed("unavailable", "Redis is away", 1011, 1.0), False), (ServerFailed("internal", "", 1011), False),
        (ServerFailed("", "", 1011), False), (Refused(401, "unauthorized", "", None), True), (busy(1.0), False),
        (Refused(429, "rate_limited", "", 1.0), False), (CannotConnect(A, "HTTP 502"), False),
        (NoAnswer("ready", 15), False), (BROKEN, False),
    ],
)  # fmt: skip
def test_what_may_meet_an_attempt_to_resume(failure: ClientError, final: bool, rng: random.Random) -> None:
    course = begun(rng)
    course.failed(101.0, BROKEN)
    course.attempt(101.0)
    if final:
        with pytest.raises(type(failure)):
            course.failed(102.0, failure)
    else:
        assert course.failed(102.0, failure) is False


def test_a_stream_that_cannot_be_resumed_ends_with_its_connection(rng: random.Random) -> None:
    for course in (begun(rng, token=None), begun(rng, options=Resuming(enabled=False))):
        assert not course.keeps
        with pytest.raises(ServerFailed):
            course.failed(101.0, BROKEN)
    assert Resumption(Start(resume=False), [A], OPTIONS, rng).opening == Start(resume=False)
    assert Resumption(Start(), [A], OPTIONS, rng).opening == Start(resume=True)
    with pytest.raises(ValueError, match="no URL"):
        Resumption(Start(), [], OPTIONS, rng)


def test_at_first_each_front_end_is_asked_once_and_a_refusal_says_more_than_silence(rng: random.Random) -> None:
    course = Resumption(Start(), [A, B, C], OPTIONS, rng)
    for url, failure in ((A, DOWN), (B, busy(5.0))):
        assert course.attempt(0.0).url == url
        assert course.failed(0.0, failure) is False
    assert course.attempt(0.0).url == C
    with pytest.raises(Refused):
        course.failed(0.0, CannotConnect(C, "refused"))


def test_a_connection_without_any_news_is_not_made_for_ever(rng: random.Random) -> None:
    course = begun(rng)
    course.ended = True
    for count in range(1, FRUITLESS_LIMIT + 1):
        course.failed(1_000.0 * count, BROKEN)
        course.attempt(1_000.0 * count)
        course.take(1_000.0 * count, ready(resumed=True, received_s=0.0))
    with pytest.raises(CannotResume):
        course.failed(1_000_000.0, BROKEN)


def test_a_connection_that_stood_is_reason_enough_while_there_is_audio_to_come(rng: random.Random) -> None:
    course = begun(rng)
    for hour in range(1, 100):
        assert course.failed(3_600.0 * hour, BROKEN)
        course.attempt(3_600.0 * hour)
        course.take(3_600.0 * hour, ready(resumed=True))


def test_a_server_that_stalls_again_without_news_is_given_up(rng: random.Random) -> None:
    stalled = NoAnswer("taking more audio", 60)
    course = begun(rng)
    for _ in range(2):
        course.failed(200.0, stalled)
        course.attempt(200.0)
        course.take(200.0, ready(resumed=True))
        course.take(200.0, Partial(seq=course._last_seq + 1, start_s=0, end_s=1, text=""))
    course.failed(300.0, stalled)
    course.attempt(300.0)
    course.take(300.0, ready(resumed=True))
    with pytest.raises(NoAnswer):
        course.failed(400.0, stalled)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (ready(resumed=False), "another stream"),
        (ready(resumed=True, session="other"), "another stream"),
        (ready(resumed=True, received_s=0.5), "acknowledged"),
        (ready(resumed=True, received_s=2.5), "64000 sent"),
        (Error(code="unknown_type", message="resume is no type", fatal=False), "cannot resume"),
    ],
)
def test_an_answer_that_would_lose_or_double_audio_is_a_fault(answer: Any, words: str, rng: random.Random) -> None:
    course = begun(rng)
    assert not course.take(100.0, Ack(received_s=1.0))
    course.failed(101.0, BROKEN)
    course.attempt(101.0)
    with pytest.raises(ProtocolBroken, match=words):
        course.take(102.0, answer)
    with pytest.raises(ProtocolBroken, match="acknowledges"):
        begun(rng).take(100.0, Ack(received_s=2.1))
