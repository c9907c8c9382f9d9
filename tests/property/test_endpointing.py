"""What holds for every stream: the framing changes nothing, covers are contiguous, keep_from keeps what is needed, and
another endpointer can go on from the newest anchor at any place."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.anchor import Anchor
from sessions.endpointing import BYTES_PER_S, FRAME_BYTES, Endpointer
from sessions.segments import Segment
from tests.support.scripted_voice import ScriptedVoice, audio

MAX_S = 2.0

scores = st.lists(
    st.tuples(st.sampled_from([0.0, 0.2, 0.34, 0.36, 0.4, 0.49, 0.5, 0.7, 0.9]), st.integers(1, 40)), max_size=30
)
tails = st.binary(max_size=700)
steps = st.lists(st.sampled_from([1, 2, 3, 100, 511, 512, 513, 640, 641, 3_200, 65_536]), min_size=1, max_size=6)
pauses = st.sampled_from([0.05, 0.2, 0.5, None])


def stream(runs: list[tuple[float, int]], tail: bytes) -> bytes:
    return audio(score for score, frames in runs for _ in range(frames)) + tail


def cut(data: bytes, sizes: list[int], pause: float | None) -> tuple[list[Segment], Endpointer]:
    cutter = Endpointer(pause, MAX_S, vad=ScriptedVoice())
    found: list[Segment] = []
    position = turn = kept = 0
    while position < len(data):
        size = sizes[turn % len(sizes)] * (64 if len(sizes) == 1 and sizes[0] < 100 else 1)
        new = cutter.feed(data[position : position + size])
        assert all(segment.start_byte >= kept for segment in new), "a segment needs bytes that were given up"
        assert cutter.keep_from >= kept
        kept = cutter.keep_from
        is_open = cutter.open
        assert is_open is None or is_open.start_byte >= max(kept, cutter.covered)
        found += new
        position += size
        turn += 1
    last = cutter.finish()
    if last is not None:
        assert last.start_byte >= kept
        found.append(last)
    return found, cutter


@settings(max_examples=150, deadline=None)
@given(runs=scores, tail=tails, sizes=steps, pause=pauses)
def test_the_same_samples_give_the_same_segments(
    runs: list[tuple[float, int]], tail: bytes, sizes: list[int], pause: float | None
) -> None:
    data = stream(runs, tail)
    assert cut(data, sizes, pause)[0] == cut(data, [1 << 30], pause)[0]


@settings(max_examples=150, deadline=None)
@given(runs=scores, tail=tails, sizes=steps, pause=pauses)
def test_covers_are_contiguous_whole_samples_and_hold_what_is_decoded(
    runs: list[tuple[float, int]], tail: bytes, sizes: list[int], pause: float | None
) -> None:
    data = stream(runs, tail)
    segments, cutter = cut(data, sizes, pause)
    position = 0
    for segment in segments:
        assert segment.covers_from == position
        assert segment.covers_from <= segment.start_byte < segment.end_byte <= segment.covers_to <= len(data)
        assert segment.end_byte - segment.start_byte < MAX_S * BYTES_PER_S + FRAME_BYTES
        assert 0 < segment.speech_s < MAX_S + FRAME_BYTES / BYTES_PER_S
        for byte in (segment.start_byte, segment.end_byte, segment.covers_to):
            assert byte % 2 == 0
        position = segment.covers_to
    assert cutter.covered == position
    if pause is None:
        assert position == len(data) // 2 * 2


@settings(max_examples=100, deadline=None)
@given(runs=scores, tail=tails, at=st.lists(st.integers(0, 20_000), max_size=5), pause=pauses)
def test_a_stream_goes_on_after_finish(
    runs: list[tuple[float, int]], tail: bytes, at: list[int], pause: float | None
) -> None:
    data = stream(runs, tail)
    cutter = Endpointer(pause, MAX_S, vad=ScriptedVoice())
    position = fed = 0
    for flush in [*sorted(at), len(data)]:
        new = cutter.feed(data[fed:flush])
        fed = max(fed, min(flush, len(data)))
        last = cutter.finish()
        for segment in [*new, *([last] if last is not None else [])]:
            assert segment.covers_from == position
            assert segment.covers_from <= segment.start_byte < segment.end_byte <= segment.covers_to <= fed
            position = segment.covers_to
        assert cutter.finish() is None


@settings(max_examples=200, deadline=None)
@given(
    runs=scores,
    tail=tails,
    flushes=st.sets(st.integers(0, 400_000), max_size=4),
    losses=st.lists(st.integers(0, 400_000), max_size=6),
    pause=pauses,
)
def test_another_goes_on_from_the_anchor_as_if_it_were_the_same(
    runs: list[tuple[float, int]], tail: bytes, flushes: set[int], losses: list[int], pause: float | None
) -> None:
    data = stream(runs, tail)
    cutter, other = (Endpointer(pause, MAX_S, vad=ScriptedVoice()) for _ in range(2))
    fed = 0
    for place in sorted({*flushes, *losses, len(data)}):
        piece, fed = data[fed:place], max(fed, min(place, len(data)))
        assert other.feed(piece) == cutter.feed(piece)
        if place in flushes:
            assert other.finish() == cutter.finish()
        if place in losses:
            anchor = Anchor.decode(cutter.anchor.encode())
            assert anchor == other.anchor
            other = Endpointer.anchored(pause, anchor, cutter.covered, MAX_S, vad=ScriptedVoice())
            assert other.feed(data[anchor.hear_from : fed]) == [], "segments end at anchors"
        assert (other.open, other.covered, other.keep_from) == (cutter.open, cutter.covered, cutter.keep_from)
