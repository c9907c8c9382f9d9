"""What a stream is cut into, and how a segment grows while it is spoken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sessions.voice import FRAME_S

ONSET = 0.45
RELEASE = 0.35

INNER_SILENCE_S = 0.4
"""Of every silence inside a segment, this much counts as speech: what a decoder keeps around words."""

_INNER_FRAMES = round(INNER_SILENCE_S / FRAME_S)

Reason = Literal["pause", "length", "finish"]


@dataclass(frozen=True, slots=True)
class Segment:
    """``covers_from..covers_to``: what it answers for; ``start_byte..end_byte``: what is decoded, inside of that.

    ``speech_s``: seconds of that which are speech, pauses between words included.
    """

    covers_from: int
    covers_to: int
    start_byte: int
    end_byte: int
    speech_s: float
    reason: Reason


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """The segment being spoken, decoded from ``start_byte``; its end is not known yet."""

    start_byte: int
    speech_s: float


@dataclass(slots=True)
class Speech:
    """An open segment: ``start`` in bytes, the rest counted in frames."""

    start: int
    spoken: int = 0
    silence: int = 0

    @property
    def speech_s(self) -> float:
        return self.spoken * FRAME_S

    def follow(self, score: float) -> None:
        """One more frame."""
        if score >= ONSET or (score >= RELEASE and not self.silence):
            self.spoken += 1 + min(self.silence, _INNER_FRAMES)
            self.silence = 0
        else:
            self.silence += 1
