"""Where the endpointer cuts: exact positions, with a detector whose scores are written into the audio."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sessions.endpointing import (
    BYTES_PER_S,
    FRAME_BYTES,
    MARGIN_S,
    MAX_SEGMENT_S,
    MIN_SPEECH_S,
    ONSET_FRAMES,
    Endpointer,
)
from sessions.segments import ONSET, RELEASE, Segment
from sessions.voice import FRAME_S
from tests.support.scripted_voice import ScriptedVoice, at, audio, frames_of, silence, speech

MARGIN = int(MARGIN_S * BYTES_PER_S)


def endpointer(endpoint_s: float | None = 0.8, max_segment_s: float = MAX_SEGMENT_S) -> Endpointer:
    return Endpointer(endpoint_s, max_segment_s, vad=ScriptedVoice())


def test_a_pause_ends_a_segment_with_margins_inside_its_cover() -> None:
    cutter = endpointer()
    segments = cutter.feed(silence(2) + speech(1.6) + silence(2))
    assert segments == [
        Segment(
            covers_from=0,
            covers_to=at(2) + at(1.6) + MARGIN,
            start_byte=at(2) - MARGIN,
            end_byte=at(2) + at(1.6) + MARGIN,
            speech_s=100 * FRAME_S,
            reason="pause",
        )
    ]
    assert cutter.finish() is None


def test_the_segment_comes_with_the_frame_that_completes_the_pause() -> None:
    cutter = endpointer(0.8)
    pause = silence(0.8)
    assert cutter.feed(speech(1.6) + pause[:-FRAME_BYTES]) == []
    assert len(cutter.feed(pause[-FRAME_BYTES:])) == 1


def test_silence_belongs_to_the_segment_after_it() -> None:
    cutter = endpointer()
    first, second = cutter.feed((speech(1) + silence(5)) * 2)
    assert second.covers_from == first.covers_to
    assert second.start_byte == at(1) + at(5) - MARGIN


def test_silence_alone_makes_no_segment_and_need_not_be_kept() -> None:
    cutter = endpointer()
    assert cutter.feed(silence(60)) == []
    assert cutter.open is None
    assert cutter.keep_from == at(60) - MARGIN
    assert cutter.finish() is None


def test_a_click_is_no_segment() -> None:
    cutter = endpointer()
    click = audio([0.9] * (ONSET_FRAMES - 1))
    assert cutter.feed((silence(1) + click) * 5 + silence(1)) == []
    assert cutter.open is None


def test_too_little_speech_is_dropped_and_was_never_open() -> None:
    cutter = endpointer()
    short = audio([0.9] * (frames_of(MIN_SPEECH_S) - 1))
    cutter.feed(silence(1) + short)
    assert cutter.open is None
    assert cutter.feed(silence(2)) == []
    assert cutter.covered == 0
    assert cutter.keep_from > at(1)


def test_a_score_between_the_thresholds_neither_begins_nor_ends_speech() -> None:
    between = (ONSET + RELEASE) / 2
    cutter = endpointer()
    assert cutter.feed(audio([between] * 500)) == []
    assert cutter.keep_from == at(8) - MARGIN
    assert cutter.feed(speech(1) + audio([between] * 500)) == []
    assert len(cutter.feed(silence(1))) == 1
    cutter.feed(speech(1))
    assert len(cutter.feed(audio([0.1] + [between] * 500))) == 1, "a silence goes on until the next voiced frame"


def test_an_open_segment_says_where_it_starts_and_how_much_was_said() -> None:
    cutter = endpointer()
    cutter.feed(silence(1) + speech(1.6))
    assert cutter.open is not None
    assert cutter.open.start_byte == cutter.keep_from == at(1) - MARGIN
    assert cutter.open.speech_s == pytest.approx(1.6)


def test_long_inner_pauses_do_not_count_as_speech() -> None:
    segment = endpointer(5.0).feed(speech(1.6) + silence(4) + speech(1.6) + silence(6))[0]
    assert 3.2 < segment.speech_s < 4.3
    assert segment.end_byte - segment.start_byte > 7 * BYTES_PER_S


class TestFinish:
    def test_covers_everything_so_far(self) -> None:
        cutter = endpointer()
        data = silence(1) + speech(1) + silence(0.5) + b"\0" * 100
        cutter.feed(data)
        segment = cutter.finish()
        assert segment is not None
        assert segment.reason == "finish"
        assert (segment.covers_from, segment.covers_to) == (0, len(data))
        assert segment.end_byte == at(1) + at(1) + MARGIN
        assert cutter.finish() is None

    def test_in_the_middle_of_a_word_the_rest_is_a_segment_of_its_own(self) -> None:
        cutter = endpointer()
        cutter.feed(speech(1) + b"\xff\x7f" * 11)
        first = cutter.finish()
        assert first is not None
        assert first.end_byte == first.covers_to == at(1) + 22
        assert cutter.finish() is None, "nothing was said since"
        (second,) = cutter.feed(b"\xff\x7f" * (256 - 11) + speech(1) + silence(1))
        assert second.start_byte == second.covers_from == first.covers_to

    def test_takes_a_word_that_has_just_begun(self) -> None:
        cutter = endpointer()
        cutter.feed(silence(1) + audio([0.9]))
        segment = cutter.finish()
        assert segment is not None
        assert segment.end_byte == at(1) + FRAME_BYTES

    def test_leaves_out_a_lone_last_byte(self) -> None:
        cutter = endpointer()
        cutter.feed(speech(1) + b"\x01")
        segment = cutter.finish()
        assert segment is not None
        assert segment.covers_to == at(1)


class TestLength:
    def test_speech_is_cut_in_its_longest_gap_of_the_last_seconds(self) -> None:
        cutter = endpointer()
        before = speech(20) + silence(0.2) + speech(2) + silence(0.4) + speech(3) + silence(0.16)
        (cut,) = cutter.feed(before + speech(3))
        gap = at(20) + at(0.2) + at(2)
        assert cut.reason == "length"
        assert gap < cut.end_byte < gap + at(0.4)
        assert cut.covers_to == cut.end_byte
        assert cutter.open is not None
        assert cut.end_byte <= cutter.open.start_byte <= gap + at(0.4)

    def test_a_gap_too_long_ago_is_not_taken(self) -> None:
        (cut,) = endpointer().feed(speech(5) + silence(0.7) + speech(17) + silence(0.1) + speech(6))
        assert cut.end_byte > at(22)

    def test_without_a_gap_it_is_cut_where_it_is_weakest_and_goes_on_at_once(self) -> None:
        cutter = endpointer()
        (cut,) = cutter.feed(speech(22) + audio([0.6]) + speech(8))
        assert at(22) <= cut.end_byte <= at(22) + FRAME_BYTES
        assert cutter.open is not None
        assert cutter.open.start_byte == cut.end_byte

    @pytest.mark.parametrize("endpoint_s", [0.8, None])
    def test_no_segment_is_longer_than_the_limit(self, endpoint_s: float | None) -> None:
        cutter = endpointer(endpoint_s)
        segments = cutter.feed(speech(200))
        assert len(segments) >= 7
        assert all(segment.end_byte - segment.start_byte <= MAX_SEGMENT_S * BYTES_PER_S for segment in segments)

    def test_what_was_said_after_the_cut_counts_for_the_next(self) -> None:
        cutter = endpointer()
        (cut,) = cutter.feed(speech(20) + silence(0.4) + speech(7.6))
        assert cutter.open is not None
        assert cutter.open.speech_s == pytest.approx(7.6, abs=0.1)
        assert cut.speech_s == pytest.approx(20, abs=0.4)

    @pytest.mark.parametrize("words_s", [0.5, 2.0, 6.0, 17.0])
    @pytest.mark.parametrize("gap_s", [0.4, 2.0, 9.0])
    def test_the_silence_after_the_cut_is_not_taken_from_its_speech(self, words_s: float, gap_s: float) -> None:
        spoken_s = 27.9 - gap_s - min(words_s, 9.5 - gap_s)
        cutter = endpointer(10.0)
        tail = (speech(0.2) + silence(0.4)) * 20
        (cut,) = cutter.feed(speech(spoken_s) + silence(gap_s) + tail)
        assert cut.reason == "length"
        assert at(spoken_s) <= cut.end_byte <= at(spoken_s) + at(gap_s)
        assert cut.speech_s == pytest.approx(spoken_s, abs=0.4)


class TestWithoutPauses:
    def test_everything_is_decoded(self) -> None:
        cutter = endpointer(None)
        data = silence(3) + speech(1) + silence(3)
        assert cutter.feed(data) == []
        assert cutter.open is not None
        assert cutter.open.start_byte == cutter.keep_from == 0
        segment = cutter.finish()
        assert segment == Segment(0, len(data), 0, len(data), len(data) / BYTES_PER_S, "finish")
        assert cutter.finish() is None
        assert cutter.open is None

    def test_silence_is_cut_too(self) -> None:
        cutter = endpointer(None)
        segments = cutter.feed(silence(100))
        assert segments[0].start_byte == 0
        assert all(later.start_byte == earlier.end_byte for earlier, later in pairwise(segments))
        last = cutter.finish()
        assert last is not None
        assert last.end_byte == at(100)
