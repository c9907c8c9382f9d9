"""How many jobs a worker takes at once: its own bounds for each lane, from what it has measured. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queueing.errors import BadJob
from queueing.lane import Kind, Lane
from queueing.limits import MAX_BATCH


@dataclass(frozen=True, slots=True)
class Batch:
    """Bounds of a batch whose first job is of a certain lane.

    ``most``: jobs in all, from 1. ``smaller``: how many next smaller windows of the same kind may fill the batch up
    when the lane itself has too few jobs; theirs are then decoded in this lane's window. Only partials may be: a
    final's text must not depend on its company.
    """

    most: int = 1
    smaller: int = 0


class Batches:
    """Bounds by lane. A lane that is not named is bounded by the claim's ``max_jobs`` alone and filled from no other.

    Immutable; checked and written as text once, for any number of claims. Raises `BadJob` for what cannot be.
    """

    def __init__(self, by_lane: Mapping[Lane, Batch]) -> None:
        for lane, batch in by_lane.items():
            if not 1 <= batch.most <= MAX_BATCH:
                raise BadJob(f"a batch of {lane.name} may hold {batch.most} jobs, a claim takes 1 to {MAX_BATCH}")
            if batch.smaller < 0 or (batch.smaller and lane.kind is not Kind.PARTIAL):
                raise BadJob(
                    f"a batch of {lane.name} takes jobs of {batch.smaller} smaller windows: only partials may be lifted"
                )
        self.by_lane = dict(by_lane)
        self.text = " ".join(("", *(f"{lane.name} {one.most} {one.smaller}" for lane, one in by_lane.items()), ""))
        """`` KIND:WINDOW MOST SMALLER `` ..., as the claim script reads it."""


NO_BATCHES = Batches({})
