"""The count behind docs/endpointing.md: how many stable words the final does not have."""

from __future__ import annotations

import pytest

from tests.support.stable_partials import Heard, misses, rate


@pytest.mark.parametrize(
    ("words", "final", "wrong"),
    [
        ("the cat", "the cat sat on", 0),
        ("the cat", "a cat sat", 1),
        ("the the cat", "the cat sat", 1),
        ("cat", "the cat sat", 1),
        ("", "anything", 0),
        ("the cat", "", 2),
    ],
)
def test_stable_words_are_held_against_the_nearest_beginning_of_the_final(words: str, final: str, wrong: int) -> None:
    assert misses(words.split(), final.split()) == wrong


def test_a_rate_counts_words_over_all_segments() -> None:
    heard = [
        Heard("a", ["The lock", "The lock is", "The lock is old"], "The Locke is old."),
        Heard("b", ["Yes"], "Yes."),
    ]
    found = rate(heard, every=1, settle_s=1.0, held_back=1)
    assert (found.final, found.stable, found.wrong) == (5, 2, 1)
    # Of 2, 3, 4 and 1 words 0, 1, 2 and 0 were stable.
    assert found.behind == pytest.approx(7 / 4)
    assert rate(heard, every=2, settle_s=1.0, held_back=0).stable == 0
