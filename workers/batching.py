"""How many jobs to decode at once: predicted from this worker's own measured batches. Pure.

A batch is not interrupted, so a final that comes just behind it waits for all of it: its predicted time is bounded. A
job alone never waits for company, whatever it takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from queueing.batches import NO_BATCHES, Batch, Batches
from queueing.costs import prior_batch_ms
from queueing.lane import Kind, Lane, all_lanes

FOLLOW = 0.2
"""Weight of a new time in its size's average: a machine twice as slow is believed after some five batches."""

MOST_AT_ONCE = 2.0
"""A time counts as at most this many times the average: a machine that stood still must not stop batches."""

LEAST_MS = 0.1
"""No batch takes less; from an average of 0 no time would count as more than 0."""

FORGET_AFTER = 50
"""Batches of a lane after which a size that was not decoded again is forgotten: one that took too long once would
otherwise never be tried again."""


@dataclass(slots=True)
class _Size:
    """Batches of one size in one lane: their average time, and when (in batches of the lane) the last one was."""

    ms: float
    seen_at: int


@dataclass(slots=True)
class _LaneTimes:
    sizes: dict[int, _Size] = field(default_factory=dict)
    points: list[tuple[int, float]] = field(default_factory=list)
    """(jobs, ms) in order of both."""
    batches: int = 0

    def learn(self, jobs: int, ms: float) -> None:
        ms = max(ms, LEAST_MS)
        self.batches += 1
        known = self.sizes.get(jobs)
        if known is None:
            self.sizes[jobs] = _Size(ms, self.batches)
        else:
            known.ms += FOLLOW * (min(ms, MOST_AT_ONCE * known.ms) - known.ms)
            known.seen_at = self.batches
        self.sizes = {n: size for n, size in self.sizes.items() if self.batches - size.seen_at < FORGET_AFTER}
        self.points = self._in_order()

    def _in_order(self) -> list[tuple[int, float]]:
        """Where noise has it that more jobs took less time, all of them get their mean (isotonic regression)."""
        blocks: list[tuple[list[int], float]] = []
        for jobs in sorted(self.sizes):
            block, ms = [jobs], self.sizes[jobs].ms
            while blocks and blocks[-1][1] > ms:
                before, earlier_ms = blocks.pop()
                ms = (len(before) * earlier_ms + len(block) * ms) / (len(before) + len(block))
                block = [*before, *block]
            blocks.append((block, ms))
        return [(jobs, ms) for block, ms in blocks for jobs in block]


class BatchTimes:
    """What batches of each lane and size take on this machine.

    ``batches_finals``, ``lifts_partials``: see `workers.transcriber.Transcriber`. Until a lane was measured its times
    are the prior's, scaled by how the measured lanes of its kind compare with theirs.
    """

    def __init__(self, max_batch: int, max_batch_ms: float, *, batches_finals: bool, lifts_partials: bool) -> None:
        self.max_batch = max_batch
        self._max_batch_ms = max_batch_ms
        self._batches_finals = batches_finals
        self._lifts_partials = lifts_partials
        self._times: dict[Lane, _LaneTimes] = {}
        self._scales = dict.fromkeys(Kind, 1.0)
        self._priors = {lane: [prior_batch_ms(lane, jobs) for jobs in range(1, max_batch + 1)] for lane in all_lanes()}
        self._measured: dict[Lane, list[float]] = {}
        self.bounds = NO_BATCHES
        """For each lane, the most jobs whose predicted time is within the bound, and the smaller windows that pay."""
        self._bound(list(Kind))

    def learn(self, lane: Lane, jobs: int, ms: float) -> None:
        """A batch of ``jobs`` that the model decoded in this lane's window took ``ms``."""
        self._times.setdefault(lane, _LaneTimes()).learn(jobs, ms)
        self._scales[lane.kind] = self._scale(lane.kind)
        self._measured[lane] = [self.predict_ms(lane, size) for size in range(1, self.max_batch + 1)]
        self._bound([lane.kind])

    def predict_ms(self, lane: Lane, jobs: int) -> float:
        """Milliseconds that a batch takes; never less for more jobs.

        Between measured sizes on a straight line, beyond them as the prior grows.
        """
        if lane not in self._times:
            return prior_batch_ms(lane, jobs) * self._scales[lane.kind]
        points = self._times[lane].points
        for (fewer, fewer_ms), (more, more_ms) in pairwise(points):
            if fewer <= jobs <= more:
                on_the_line = fewer_ms + (more_ms - fewer_ms) * (jobs - fewer) / (more - fewer)
                return min(on_the_line, more_ms)  # rounding may put the line's end above the next, equal point
        nearest, ms = points[0] if jobs < points[0][0] else points[-1]
        return ms * prior_batch_ms(lane, jobs) / prior_batch_ms(lane, nearest)

    def _scale(self, kind: Kind) -> float:
        """How much longer than the prior the measured lanes of a kind take, all their sizes counting alike."""
        measured = expected = 0.0
        for lane, times in self._times.items():
            if lane.kind is kind:
                measured += sum(size.ms for size in times.sizes.values())
                expected += sum(prior_batch_ms(lane, jobs) for jobs in times.sizes)
        return measured / expected

    def _bound(self, kinds: Sequence[Kind]) -> None:
        bounds = dict(self.bounds.by_lane)
        for kind in kinds:
            alone: list[float] = []
            lifting = self._lifts_partials and kind is Kind.PARTIAL
            for lane in (lane for lane in all_lanes() if lane.kind is kind):
                times = self._predicted(lane)
                most = self._most(lane, times)
                bounds[lane] = Batch(most, _paying(times[:most], alone) if lifting else 0)
                alone.append(times[0])
        if bounds != self.bounds.by_lane:
            self.bounds = Batches(bounds)

    def _predicted(self, lane: Lane) -> list[float]:
        """`predict_ms` for 1, 2, ... jobs."""
        scale = self._scales[lane.kind]
        return self._measured.get(lane) or [ms * scale for ms in self._priors[lane]]

    def _most(self, lane: Lane, times: Sequence[float]) -> int:
        if lane.kind is not Kind.PARTIAL and not self._batches_finals:
            return 1
        return max(1, sum(ms <= self._max_batch_ms for ms in times))


def _paying(times: Sequence[float], alone: Sequence[float]) -> int:
    """How many next smaller windows may join a batch: those whose job costs more alone, in its own window, than it adds
    here whatever the batch's size. ``times`` of this lane for 1, 2, ... jobs; ``alone``: of one job, by window."""
    if len(times) == 1:
        return 0
    added_ms = max(more - fewer for fewer, more in pairwise(times))
    return sum(1 for _ in takewhile(lambda ms: ms > added_ms, reversed(alone)))
