"""The latencies of a load run as a picture: what share of streams was served within which time."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path
from typing import Any

from loadgen.statistics import MissingPackages

SUFFIXES = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raise `MissingPackages` or ValueError where `plot` could not draw: before the work, not after it."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"--plot {path}: name a file that ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not path.parent.is_dir():
        raise ValueError(f"--plot {path}: there is no folder {path.parent}; make it first, or name another")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"--plot {path}: it cannot be written; name a file elsewhere")
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackages("--plot", "matplotlib")


def plot(fields: dict[str, Any], path: Path) -> None:
    """Draw a report; the suffix of ``path`` names the format. Call `check_plot` first.

    Raises OSError for a path that cannot be written after all.
    """
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for name, label in (("final_latency_ms", "final after the last sound"), ("first_text_ms", "first text")):
        values = sorted(stream[name] for stream in fields["each"] if stream[name] is not None)
        if values:
            axes.step(values, [(rank + 1) / len(values) for rank in range(len(values))], where="post", label=label)
    axes.set(xlabel="milliseconds", ylabel="share of streams", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="lower right")
    settings = fields["settings"]
    axes.set_title(f"{settings['streams']} streams, {settings['arrivals']}, seed {settings['seed']}")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
