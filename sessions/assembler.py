"""Stable text out of successive hypotheses of one segment: LocalAgreement. No I/O.

Each partial decodes the open segment anew, from its start to now, and the newest words of a hypothesis are guesses
about audio that is cut in the middle. A word becomes stable when the last `AGREEING` hypotheses all have it in its
place, with at least `HELD_BACK` words after it in each. Compared are words without case and punctuation, because both
change with what follows; what is emitted is the newest hypothesis, and once a word is stable its text never changes.

    "the cat"  "the cat sat on"  "The cat sat, on the mat"    stable: ""  "the"  "the cat sat"     (HELD_BACK = 1)

Source: D. Liu, G. Spanakis, J. Niehues, "Low-Latency Sequence-to-Sequence Speech Recognition and Translation by Partial
Hypothesis Selection", Interspeech 2020; used for Whisper by D. Machacek, R. Dabre, O. Bojar, "Turning Whisper into
Real-Time Transcription System", 2023.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

AGREEING = 2
"""Hypotheses in a row that must have a word."""

HELD_BACK = 1
"""Words at the end of a hypothesis that agree with nothing yet: the audio of the last one may be cut."""

_DRIFT = 6
"""Words by which a contradicting hypothesis may be ahead of or behind what is stable, for an alignment to be sought."""

_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Thai, Lao, Burmese, Khmer, kana and Han are written without spaces between words: each character counts as one."""

_WORD = re.compile(rf"\s*(?:[{_UNSPACED}]|[^\s{_UNSPACED}]+)")
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_EDGES = re.compile(r"^\W+|\W+$")


class Assembled(NamedTuple):
    """``text`` begins with ``stable``; the rest of it is tentative."""

    stable: str
    text: str


class Assembler:
    """The partials of one segment after another; `reset` between two.

    ``agreeing`` >= 1 hypotheses in a row make a word stable (1: every hypothesis is believed at once), of each the
    last ``held_back`` >= 0 words are left out.
    """

    def __init__(self, agreeing: int = AGREEING, held_back: int = HELD_BACK) -> None:
        self._held_back = held_back
        self._wanted = agreeing - 1
        self._earlier: deque[list[str]] = deque(maxlen=self._wanted)
        self._stable: list[str] = []

    def reset(self) -> None:
        """A new segment begins: nothing of the old one is stable in it."""
        self._earlier.clear()
        self._stable.clear()

    def partial(self, text: str) -> Assembled:
        """The next hypothesis of the segment. One that contradicts what is stable gives only its words after that.

        Words keep the space that came before them, if any; the first of a hypothesis has none.
        """
        said = _WORD.findall(text.strip())
        settled = [_bare(word) for word in self._stable]
        start = _after(settled, [_bare(word) for word in said])
        tail = said[start:]
        if settled and tail and start == 0 and not _UNSPACED_CHARACTER.match(tail[0]):
            tail[0] = " " + tail[0]
        bare = [_bare(word) for word in tail]
        agreed = self._agreed(bare)
        self._earlier.append(settled + bare)
        self._stable += tail[:agreed]
        stable = "".join(self._stable)
        return Assembled(stable, stable + "".join(tail[agreed:]))

    def _agreed(self, tail: Sequence[str]) -> int:
        """How many of the first words after the stable ones all hypotheses have."""
        if len(self._earlier) < self._wanted:
            return 0
        known = len(self._stable)
        hypotheses = [tail, *(earlier[known:] for earlier in self._earlier)]
        room = min(len(words) for words in hypotheses) - self._held_back
        return sum(1 for _ in takewhile(_same, zip(*(words[: max(room, 0)] for words in hypotheses), strict=True)))


def _same(words: Sequence[str]) -> bool:
    return all(word == words[0] for word in words)


def _bare(word: str) -> str:
    """A word as it is compared: no case, no punctuation around it; a mark standing alone is itself."""
    word = word.strip().casefold()
    return _EDGES.sub("", word) or word


def _after(stable: Sequence[str], said: Sequence[str]) -> int:
    """How many words of ``said`` speak of what is stable already, so that nothing is said twice.

    Where ``said`` begins otherwise, the prefix of it with the least edit distance to ``stable``; of equally near ones
    the longest, because a tentative word too few does less harm than one twice. A word written in two ("every one")
    is no edit. Cells further than `_DRIFT` off the diagonal are not looked at, so the cost is linear.
    """
    same = sum(1 for _ in takewhile(_same, zip(stable, said, strict=False)))
    if same == len(stable):
        return same
    old, new = stable[same:], said[same:]
    if len(new) + _DRIFT < len(old):
        return len(said)
    infinite = float("inf")
    width = min(len(new), len(old) + _DRIFT)
    rows = [[float(column) if column <= _DRIFT else infinite for column in range(width + 1)]]
    for row in range(1, len(old) + 1):
        costs = [infinite] * (width + 1)
        if row <= _DRIFT:
            costs[0] = float(row)
        for column in range(max(1, row - _DRIFT), min(width, row + _DRIFT) + 1):
            word, other = old[row - 1], new[column - 1]
            ways = [
                rows[row - 1][column - 1] + _unlike(word, other),
                rows[row - 1][column] + 1.0,
                costs[column - 1] + 1.0,
            ]
            if column > 1 and word == new[column - 2] + other:
                ways.append(rows[row - 1][column - 2])
            if row > 1 and old[row - 2] + word == other:
                ways.append(rows[row - 2][column - 1])
            costs[column] = min(ways)
        rows.append(costs)
    last = rows[-1]
    return same + min(range(width + 1), key=lambda column: (last[column], -column))


def _unlike(word: str, other: str) -> float:
    """The cost of taking one word for another: 0 for the same, below 1 for a common beginning."""
    if word == other:
        return 0.0
    shared = sum(1 for _ in takewhile(_same, zip(word, other, strict=False)))
    return 1.0 - shared / (len(word) + len(other))
