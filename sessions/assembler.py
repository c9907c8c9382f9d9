"""Stable text out of successive hypotheses of one segment: LocalAgreement. No I/O.

Each partial decodes the open segment anew, from its start to now, and the newest words of a hypothesis are guesses
about audio that is cut in the middle. A word becomes stable when all hypotheses of the newest `SETTLE_S` of audio have
it in its place, with at least `HELD_BACK` words after it in each. Compared are words without case and punctuation,
because both change with what follows; what is emitted is the newest hypothesis, and once a word is stable its text
never changes.

    1 s  "the cat"                  stable ""
    2 s  "the cat sat on"           stable "the"             (here SETTLE_S = 1 and HELD_BACK = 1)
    3 s  "The cat sat, on the mat"  stable "the cat sat,"

Seconds of audio, not a number of hypotheses: under load partials come less often, and words would settle later still;
docs/endpointing.md has the rates at which a stable word turns out wrong.

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

SETTLE_S = 5.0
"""Of audio, through which every hypothesis must have a word; at least two hypotheses."""

HELD_BACK = 1
"""Words at the end of a hypothesis that agree with nothing yet: the audio of the last one may be cut."""

_ROUNDING_S = 0.001

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

    ``settle_s`` >= 0: seconds of audio between the first and the newest hypothesis that must agree; of each the last
    ``held_back`` >= 0 words are left out.
    """

    def __init__(self, settle_s: float = SETTLE_S, held_back: int = HELD_BACK) -> None:
        self._held_back = held_back
        self._settle_s = settle_s
        self._heard: deque[tuple[float, list[str]]] = deque()
        """The end of the audio and the words of each hypothesis that counts, the first of them at least
        ``settle_s`` old as soon as there is one."""
        self._stable: list[str] = []

    def reset(self) -> None:
        """A new segment begins: nothing of the old one is stable in it."""
        self._heard.clear()
        self._stable.clear()

    def partial(self, text: str, end_s: float) -> Assembled:
        """The next hypothesis of the segment, of its audio up to ``end_s``, in seconds from wherever.

        One that contradicts what is stable gives only its words after that.

        Words keep the space that came before them, if any; the first of a hypothesis has none.
        """
        said = _WORD.findall(text.strip())
        settled = [_bare(word) for word in self._stable]
        start = _after(settled, [_bare(word) for word in said])
        tail = said[start:]
        if settled and tail and start == 0 and not _UNSPACED_CHARACTER.match(tail[0]):
            tail[0] = " " + tail[0]
        bare = [_bare(word) for word in tail]
        self._heard.append((end_s, settled + bare))
        agreed = self._agreed(end_s - self._settle_s + _ROUNDING_S)
        self._stable += tail[:agreed]
        stable = "".join(self._stable)
        return Assembled(stable, stable + "".join(tail[agreed:]))

    def _agreed(self, since_s: float) -> int:
        """How many of the first words after the stable ones all hypotheses since then have."""
        while len(self._heard) > 2 and self._heard[1][0] <= since_s:
            self._heard.popleft()
        if len(self._heard) < 2 or self._heard[0][0] > since_s:
            return 0
        known = len(self._stable)
        hypotheses = [words[known:] for _, words in self._heard]
        room = max(0, min(len(words) for words in hypotheses) - self._held_back)
        return sum(1 for _ in takewhile(_same, zip(*(words[:room] for words in hypotheses), strict=True)))


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
