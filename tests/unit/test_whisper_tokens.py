"""From tokens to segments, from silence left out back to the audio's times, and prompts within the model's limit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.stub_whisper import IDS, said, stub_tokenizer
from workers.encoder import Sizing, window_for
from workers.hypothesis import Segment, Vocabulary, read_tokens
from workers.prompts import ROOM_TOKENS, Prompts
from workers.speech import may_hold_a_pause
from workers.timeline import LONGEST_SILENCE_S, MARGIN_S, Speech, Timeline
from workers.transcriber import Word

VOCABULARY = Vocabulary(end=IDS["<|endoftext|>"], first_time=len(IDS))
HELLO, WORLD = said("hello", "world")


@pytest.mark.parametrize(
    ("tokens", "segments", "goes_on_at_s"),
    [
        ([], (), None),
        (said(0.0), (), None),
        (said("hello", "world"), (Segment(0.0, 9.0, (HELLO, WORLD)),), None),
        (said(0.0, "hello", 3.2), (Segment(0.0, 3.2, (HELLO,)),), None),
        (said(0.0, "hello", 3.2, 3.2), (Segment(0.0, 3.2, (HELLO,)),), 3.2),
        (
            said(0.4, "hello", 3.2, 4.0, "world", 5.0),
            (Segment(0.4, 3.2, (HELLO,)), Segment(4.0, 5.0, (WORLD,))),
            None,
        ),
        (said(0.0, "hello", 3.2, "world"), (Segment(0.0, 3.2, (HELLO,)), Segment(3.2, 9.0, (WORLD,))), None),
        (said(0.0, "hello", 3.2, 12.0, "world"), (Segment(0.0, 3.2, (HELLO,)), Segment(12.0, 12.0, (WORLD,))), None),
    ],
)
def test_tokens_become_segments(tokens: list[int], segments: tuple[Segment, ...], goes_on_at_s: float | None) -> None:
    assert read_tokens(tokens, VOCABULARY, 9.0) == (segments, goes_on_at_s)


@given(st.lists(st.integers(0, len(IDS) + 1500), max_size=40))
def test_no_tokens_are_lost_and_segments_never_end_before_they_start(tokens: list[int]) -> None:
    segments, _ = read_tokens(tokens, VOCABULARY, 9.0)
    assert [token for segment in segments for token in segment.tokens] == [t for t in tokens if t < VOCABULARY.end]
    assert all(segment.end_s >= segment.start_s for segment in segments)


@pytest.mark.parametrize(
    ("speech", "kept"),
    [
        ([(0.5, 9.5)], [(0.0, 10.0)]),
        ([(0.5, 4.0), (6.0, 9.5)], [(0.0, 10.0)]),
        ([(3.0, 9.5)], [(2.5, 10.0)]),
        ([(0.5, 7.0)], [(0.0, 7.5)]),
        ([(0.5, 2.0), (5.0, 9.5)], [(0.0, 2.5), (4.5, 10.0)]),
        ([(3.0, 4.0), (7.0, 7.5)], [(2.5, 4.5), (6.5, 8.0)]),
    ],
    ids=["all", "short pause", "leading", "trailing", "inside", "everywhere"],
)
def test_only_long_silence_is_left_out(speech: list[tuple[float, float]], kept: list[tuple[float, float]]) -> None:
    timeline = Timeline.of([Speech(*edges) for edges in speech], 10.0)
    assert timeline.kept == tuple(Speech(*edges) for edges in kept)
    samples = np.arange(160_000, dtype=np.float32)
    cut = timeline.cut(samples)
    assert len(cut) == round(timeline.audio_s * 16_000)
    assert (cut is samples) == (kept == [(0.0, 10.0)])
    assert cut[0] == round(kept[0][0] * 16_000)


def test_speech_is_measured_in_the_joined_stretches() -> None:
    speech = [Speech(0.5, 2.0), Speech(5.0, 9.0)]
    assert Timeline.of(speech, 10.0).measure(speech) == (5.5, 7.0), "2.5 s and 4.5 s to the last word, 1 s behind it"


def test_a_word_at_a_seam_stays_on_its_side() -> None:
    timeline = Timeline.of([Speech(0.5, 2.0), Speech(5.0, 9.5)], 10.0)
    words = [Word("before", 2.0, 2.6, 0.5), Word("after", 2.4, 3.4, 0.5)]
    assert [(w.start_s, w.end_s) for w in timeline.restore(words)] == [(2.0, 2.5), (4.5, pytest.approx(5.4))]


@given(st.lists(st.floats(0, 60), min_size=2, max_size=12, unique=True), st.floats(0, 1), st.floats(0, 1))
def test_mapped_times_lie_in_the_audio_in_order_and_all_speech_is_kept(
    edges: list[float], one: float, other: float
) -> None:
    ordered = sorted(edges)[: len(edges) // 2 * 2]
    speech = [Speech(start, end) for start, end in zip(ordered[::2], ordered[1::2], strict=True)]
    timeline = Timeline.of(speech, 60.0)
    for stretch in speech:
        assert any(kept.start_s <= stretch.start_s and stretch.end_s <= kept.end_s for kept in timeline.kept)
    for before, after in itertools.pairwise(timeline.kept):
        assert after.start_s - before.end_s >= LONGEST_SILENCE_S - 2 * MARGIN_S - 1e-9
    start_s, end_s = sorted((one * timeline.audio_s, other * timeline.audio_s))
    found = timeline.original(start_s, end_s)
    assert 0 <= found[0] <= found[1] <= 60.0


def test_windows_hold_the_audio_and_the_padding() -> None:
    assert [window_for(audio_s, Sizing(2.0, 4.0)) for audio_s in (0.1, 1.0, 1.01, 6.0, 7.0, 27.0, 28.0)] == [
        3, 3, 4, 8, 9, 29, 30
    ]  # fmt: skip
    assert [window_for(audio_s, Sizing(1.0, 4.0)) for audio_s in (0.01, 1.0, 28.0)] == [2, 2, 29]
    assert window_for(1.0, None) == 30


def test_a_pause_is_a_long_low_level() -> None:
    loud, low = np.full(32_000, 0.5, np.float32), np.full(34_000, 0.01, np.float32)
    assert not may_hold_a_pause(np.concatenate([loud, low[:30_000], loud]))
    assert may_hold_a_pause(np.concatenate([loud, low, loud]))
    assert may_hold_a_pause(np.concatenate([loud, low]))
    assert not may_hold_a_pause(loud[:1])


@pytest.fixture(scope="module")
def prompts() -> Prompts:
    return Prompts(stub_tokenizer(), multilingual=True)


def build(prompts: Prompts, **more: str | None) -> tuple[list[int], int]:
    options = {"prompt": None, "hotwords": None} | more
    return prompts.build("de", translate=False, timestamps=True, **options)


def test_a_prompt_opens_with_what_may_have_come_before_as_the_library_builds_it(prompts: Prompts) -> None:
    task = said("<|startoftranscript|>", "<|de|>", "<|transcribe|>")
    assert build(prompts) == (task, 0)
    assert build(prompts, prompt="  ") == (task, 0)
    assert build(prompts, prompt="hello") == ([*said("<|startofprev|>", "hello"), *task], 2)
    both = [*said("<|startofprev|>", "name", "hello"), *task]
    assert build(prompts, prompt="hello", hotwords="name") == (both, 3)
    untimed, _ = prompts.build("en", translate=True, prompt=None, hotwords=None, timestamps=False)
    assert untimed == said("<|startoftranscript|>", "<|en|>", "<|translate|>", "<|notimestamps|>")


def test_long_prompts_and_hotwords_are_cut_to_what_the_model_can_read(prompts: Prompts) -> None:
    tokens, place = build(prompts, prompt="hello " * 500 + "world", hotwords="name " * 500)
    assert place == ROOM_TOKENS + 1
    assert tokens.count(IDS["name"]) == ROOM_TOKENS // 2, "the first hotwords"
    assert tokens[place - 1] == IDS["world"], "the end of the prompt"
    alone, place = build(prompts, hotwords="name " * 500)
    assert alone.count(IDS["name"]) == ROOM_TOKENS
    assert len(alone) + 224 <= 448
