"""What the figures should reach, and whether they do. A goal whose figures were not measured is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

WER_ROOM = 0.003
"""Right-sizing may cost three tenths of a point."""

FLAT = 1.25
"""An hour may cost so much more for each second than half a minute."""


@dataclass(frozen=True, slots=True)
class Goal:
    """``value`` against ``bound``: at most it, or with ``least`` at least it."""

    name: str
    value: float
    bound: float
    least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.least else self.value <= self.bound

    def fields(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "value": round(self.value, 5), "bound": round(self.bound, 5), "met": self.met}

    def line(self) -> str:
        """For a reader."""
        sign = ">=" if self.least else "<="
        return f"  {'met    ' if self.met else 'NOT MET'} {self.name}: {self.value:.4g} {sign} {self.bound:.4g}"


def goals(report: Mapping[str, Any]) -> list[Goal]:
    """Every goal that the report has the figures for."""
    found: list[Goal] = []
    wer, cost = report.get("wer") or {}, report.get("cpu_per_audio_s") or {}
    for name, rate in wer.items():
        peer = wer.get("transcribe_b5" if name.endswith("b5") else "transcribe_b1")
        if peer is not None and not name.startswith("transcribe"):
            found.append(Goal(f"wer.{name} within {100 * WER_ROOM:.1f} points of transcribe", rate, peer + WER_ROOM))
    for beam in ("b1", "b5"):
        peer, ours = cost.get(f"transcribe_{beam}"), cost.get(f"sized_{beam}")
        if peer and ours:
            found.append(Goal(f"transcribe_{beam} over sized_{beam} on whole utterances", peer / ours, 2.2, least=True))
    for name, bound in (("batch1", 4.0), ("batch8", 6.0)):
        ratio = (report.get("partials_cpu_ratio") or {}).get(name)
        if ratio is not None:
            found.append(Goal(f"partials_cpu_ratio.{name}", ratio, bound, least=True))
    live = report.get("live_cost") or {}
    if live.get("30") and live.get("3600"):
        found.append(Goal("an hour's cost per second over half a minute's", live["3600"] / live["30"], FLAT))
    if edge := report.get("edge"):
        found.append(Goal("texts on sound without speech", len(edge["texts"]), 0))
    if report.get("loops") is not None:
        found.append(Goal("repeated phrases that nobody said", len(report["loops"]), 0))
    if stable := report.get("stable"):
        found.append(Goal("stable text that changed within its segment", len(stable["changed_within_segment"]), 0))
    if stable and stable["rate"] is not None:
        found.append(Goal("stable words that differ from the final", stable["rate"], 0.01))
    return found
