"""What a job of each lane costs, in milliseconds of one worker's time: a guess at first, then what was measured.

Workers keep an average of their decodes of each lane in the hash ``costs`` (`QueueKeys.costs`); here it is
laid over the prior. Policies see only the merged mapping, so a lane that was never decoded still has a sensible place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from queueing.lane import Lane, all_lanes

PRIOR_BASE_MS = 120.0
PRIOR_MS_PER_WINDOW_S = 18.0
"""120 ms + 18 ms per second of window passes the decodes measured with tiny.en (int8, CPU): 194 ms in a 4 s
window, 268 ms on average at about 9 s, 655 ms in the full 30 s."""

PRIOR_SHARE_OF_COMPANION = 0.26
"""What each further job adds to a batch, as a share of the first: 4 s windows took 194 ms alone, 328 ms as a batch of 4
and 544 ms as one of 8 (tiny.en, int8, CPU)."""

MIN_COST_MS = 1.0
MAX_COST_MS = 600_000.0
"""Bounds of a believable cost; policies divide by it and multiply it by 1e7."""

DRIFT_LIMIT = 0.10
"""Relative change of a cost beyond which ranks are computed anew and queued jobs rescored: rescoring costs
O(jobs), and a policy's choice hardly depends on less."""


def prior_cost_ms(lane: Lane) -> float:
    """The cost of a lane before anything was measured: affine in the window."""
    return PRIOR_BASE_MS + PRIOR_MS_PER_WINDOW_S * lane.window_s


def prior_batch_ms(lane: Lane, jobs: int) -> float:
    """The time of one call of the model for ``jobs`` jobs of a lane before anything was measured."""
    return prior_cost_ms(lane) * (1 + PRIOR_SHARE_OF_COMPANION * (jobs - 1))


def prior_costs() -> dict[Lane, float]:
    """`prior_cost_ms` of every lane."""
    return {lane: prior_cost_ms(lane) for lane in all_lanes()}


def merge_costs(learned: Mapping[bytes, bytes] | Mapping[str, str] | Mapping[str, float]) -> dict[Lane, float]:
    """Every lane's cost in ms: the learned one (lane name -> ms, as HGETALL returns it) over the prior.

    Values are held within `MIN_COST_MS` and `MAX_COST_MS`. A lane that this version does not know is left
    out and a value that is no positive number gives way to the prior: one bad field, written by hand or by a
    newer version, must not stop every claim.
    """
    by_name = {_text(name): value for name, value in learned.items()}
    return {lane: _believable(by_name.get(lane.name), prior_cost_ms(lane)) for lane in all_lanes()}


def drifted(before: Mapping[Lane, float], after: Mapping[Lane, float], limit: float = DRIFT_LIMIT) -> tuple[Lane, ...]:
    """The lanes whose cost changed by more than ``limit`` (relative to ``before``), or that ``before`` lacks."""
    return tuple(
        lane for lane, cost in after.items() if lane not in before or abs(cost - before[lane]) > limit * before[lane]
    )


def _believable(value: str | bytes | float | None, prior: float) -> float:
    if value is None:
        return prior
    try:
        cost = float(value)
    except ValueError:
        return prior
    return min(max(cost, MIN_COST_MS), MAX_COST_MS) if math.isfinite(cost) and cost > 0 else prior


def _text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name
