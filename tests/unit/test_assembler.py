"""Which words become stable, and what a partial says when the model changes its mind."""

from __future__ import annotations

import pytest

from sessions.assembler import Assembler


def last(*hypotheses: str, settle_s: float = 1.0, held_back: int = 1) -> tuple[str, str]:
    """What is shown after hypotheses that came a second apart."""
    assembler = Assembler(settle_s, held_back)
    result = ("", "")
    for end_s, hypothesis in enumerate(hypotheses, 1):
        result = assembler.partial(hypothesis, end_s)
    return result


def test_a_single_hypothesis_is_tentative() -> None:
    assert last("the cat sat") == ("", "the cat sat")


def test_words_that_two_hypotheses_share_are_stable_but_for_the_last_of_the_shorter() -> None:
    assert last("the cat sat", "the cat sat on the mat") == ("the cat", "the cat sat on the mat")


def test_case_and_punctuation_are_no_difference_and_the_newest_form_is_kept() -> None:
    assert last("the cat. Sat on", "The cat, sat on the", held_back=0) == ("The cat, sat on", "The cat, sat on the")


def test_stable_text_is_never_written_anew() -> None:
    assembler = Assembler(1.0, 0)
    assembler.partial("the cat sat", 1)
    assert assembler.partial("the cat ran", 2) == ("the cat", "the cat ran")
    assert assembler.partial("The cat. Ran off", 3) == ("the cat Ran", "the cat Ran off")


def test_agreement_must_be_in_a_row() -> None:
    assert last("one two three", "one tea three", "one two three", held_back=0) == ("one", "one two three")


def test_every_hypothesis_of_the_time_to_settle_must_agree() -> None:
    said = ("one two", "one two", "one too")
    assert last(*said[:2], settle_s=2, held_back=0)[0] == ""
    assert last(*said, settle_s=2, held_back=0)[0] == "one"
    assert last("one too", "one two", "one two", settle_s=1, held_back=0)[0] == "one two"


def test_it_is_the_audio_between_hypotheses_that_counts_not_their_number() -> None:
    assembler = Assembler(2.0, 0)
    for tenth in range(15):
        assert assembler.partial("one two", 3 + tenth / 10).stable == ""
    assembler.reset()
    assembler.partial("one two", 10.0)
    assert assembler.partial("one two", 11.9995).stable == "one two", "times are rounded"
    assembler.reset()
    assembler.partial("one two", 10.0)
    assert assembler.partial("one two", 17.0).stable == "one two", "two are enough when none came in between"


def test_one_hypothesis_makes_nothing_stable() -> None:
    assert last("one two", settle_s=0, held_back=0)[0] == ""
    assert last("one two", "one two", settle_s=0, held_back=0)[0] == "one two"


def test_more_words_can_be_held_back() -> None:
    assert last("a b c d", "a b c d e", held_back=2)[0] == "a b"
    assert last("a", "a", held_back=2)[0] == ""


@pytest.mark.parametrize(
    ("contradiction", "text"),
    [
        ("a black bat sat on a mat", "the black cat sat on a mat"),
        ("and the black cat sat on a mat", "the black cat sat on a mat"),
        ("black cat sat on a mat", "the black cat sat on a mat"),
        ("the blackcat sat on a mat", "the black cat sat on a mat"),
        ("the black c at sat on a mat", "the black cat sat on a mat"),
        ("the black", "the black cat sat"),
        ("", "the black cat sat"),
        ("the", "the black cat sat"),
        ("the black cats at on a mat", "the black cat sat on a mat"),
    ],
)
def test_a_contradiction_keeps_the_stable_words_and_says_none_twice(contradiction: str, text: str) -> None:
    assert last("the black cat sat on", "the black cat sat on", contradiction)[:2] == ("the black cat sat", text)


def test_text_after_a_contradiction_can_become_stable() -> None:
    said = ("the black cat sat on", "the black cat sat on", "a black bat sat on a mat", "a black bat sat on a mat")
    assert last(*said) == ("the black cat sat on a", "the black cat sat on a mat")


def test_a_much_shorter_hypothesis_adds_nothing() -> None:
    text = " ".join(f"w{number}" for number in range(40))
    assert last(text, text, "nothing at all", held_back=0) == (text, text)


def test_a_script_without_spaces_goes_by_characters() -> None:
    assert last("今天天气很", "今天天气很好。", held_back=1) == ("今天天气", "今天天气很好。")


def test_a_new_segment_starts_with_nothing_stable() -> None:
    assembler = Assembler(1.0, 0)
    assembler.partial("one two", 1)
    assert assembler.partial("one two", 2).stable == "one two"
    assembler.reset()
    assert assembler.partial("one two", 3) == ("", "one two")
