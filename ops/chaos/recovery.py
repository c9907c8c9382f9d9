"""How long a fault is felt: from the fault to the next final at each client that waited over it.

Of a fault at ``t`` that is over at ``u``, every stream that was open at ``t`` gives one time: its first final after
``t``, if that was due (everything that ends its segment had been said) by ``max(u, t + 2 s)``. The time runs from
``t``, or from when the final was due if that is later, to its arrival; so it holds the usual latency of a final too.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ops.chaos.audio import SAMPLE_RATE
from ops.chaos.records import Injected, Record
from sessions.wire import Final

SOON_S = 2.0
PAUSE_S = 0.8


def recovery(records: Sequence[Record], injected: Sequence[Injected]) -> dict[str, list[float]]:
    """Seconds by kind of fault."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for fault in injected:
        if not fault.kind:
            continue
        for record in records:
            if not record.begun_s <= fault.at_s < record.ended_s:
                continue
            first = next(
                (seen for seen in record.seen if seen.at_s > fault.at_s and isinstance(seen.message, Final)), None
            )
            if first is None or not isinstance(first.message, Final):
                continue
            due_s = _due_s(record, first.message)
            if due_s <= max(fault.until_s, fault.at_s + SOON_S):
                times[fault.kind].append(max(0.0, first.at_s - max(fault.at_s, due_s)))
    return dict(times)


def _due_s(record: Record, final: Final) -> float:
    """When everything had been said that ends the final's segment."""
    variant = record.plan.variant
    pause_s = PAUSE_S if variant.endpoint_ms is None else variant.endpoint_ms / 1000
    end = round(final.end_s * SAMPLE_RATE)
    flush = min((at for at in variant.flushes if at >= end), default=record.total)
    at = min(end + round(pause_s * SAMPLE_RATE), flush, record.total)
    return record.speaks_since_s + at / SAMPLE_RATE / record.plan.speed


def summary(times: Sequence[float]) -> dict[str, Any]:
    """``p50``, ``max`` in seconds and ``n``; no times give no figures."""
    if not times:
        return {"n": 0}
    return {"p50": round(statistics.median(times), 3), "max": round(max(times), 3), "n": len(times)}


def merged(parts: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    """The times of several runs together."""
    together: defaultdict[str, list[float]] = defaultdict(list)
    for part in parts:
        for kind, times in part.items():
            together[kind] += times
    return dict(together)
