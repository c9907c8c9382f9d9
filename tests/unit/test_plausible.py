"""Text that nobody said is told by measure, not by phrase."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.hypothesis import Hypothesis, Segment
from workers.plausible import (
    Cause,
    Heard,
    begins_as_it_ended,
    in_order,
    is_plausible,
    repeats_a_phrase,
    suspicions,
)
from workers.timeline import Speech
from workers.transcriber import Word

TALK = (Speech(10.0, 14.0),)


def heard(text: str, start_s: float, end_s: float, *, log_probability: float = -0.3, no_speech: float = 0.1) -> Heard:
    data = text.encode()
    return Heard(text, start_s, end_s, len(data) / len(zlib.compress(data)), log_probability, no_speech)


def test_what_is_timed_within_speech_stands() -> None:
    assert is_plausible(heard(" when is a lobster not a lobster", 10.2, 13.0), TALK)


def test_a_segment_may_stick_out_of_speech_a_little() -> None:
    assert is_plausible(heard(" hello", 14.8, 15.5), TALK)
    assert is_plausible(heard(" hello", 8.0, 9.2), TALK)


def test_text_where_nobody_speaks_falls() -> None:
    assert not is_plausible(heard(" Thank you.", 0.0, 5.0), TALK)
    assert not is_plausible(heard(" Thank you.", 20.0, 22.0), TALK)
    assert not is_plausible(heard(" Thank you.", 10.0, 12.0), ())


def test_signs_without_a_letter_are_not_words() -> None:
    assert not is_plausible(heard(" . .", 10.0, 12.0), TALK)
    assert is_plausible(heard(" 42", 10.0, 12.0), TALK)
    assert is_plausible(heard(" 你好", 10.0, 12.0), TALK)


def test_silence_needs_both_signs() -> None:
    assert not is_plausible(heard(" you", 10.0, 12.0, log_probability=-1.2, no_speech=0.8), TALK)
    assert is_plausible(heard(" you", 10.0, 12.0, log_probability=-0.3, no_speech=0.8), TALK)
    assert is_plausible(heard(" you", 10.0, 12.0, log_probability=-1.2, no_speech=0.2), TALK)


def test_a_loop_falls_and_a_speaker_who_repeats_stands() -> None:
    said_40_times = " testing" * 40
    assert not is_plausible(heard(said_40_times, 10.0, 12.0), TALK)
    assert is_plausible(heard(said_40_times, 10.0, 34.0), TALK)


@given(
    st.lists(st.tuples(st.floats(-5, 40), st.floats(-5, 40)), max_size=20),
    st.floats(0, 30),
)
def test_word_times_never_step_back_and_stay_inside(times: list[tuple[float, float]], audio_s: float) -> None:
    words = in_order([Word(str(place), start, end, 0.5) for place, (start, end) in enumerate(times)], audio_s)
    edges = [edge for word in words for edge in (word.start_s, word.end_s)]
    assert edges == sorted(edges)
    assert all(0 <= edge <= audio_s for edge in edges)
    assert [word.text for word in words] == [str(place) for place in range(len(times))]


def test_good_word_times_stay_as_they_are() -> None:
    words = [Word("a", 0.1, 0.4, 0.9), Word("b", 0.4, 0.9, 0.8)]
    assert list(in_order(words, 1.0)) == words


def hypothesis(text: str, *, start_s: float = 0.0, log_probability: float = -0.3, **more: float | bool) -> Hypothesis:
    no_speech = float(more.get("no_speech", 0.1))
    return Hypothesis(
        (Segment(start_s, start_s + 2, (1,)),), text, log_probability, no_speech, capped=bool(more.get("capped"))
    )


SENTENCE = " He hoped there would be stew for dinner, turnips and carrots."


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (hypothesis(" so it goes" * 12), Cause.COMPRESSION),
        (hypothesis(SENTENCE * 3), Cause.RATE),
        (hypothesis(" of Athol. John Murray, Marquis of Athol. John Murray, Marquis of Athol."), Cause.REPEATED_PHRASE),
        (hypothesis(SENTENCE, start_s=5.0), Cause.BEYOND_END),
        (hypothesis(SENTENCE, capped=True), Cause.UNFINISHED),
        (hypothesis(" He"), Cause.SHORT_TEXT),
        (hypothesis(SENTENCE, log_probability=-1.1), Cause.LOG_PROBABILITY),
    ],
)
def test_each_cause_is_seen(found: Hypothesis, cause: Cause) -> None:
    assert cause in suspicions(found, audio_s=5.0, speech_s=4.0)


def test_an_ordinary_sentence_is_above_suspicion() -> None:
    assert suspicions(hypothesis(SENTENCE), audio_s=5.0, speech_s=4.0) == frozenset()


def test_improbable_text_of_silence_is_not_looked_at_twice() -> None:
    assert suspicions(hypothesis(SENTENCE, log_probability=-1.1, no_speech=0.9), 5.0, 4.0) == frozenset()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the more proposals the more credit. The more proposals, the more credit.", True),
        ("in being modern. In being modern.", True),
        ("Printing, printing printing.", True),
        ("lights fire lights fire lights fire", True),
        ("no no", False),
        ("by and by, by and by", True),
        ("lights fire lights fire", False),
        ("again and again", False),
        ("very, very good", False),
        ("", False),
    ],
)
def test_a_phrase_of_three_words_said_twice_at_once_or_a_shorter_one_three_times(text: str, expected: bool) -> None:
    assert repeats_a_phrase(text) is expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("an army of", "Of feudal men", True),
        ("an army,", "of men", False),
        ("", "of men", False),
        ("an army", "", False),
    ],
)
def test_a_word_heard_on_both_sides_of_a_seam(before: str, after: str, expected: bool) -> None:
    assert begins_as_it_ended(before, after) is expected
