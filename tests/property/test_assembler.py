"""Whatever a model says: stable text only grows, and every text begins with it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.assembler import Assembler

words = st.sampled_from(
    ["the", "The", "cat", "cat.", "cats", "sat,", "on", "every", "one", "everyone", "-", "日", "本。"]
)
hypotheses = st.lists(st.lists(words, max_size=14).map(" ".join) | st.text(max_size=20), max_size=8)


@settings(max_examples=300, deadline=None)
@given(said=hypotheses, agreeing=st.integers(1, 3), held_back=st.integers(0, 3))
def test_stable_text_only_grows_and_every_text_begins_with_it(said: list[str], agreeing: int, held_back: int) -> None:
    assembler = Assembler(agreeing, held_back)
    before = ""
    for hypothesis in said:
        stable, text = assembler.partial(hypothesis)
        assert stable.startswith(before)
        assert text.startswith(stable)
        before = stable


@settings(max_examples=200, deadline=None)
@given(said=st.lists(words, max_size=20), cuts=st.lists(st.integers(0, 20), max_size=8), held_back=st.integers(0, 3))
def test_growing_hypotheses_of_one_text_are_shown_as_they_are(said: list[str], cuts: list[int], held_back: int) -> None:
    assembler = Assembler(2, held_back)
    for cut in sorted(cuts):
        assert assembler.partial(" ".join(said[:cut])).text == " ".join(said[:cut])
