"""Where a stream can be heard anew and cut exactly as if it had never been interrupted.

The detector's network cannot be stored. So at every end of a segment, and in silence every few seconds, it forgets all
but the last half second (`VoiceDetector.settle`). From there on a score depends on no sample before that, and a new
detector that hears the same samples gives the same scores: what stands here is all that it takes besides them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sessions.voice import FIRST_LOUDNESS, Loudness


@dataclass(frozen=True, slots=True)
class Anchor:
    """The state of an endpointer at a place of its stream. Positions are bytes, ``hear_from`` and ``at`` begin frames.

    What lies between the two is heard, and nothing follows from it.
    """

    hear_from: int = 0
    at: int = 0
    onset: int = 0
    """Voiced frames just before ``at`` that have not begun speech yet."""
    speech: tuple[int, int, int] | None = None
    """Of the segment being spoken: where it starts, its spoken frames, the silent ones since the last of those."""
    loudness: Loudness = FIRST_LOUDNESS
    """At ``hear_from``."""

    def encode(self) -> str:
        """As JSON; `decode` gives the same, floats included."""
        loudness = [self.loudness.level, *self.loudness.before]
        return json.dumps([self.hear_from, self.at, self.onset, self.speech, loudness], separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Anchor:
        """Raises ValueError when that is not an anchor."""
        try:
            hear_from, at, onset, speech, (level, *before) = json.loads(text)
            spoken = None if speech is None else tuple(map(int, speech))
        except TypeError as error:
            raise ValueError(f"not an anchor: {text!r}") from error
        if not 0 <= hear_from <= at or not (spoken is None or len(spoken) == 3) or len(before) != 3:
            raise ValueError(f"not an anchor: {text!r}")
        return cls(hear_from, at, onset, spoken, Loudness(level, tuple(before)))
