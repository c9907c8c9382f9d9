"""The soak, small: a whole service under streams that stay and streams that come and go. No absolute times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ops.soak import main as soak
from ops.soak_cycles import MOMENTS, WAYS
from tests.support.up_process import clean_environment


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    """The report of a run with these arguments, in an environment without settings."""
    import os

    for name in set(clean_environment()) ^ set(os.environ):  # noqa: TID251
        monkeypatch.delenv(name)
    result = CliRunner().invoke(soak, [*arguments, "--json"], catch_exceptions=False)
    report: dict[str, Any] = json.loads(result.stdout)
    assert report["violations"] == []
    assert result.exit_code == 0, result.stderr
    return report


@pytest.mark.slow
def test_streams_that_stay_and_streams_that_come_and_go_lose_no_final(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plot = tmp_path / "soak.svg"
    report = run(
        monkeypatch, "--streams", "20", "--minutes", "0.33", "--short", "0.5", "--short-s", "6", "--no-limits",
        "--plot", str(plot),
    )  # fmt: skip
    assert report["streams"]["opened"] > 30, "none was followed by another"
    assert report["finals"]["received"] == report["finals"]["expected"] > 40
    assert report["finals"]["partials"] > 20
    assert report["fault_count"] == 0
    assert report["final_latency_s"]["pause"]["count"] > 0
    assert report["final_latency_s"]["last"]["count"] == report["streams"]["done"]
    assert {"/health", "/metrics"} == set(report["probes"])
    assert all(one["count"] > 5 and not one["failed"] for one in report["probes"].values())
    assert {name.split()[0] for name in report["processes"]} == {"web", "worker", "redis"}
    assert all(value > 0 for value in report["cpu_ms_per_audio_s"].values())
    assert all(count == 0 for count in report["leftovers"]["after"].values())
    assert plot.read_text().startswith("<?xml")


@pytest.mark.slow
def test_connects_and_disconnects_at_random_moments_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, "--cycles", "60", "--seed", "3")
    assert sum(report["moments"].values()) == sum(report["ways"].values()) == report["cycles"] == 60
    assert set(report["ways"]) == set(WAYS)
    assert len(report["moments"]) >= len(MOMENTS) - 2
    for moment in ("final_heard", "done"):  # a partial may be overtaken by the final of its segment
        assert report["reached"][moment] == report["moments"][moment], moment
    assert report["refused"] == 0
    assert report["jobs"]["partial:queued"] > 0
    assert report["jobs"]["final:done"] > 0
