"""What a run, or several, gave: as JSON, and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ops.chaos.recovery import merged, summary
from ops.chaos.run import Result


def report(seeds: Sequence[int], minutes: float, results: Sequence[Result]) -> dict[str, Any]:
    """The figures of these seeds together (see `ops.chaos.__main__`)."""
    records = [record for result in results for record in result.records]
    times = merged([result.recovery for result in results])
    faults = sum((result.faults() for result in results), Counter[str]())
    return {
        "seed": seeds[0] if len(seeds) == 1 else list(seeds),
        "minutes": minutes,
        "streams": len(records),
        "outcomes": dict(sorted(Counter(record.outcome for record in records).items())),
        "resumed": sum(joined.resumed for record in records for joined in record.joined),
        "finals": sum(len(record.finals) for record in records),
        "errors": dict(sorted(Counter(record.code for record in records if record.code).items())),
        "refusals": dict(sorted(Counter(code for record in records for code in record.refusals).items())),
        "faults": dict(sorted(faults.items())),
        "recovery_s": {
            **summary([seconds for kind in times.values() for seconds in kind]),
            "by_fault": {kind: summary(found) for kind, found in sorted(times.items())},
        },
        "violations": [
            {"seed": result.plan.seed, **asdict(violation)} for result in results for violation in result.violations
        ],
        "unavailable": sorted({kind for result in results for kind in result.unavailable}),
        "looks": sum(result.looks for result in results),
    }


def words(figures: dict[str, Any]) -> str:
    """The same for people."""
    recovery = figures["recovery_s"]
    lines = [
        f"{figures['streams']} streams, {figures['finals']} finals, {sum(figures['faults'].values())} faults, "
        f"{figures['resumed']} resumed",
        "outcomes: " + ", ".join(f"{name} {count}" for name, count in figures["outcomes"].items()),
        "errors: " + (", ".join(f"{name} {count}" for name, count in figures["errors"].items()) or "none"),
        f"recovery: p50 {recovery.get('p50', '-')} s, max {recovery.get('max', '-')} s, n {recovery['n']}",
    ]
    for kind, found in recovery["by_fault"].items():
        lines.append(f"  {kind:20s} n {found['n']:4d}  p50 {found['p50']:7.3f} s  max {found['max']:7.3f} s")
    if figures["unavailable"]:
        lines.append(f"not available here: {', '.join(figures['unavailable'])}")
    for violation in figures["violations"]:
        lines.append(f"VIOLATION seed {violation['seed']}: {violation['what']} {violation['stream']}")
        lines.append(f"  {violation['evidence']}")
    if not figures["violations"]:
        lines.append("the books balance")
    return "\n".join(lines)
