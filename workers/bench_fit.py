"""Is decode time a line over audio seconds? Least squares for full and right-sized windows, and the picture of it."""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from queueing.lane import Kind
from workers.bench_corpus import Missing, Recording, WrongUse
from workers.bench_engines import Bank, Stopwatch
from workers.bench_spread import quantile, spread
from workers.bench_whole import MOST_S, Progress

SHARES = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}


@dataclass(frozen=True, slots=True)
class Line:
    """``seconds = intercept_s + slope * audio_s``, ``slope`` in seconds per audio second."""

    slope: float
    intercept_s: float
    r2: float

    def at(self, audio_s: float) -> float:
        return self.intercept_s + self.slope * audio_s


Point = tuple[float, float]
"""(audio seconds, decode seconds)."""


def least_squares(points: Sequence[Point]) -> Line:
    """The line with the least squared residuals, and R2 = 1 - residual over total sum of squares.

    Raises ValueError for fewer than three points, or all of one length.
    """
    if len(points) < 3 or len({audio for audio, _ in points}) < 2:
        raise ValueError(f"{len(points)} points of too few lengths make no line; measure more recordings")
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / math.fsum((x - mean_x) ** 2 for x, _ in points)
    intercept = mean_y - slope * mean_x
    total = math.fsum((y - mean_y) ** 2 for _, y in points)
    left = math.fsum((y - intercept - slope * x) ** 2 for x, y in points)
    return Line(slope, intercept, 1.0 - left / total if total else 1.0)


def describe(points: Sequence[Point], repeats: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The line through ``points``, the quantiles of what it leaves, and how far repeats of one decode lie apart."""
    line = least_squares(points)
    left = [y - line.at(x) for x, y in points]
    apart = [(max(times) - min(times)) / spread(times)[0] for times in repeats if len(times) > 1 and min(times) > 0]
    return {
        "slope": round(line.slope, 5),
        "intercept": round(line.intercept_s, 5),
        "r2": round(line.r2, 4),
        "residual_s": {name: round(quantile(left, share), 4) for name, share in SHARES.items()},
        "repeat_range_share": round(quantile(apart, 0.5), 4) if apart else None,
        "points": len(points),
    }


def measure_fit(
    bank: Bank,
    recordings: Sequence[Recording],
    watch: Stopwatch,
    repeats: int,
    most: int,
    progress: Progress,
) -> tuple[dict[str, Any], dict[str, list[Point]]]:
    """(the ``fit`` object, the points of each kind of window). Greedy finals of up to ``most`` recordings that one
    window holds; a point is the median of ``repeats`` decodes.

    A decode that was suspicious costs a second one, in the full window; ``once`` is the fit without those.
    """
    short = [recording for recording in recordings if recording.audio_s <= MOST_S]
    chosen = short[:: max(1, len(short) // most)][:most]
    points: dict[str, list[Point]] = {}
    found: dict[str, Any] = {}
    for name in ("full", "sized"):
        engine = bank.ours(full=name == "full")
        times: list[list[float]] = [[] for _ in chosen]
        once = [True] * len(chosen)
        for repeat in range(repeats):
            for index, recording in enumerate(chosen):
                before = engine.redone
                times[index].append(watch.time(engine.texts, [recording.samples], Kind.FINAL)[0])
                once[index] &= engine.redone == before
            progress(f"fit: {name} windows, {len(chosen)} decodes ({repeat + 1} of {repeats})")
        points[name] = [(r.audio_s, spread(t, 6)[0]) for r, t in zip(chosen, times, strict=True)]
        found[name] = describe(points[name], times)
        if (redone := once.count(False)) and sum(once) >= 3:
            kept = [point for point, alone in zip(points[name], once, strict=True) if alone]
            found[name]["redone"] = redone
            found[name]["once"] = describe(kept, [])
            points[f"{name}, decoded twice"] = [p for p, alone in zip(points[name], once, strict=True) if not alone]
    return found, points


def check_plot(path: Path) -> None:
    """Raise `Missing` or `WrongUse` where the picture could not be drawn in the end: before the work, not after it."""
    if importlib.util.find_spec("matplotlib") is None:
        raise Missing("--plot needs matplotlib: pip install 'hearline[bench]', or leave --plot out")
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise WrongUse(f"--plot {path}: name a file that ends in .svg, .png or .pdf")
    if not path.parent.is_dir():
        raise WrongUse(f"--plot {path}: there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise WrongUse(f"--plot {path}: it cannot be written; name a file elsewhere")


def plot(points: Mapping[str, Sequence[Point]], found: Mapping[str, Any], clock: str, path: Path) -> None:
    """Both kinds of window as points with their lines, residuals below; call `check_plot` first."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    matplotlib.rcParams["svg.hashsalt"] = "hearline"  # the same points give the same file
    figure, (upper, lower) = pyplot.subplots(
        2, 1, figsize=(7, 6), sharex=True, gridspec_kw={"height_ratios": (3, 1)}, layout="constrained"
    )
    for name, colour in (("full", "tab:orange"), ("sized", "tab:blue")):
        fit = found[name]
        audio = [x for x, _ in points[name]]
        if twice := points.get(f"{name}, decoded twice"):
            label = f"{name}, decoded twice (without: R² {fit['once']['r2']:.3f})"
            upper.scatter([x for x, _ in twice], [y for _, y in twice], s=40, marker="x", color=colour, label=label)
        label = f"{name}: {1000 * fit['intercept']:.0f} ms + {1000 * fit['slope']:.1f} ms/s, R² {fit['r2']:.3f}"
        upper.scatter(audio, [y for _, y in points[name]], s=12, color=colour, alpha=0.6)
        ends = (0.0, max(audio))
        upper.plot(ends, [fit["intercept"] + fit["slope"] * x for x in ends], color=colour, label=label)
        left = [y - fit["intercept"] - fit["slope"] * x for x, y in points[name]]
        lower.scatter(audio, left, s=8, color=colour, alpha=0.6)
    unit = "CPU seconds" if clock == "cpu" else "seconds"
    upper.set(ylabel=f"decode, {unit}", title="Decode time over audio seconds, by kind of window")
    upper.set_ylim(bottom=0)
    upper.legend(loc="upper left")
    lower.axhline(0, color="black", linewidth=0.6)
    lower.set(xlabel="seconds of audio", ylabel="residual")
    for axes in (upper, lower):
        axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
