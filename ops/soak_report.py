"""From what was watched and what came back to figures and a verdict."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.soak_watch import ProcessLook, Watched

PROBE_LIMIT_S = 0.1
SLOWEST = 5
GROWTH_SLACK = 1.10
"""The last third of a run may have this many times the memory of the first: allocators settle."""
SMALL_BYTES = 4 * 2**20
"""And so much more in any case: less says nothing."""


@dataclass(frozen=True, slots=True)
class Window:
    """The steady part of a run: from when all streams were open to the end of the load, in monotonic seconds."""

    begin: float
    end: float

    def minute(self, at: float) -> int:
        """Which minute of it, from 0."""
        return int((at - self.begin) // 60)

    def holds(self, at: float) -> bool:
        return self.begin <= at <= self.end


def percentile(values: Sequence[float], share: float) -> float | None:
    """Nearest rank; None for no values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def spread(values: Sequence[float], digits: int = 4) -> dict[str, float | int | None]:
    """Count, median, 95th and 99th percentile, maximum."""
    found: dict[str, float | int | None] = {"count": len(values)}
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0)):
        value = percentile(values, share)
        found[name] = None if value is None else round(value, digits)
    return found


def thirds(window: Window, points: Sequence[tuple[float, float]]) -> dict[str, float | None]:
    """Means of the first and the last third of the window, and what the one is to the other."""
    length = (window.end - window.begin) / 3
    first = [value for at, value in points if window.begin <= at < window.begin + length]
    last = [value for at, value in points if window.end - length < at <= window.end]
    if not first or not last:
        return {"first": None, "last": None, "ratio": None}
    early, late = math.fsum(first) / len(first), math.fsum(last) / len(last)
    return {"first": round(early, 4), "last": round(late, 4), "ratio": round(late / early, 4) if early else None}


def processes(window: Window, watched: Watched, idle: Mapping[str, ProcessLook]) -> dict[str, Any]:
    """Of each process its CPU time, memory, threads and descriptors. ``idle``: before the load."""
    found = {}
    for name, looks in watched.processes.items():
        steady = [look for look in looks if window.holds(look.at)]
        if len(steady) < 2:
            continue
        pss = [look.pss for look in steady if look.pss is not None]
        before = idle.get(name)
        found[name] = {
            "cpu_s": round(steady[-1].cpu_s - steady[0].cpu_s, 2),
            "cpu_cores": round((steady[-1].cpu_s - steady[0].cpu_s) / (steady[-1].at - steady[0].at), 4),
            "rss_bytes": thirds(window, [(look.at, look.rss) for look in steady]),
            "rss_max_bytes": max(look.rss for look in steady),
            "pss_max_bytes": max(pss, default=None),
            "idle_rss_bytes": before.rss if before else None,
            "idle_pss_bytes": before.pss if before else None,
            "threads_max": max(look.threads for look in steady),
            "fds_max": max(look.fds for look in steady),
        }
    return found


def probes(window: Window, watched: Watched) -> dict[str, Any]:
    """Latency of each path in the steady part, in seconds; of the slowest, when it was, and a timer beside it."""
    found: dict[str, Any] = {}
    for path in sorted({probe.path for probe in watched.probes}):
        mine = [one for one in watched.probes if one.path == path]
        steady = sorted((one for one in mine if window.holds(one.at)), key=lambda one: -one.seconds)
        found[path] = {
            **spread([one.seconds for one in steady]),
            "failed": [one.problem for one in mine if one.problem][:10],
            "slowest": [
                {
                    "at_s": round(one.at - window.begin, 1),
                    "seconds": round(one.seconds, 4),
                    "timer_late_s": round(one.timer_late_s, 4),
                }
                for one in steady[:SLOWEST]
            ],
        }
    return found


def latencies(window: Window, all_latencies: Sequence[tuple[float, str, float]]) -> dict[str, Any]:
    """Of finals: over all, by minute, and the last third against the first."""
    found: dict[str, Any] = {}
    for kind in ("pause", "last"):
        chosen = [(at, value) for at, of, value in all_latencies if of == kind]
        steady = [(at, value) for at, value in chosen if window.holds(at)]
        by_minute: dict[int, list[float]] = {}
        for at, value in steady:
            by_minute.setdefault(window.minute(at), []).append(value)
        found[kind] = {
            **spread([value for _, value in chosen]),
            "by_minute": {str(minute): spread(values) for minute, values in sorted(by_minute.items())},
            "growth": thirds(window, steady),
        }
    return found


def violations(report: Mapping[str, Any], *, limits: bool) -> list[str]:
    """What must not be. ``limits``: also times and memory, which a busy machine or a short run cannot promise."""
    found = [*report["faults"], *report["watch_problems"], *(f"left: {one}" for one in report["left_behind"])]
    finals = report["finals"]
    if finals["expected"] != finals["received"]:
        found.append(f"{finals['expected']} finals expected, {finals['received']} received")
    if report["streams"]["done"] != report["streams"]["opened"]:
        found.append(f"{report['streams']['opened']} streams opened, {report['streams']['done']} done")
    if not limits:
        return found
    for path, one in report["probes"].items():
        if one["failed"] or (one["max"] or 0) > PROBE_LIMIT_S:
            found.append(f"{path} took {one['max']} s, at most {PROBE_LIMIT_S} s is allowed; failed: {one['failed']}")
    for name, one in report["processes"].items():
        _grew(found, f"{name} resident memory", one["rss_bytes"])
    _grew(found, "Redis memory", report["redis"]["used_memory"])
    return found


def _grew(found: list[str], name: str, figures: Mapping[str, float | None]) -> None:
    first, last = figures["first"], figures["last"]
    if first and last and last > first * GROWTH_SLACK and last - first > SMALL_BYTES:
        found.append(f"{name} grew from {first:.0f} to {last:.0f} bytes between the first and the last third")


def table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    streams, finals, cpu = report["streams"], report["finals"], report["cpu_ms_per_audio_s"]
    lines = [
        f"{report['plan']['streams']} streams for {report['plan']['minutes']:g} min, frames of "
        f"{report['plan']['frame_ms']} ms: {streams['opened']} opened, {streams['done']} done, "
        f"{finals['received']} of {finals['expected']} finals",
        "CPU ms per audio second: " + ", ".join(f"{role} {value}" for role, value in cpu.items()),
        f"memory per stream: {report['memory_per_stream_bytes']}",
    ]
    for kind, one in report["final_latency_s"].items():
        lines.append(f"final at {kind:5}: p50 {one['p50']} s, p95 {one['p95']} s, max {one['max']} s")
    for path, one in report["probes"].items():
        lines.append(f"{path:9}: p50 {one['p50']} s, p99 {one['p99']} s, max {one['max']} s")
    for name, one in report["processes"].items():
        rss = one["rss_bytes"]
        lines.append(
            f"{name:14} {one['cpu_cores']:.3f} cores, RSS {(rss['first'] or 0) / 2**20:.1f} -> "
            f"{(rss['last'] or 0) / 2**20:.1f} MiB, {one['threads_max']} threads, {one['fds_max']} descriptors"
        )
    memory = report["redis"]["used_memory"]
    lines.append(
        f"Redis memory {memory['first']} -> {memory['last']} bytes, {report['redis']['keys_max']} keys at most"
    )
    lines += [f"VIOLATION {one}" for one in report["violations"]] or ["no violation"]
    return "\n".join(lines)


def plot(watched: Watched, window: Window, progress: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Streams, memory and answer times over time."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    matplotlib.rcParams["svg.hashsalt"] = "hearline"  # the same figures give the same file
    figure, (top, middle, bottom) = pyplot.subplots(3, 1, figsize=(9, 8), sharex=True, layout="constrained")

    def minutes(at: float) -> float:
        return (at - window.begin) / 60

    top.plot([minutes(one["at"]) for one in progress], [one["open"] for one in progress], label="streams")
    top.set(ylabel="open streams")
    for name, looks in sorted(watched.processes.items()):
        middle.plot([minutes(one.at) for one in looks], [one.rss / 2**20 for one in looks], label=f"{name} RSS")
    middle.plot([minutes(one.at) for one in watched.redis], [one.used_memory / 2**20 for one in watched.redis], "k--",
                label="Redis used_memory")  # fmt: skip
    middle.set(ylabel="MiB")
    for probed in sorted({one.path for one in watched.probes}):
        mine = [one for one in watched.probes if one.path == probed]
        bottom.plot([minutes(one.at) for one in mine], [1000 * one.seconds for one in mine], ".", ms=3, label=probed)
    bottom.axhline(1000 * PROBE_LIMIT_S, color="gray", lw=0.8)
    bottom.set(ylabel="answer, ms", xlabel="minutes", yscale="log")
    for axes in (top, middle, bottom):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
