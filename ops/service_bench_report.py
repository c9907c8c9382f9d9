"""The service benchmark's goals, table and picture."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

P95_GOALS_S = {"10": 1.0, "20": 2.0}
CPU_GOAL = ("10", 0.15)
FIRST_TEXT_GOAL_S = 1.5
SEGMENT_GOAL_S = 1.5


def goals(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every goal that the report has the figures for: name, value, bound, met."""
    found: list[dict[str, Any]] = []

    def at_most(name: str, value: float | None, bound: float | None) -> None:
        if value is not None and bound is not None:
            found.append({"name": name, "value": value, "bound": bound, "met": value <= bound})

    for streams, figures in (report.get("streams") or {}).items():
        if (bound := P95_GOALS_S.get(streams)) is not None:
            at_most(f"final latency p95 at {streams} streams, s", figures["final_latency_s"]["p95"], bound)
        if streams == CPU_GOAL[0]:
            at_most(f"CPU seconds per audio second at {streams} streams", figures["cpu_per_audio_s"], CPU_GOAL[1])
        at_most(f"first text p50 at {streams} streams, s", figures["first_text_s"]["p50"], FIRST_TEXT_GOAL_S)
        at_most(f"word error rate at {streams} streams, against alone", figures["wer"], figures["wer_alone"])
        lost = figures["streams_planned"] - figures["streams_done"] + (not figures["exactly_once_in_order"])
        at_most(f"streams refused, failed or with broken finals at {streams} streams", lost, 0)
    if long := report.get("long"):
        at_most("slowest final of a segment in long recordings, s", long["segment_latency_max_s"], SEGMENT_GOAL_S)
        at_most("long recordings whose last word is lost", len(long["last_words_lost"]), 0)
    if identical := report.get("identical"):
        at_most("texts that differ by frame size, company or policy", len(identical["different"]), 0)
    return found


def table(report: Mapping[str, Any]) -> str:
    """Plain text."""
    lines: list[str] = []
    if streams := report.get("streams"):
        names = ("final p50", "p95", "max", "first text", "WER %", "alone %", "CPU s/s", "done")
        lines.append(f"{'streams':>8}" + "".join(f"{name:>12}" for name in names))
        for count, one in streams.items():
            latency = one["final_latency_s"]
            cells = [
                *(_number(latency[name]) for name in ("p50", "p95", "max")),
                _number(one["first_text_s"]["p50"]),
                _number(None if one["wer"] is None else 100 * one["wer"]),
                _number(None if one["wer_alone"] is None else 100 * one["wer_alone"]),
                _number(one["cpu_per_audio_s"], 3),
                f"{one['streams_done']}/{one['streams_planned']}",
            ]
            lines.append(f"{count:>8}" + "".join(f"{cell:>12}" for cell in cells))
            if not one["generator"]["trustworthy"]:
                lag = one["generator"]["max_send_lag_ms"]
                lines.append(f"{'':8}  CAUTION: audio was sent up to {lag} ms late: the client's machine was too busy")
    for name, one in (report["long"]["recordings"] if "long" in report else {}).items():
        said, heard = one["last_word"]["said"], one["last_word"]["heard"]
        slowest = _number(one["segment_latency_max_s"])
        lines.append(
            f"{name}: {one['finals']} finals in {one['audio_s']:.0f} s, slowest {slowest} s, "
            f"WER {100 * one['wer']:.1f} %, last word {said!r}: {heard!r}"
        )
    if identical := report.get("identical"):
        lines.append(f"equal texts: {identical['equal']} of {identical['compared']} ({identical['by_frame_bytes']})")
        lines += [f"  {one}" for one in identical["different"]]
    if report["goals"]:
        lines.append("goals")
        lines += [
            f"  {'met    ' if one['met'] else 'NOT MET'} {one['name']}: {one['value']:.4g} <= {one['bound']:.4g}"
            for one in report["goals"]
        ]
    return "\n".join(lines)


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def plot(report: Mapping[str, Any], path: Path) -> None:
    """Latency and CPU time over the number of streams."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    matplotlib.rcParams["svg.hashsalt"] = "hearline"  # the same figures give the same file
    streams = report["streams"]
    counts = [int(count) for count in streams]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for name, key, share in (
        ("final, p95", "final_latency_s", "p95"),
        ("final, p50", "final_latency_s", "p50"),
        ("first text, p50", "first_text_s", "p50"),
    ):
        known = [(count, one[key][share]) for count, one in zip(counts, streams.values(), strict=True)]
        shown = [(count, value) for count, value in known if value is not None]
        left.plot([count for count, _ in shown], [value for _, value in shown], marker="o", label=name)
    left.set(xlabel="real-time streams", ylabel="seconds", title="Latency", xticks=counts)
    left.set_ylim(bottom=0)
    left.legend()
    below = [0.0] * len(counts)
    for role in ("worker", "web", "redis"):
        shares = [one["cpu_s"][role] / one["audio_s"] if one["audio_s"] else 0.0 for one in streams.values()]
        right.bar([str(count) for count in counts], shares, bottom=below, label=role)
        below = [a + b for a, b in zip(below, shares, strict=True)]
    right.set(xlabel="real-time streams", ylabel="CPU seconds", title="CPU time for a second of audio")
    right.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
