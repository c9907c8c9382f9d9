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
@given(said=hypotheses, settle_s=st.sampled_from([0.0, 1.0, 2.5]), held_back=st.integers(0, 3))
def test_stable_text_only_grows_and_every_text_begins_with_it(said: list[str], settle_s: float, held_back: int) -> None:
    assembler = Assembler(settle_s, held_back)
    before = ""
    for end_s, hypothesis in enumerate(said):
        stable, text = assembler.partial(hypothesis, end_s)
        assert stable.startswith(before)
        assert text.startswith(stable)
        before = stable


@settings(max_examples=200, deadline=None)
@given(said=st.lists(words, max_size=20), cuts=st.lists(st.integers(0, 20), max_size=8), held_back=st.integers(0, 3))
def test_growing_hypotheses_of_one_text_are_shown_as_they_are(said: list[str], cuts: list[int], held_back: int) -> None:
    assembler = Assembler(1.0, held_back)
    for end_s, cut in enumerate(sorted(cuts)):
        assert assembler.partial(" ".join(said[:cut]), end_s).text == " ".join(said[:cut])
