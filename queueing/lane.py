"""A lane is one kind of job in one encoder window: jobs of a lane cost about the same.

Pure values; the queue's keys, policies and costs are all indexed by lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache

PADDING_S = 2.0
"""Seconds of room behind the audio that a window must have (see docs/scheduling.md)."""

WINDOWS_S = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30)
"""Encoder windows, in seconds; the longest is Whisper's own."""

MAX_JOB_AUDIO_S = WINDOWS_S[-1] - PADDING_S
"""The longest audio of one job: longer speech is cut before it is queued."""


class Kind(StrEnum):
    """What a decode is for."""

    PARTIAL = "partial"
    FINAL = "final"
    FILE = "file"


@dataclass(frozen=True, slots=True, order=True)
class Lane:
    """One kind of job in one window."""

    kind: Kind
    window_s: int

    @property
    def name(self) -> str:
        """``KIND:WINDOW``, as in the keys and in `Lane.parse`."""
        return f"{self.kind}:{self.window_s}"

    @staticmethod
    def parse(name: str) -> Lane:
        """Read ``KIND:WINDOW``; raises ValueError for anything that is not one of `all_lanes`."""
        lane = _lanes_by_name().get(name)
        if lane is None:
            raise ValueError(f"no such lane: {name!r}")
        return lane

    @staticmethod
    def for_audio(kind: Kind, audio_s: float) -> Lane:
        """The lane of the smallest window that holds ``audio_s`` seconds and `PADDING_S` of room.

        Raises ValueError when no window is long enough.
        """
        for lane in _lanes_of(kind):
            if audio_s + PADDING_S <= lane.window_s:
                return lane
        raise ValueError(f"no window for {audio_s:.1f} s of {kind} audio; a job may hold {MAX_JOB_AUDIO_S:g} s")


@cache
def all_lanes() -> tuple[Lane, ...]:
    """Every lane there is, in a fixed order that is part of the scripts' contract."""
    return tuple(Lane(kind, window) for kind in Kind for window in WINDOWS_S)


# Every enqueue and claim asks for a lane: these keep that at a look into a table.
@cache
def _lanes_of(kind: Kind) -> tuple[Lane, ...]:
    return tuple(lane for lane in all_lanes() if lane.kind is kind)


@cache
def _lanes_by_name() -> dict[str, Lane]:
    return {lane.name: lane for lane in all_lanes()}
