"""docs/measurements.md names exactly the metrics and the figures that there are."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from loadgen.load_run import Run
from loadgen.report import Usage, report
from loadgen.workloads import COST_MODELS
from sessions.summary import StreamSummary

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "measurements.md").read_text(encoding="utf-8")
SUFFIXES = re.compile(r"_(total|bucket|sum|count)$")


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    sources = [
        path.read_text(encoding="utf-8") for package in ("api", "workers") for path in (ROOT / package).glob("*.py")
    ]
    exported = {name for text in sources for name in re.findall(r'"(hearline_[a-z_]+)"', text)}
    documented = {SUFFIXES.sub("", name) for name in re.findall(r"\bhearline_[a-z_]+", DOCUMENT)}
    assert len(exported) > 40, "the metrics were looked for in the wrong place"
    assert exported - documented == set(), "not in docs/measurements.md"
    assert documented - exported == set(), "in docs/measurements.md, but nowhere else"


def test_every_figure_of_a_load_report_is_documented() -> None:
    figures = report(Run([]), {}, Usage(0, 0))
    for name in (*figures, *figures["generator"]):
        if name.endswith("_ms") or name in {"partials_per_stream", "audio_s", "machine_busy", "trustworthy"}:
            assert f"`{name.removesuffix('_ms')}" in DOCUMENT, name


def test_cost_models_and_summary_fields_are_the_real_ones() -> None:
    assert all(f"| `{model}` |" in DOCUMENT for model in COST_MODELS)
    counts = {field.name for field in fields(StreamSummary) if field.name.startswith("partials_")}
    assert set(re.findall(r"`(partials_[a-z]+)`", DOCUMENT)) <= counts
