"""docs/endpointing.md names the rules that hold."""

from __future__ import annotations

from pathlib import Path

from sessions import assembler, endpointing, gaps, segments, voice

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "endpointing.md").read_text(encoding="utf-8")


def test_the_numbers_are_those_of_the_code() -> None:
    for told in (
        f"{endpointing.ONSET_FRAMES} frames >= {segments.ONSET}",
        f"a score of {segments.ONSET}, silent below {segments.RELEASE}",
        f"{endpointing.MARGIN_S} s before the onset",
        f"less than {endpointing.MIN_SPEECH_S} s of voice",
        f"at most {segments.INNER_SILENCE_S} s |",
        f"A decode holds at most {endpointing.MAX_SEGMENT_S:g} s",
        f"longest silence of its last {gaps.GAP_SEARCH_S:g} s",
        f"{gaps.MIN_GAP_FRAMES * voice.FRAME_S * 1000:g} ms are enough",
        f"frames of {voice.FRAME_S * 1000:g} ms",
        f"the newest {assembler.SETTLE_S:g} s of audio",
    ):
        assert " ".join(told.split()) in " ".join(DOCUMENT.split()), told
    assert assembler.HELD_BACK == 1, "the page says one more word"
