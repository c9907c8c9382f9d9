"""The service under real-time streams of utterances: latency, text and CPU time at each number of streams."""

from __future__ import annotations

import asyncio
import csv
import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.errors import Failed
from ops.procfile import python_module
from ops.service_bench_client import Clip, Sending, transcribe
from ops.service_bench_process import Service, cpu_between
from ops.service_bench_words import word_error_rate

Progress = Callable[[str], None]

FRAME_BYTES = 3_200


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each number of streams is held, and the order of clips."""

    duration_s: float
    seed: int


def alone_texts(service: Service, clips: Sequence[Clip], progress: Progress) -> dict[str, str]:
    """The text of each clip when nothing else is streamed. It also warms the service up: costs are learned then."""
    progress(f"{len(clips)} utterances, each alone")

    async def everything() -> dict[str, str]:
        sending = Sending(FRAME_BYTES, paced=False, partials=False)
        return {clip.id: await transcribe(service.url, clip, sending) for clip in clips}

    return asyncio.run(everything())


def measure_streams(
    service: Service,
    clips: Sequence[Clip],
    alone: Mapping[str, str],
    streams: int,
    plan: Plan,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """`hearline load` against the service at ``streams`` streams on average, and the service's CPU time meanwhile."""
    with tempfile.TemporaryDirectory(prefix="hearline-clips-") as folder:
        write_manifest(Path(folder), clips)
        before = service.cpu_s()
        load = run_load(Path(folder), service.url, streams, plan, environment)
        used = cpu_between(before, service.cpu_s())
    return summarize(load, used, clips, alone)


def write_manifest(folder: Path, clips: Sequence[Clip]) -> None:
    """A folder for `hearline load` with these clips alone; their files stay where they are."""
    with (folder / "manifest.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("id", "file", "seconds", "reference"))
        rows.writerows((clip.id, str(clip.path), clip.seconds, clip.reference) for clip in clips)


def run_load(folder: Path, url: str, streams: int, plan: Plan, environment: Mapping[str, str]) -> dict[str, Any]:
    """Its report. Raises `Failed` when it gives none: refused and failed streams are in the report."""
    command = [
        *python_module("ops.cli"), "load", "--speech", str(folder), "--streams", str(streams),
        "--arrivals", "staggered", "--duration", str(plan.duration_s), "--seed", str(plan.seed), "--url", url, "--json",
    ]  # fmt: skip
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=plan.duration_s + 600,
        check=False,
        env=dict(environment),
    )
    try:
        report: dict[str, Any] = json.loads(run.stdout)
    except ValueError:
        raise Failed(f"`hearline load` ended with {run.returncode}:\n{(run.stderr or run.stdout)[-2_000:]}") from None
    return report


def summarize(
    load: Mapping[str, Any], used: Mapping[str, float], clips: Sequence[Clip], alone: Mapping[str, str]
) -> dict[str, Any]:
    """The figures of one number of streams; seconds, null where nothing was measured."""
    known = {clip.id: clip for clip in clips}
    done = [one for one in load["each"] if one["outcome"] == "done"]
    sent_s = sum(one["audio_s"] for one in load["each"])
    pairs = [(known[one["clip"]].reference, one["text"], alone[one["clip"]]) for one in done]
    total = sum(used.values())
    return {
        "final_latency_s": _seconds(load["final_latency_ms"]),
        "first_text_s": _seconds(load.get("first_text_ms") or load["first_partial_ms"]),
        "queue_s": _seconds(load["queue_ms"]),
        "decode_s": _seconds(load["decode_ms"]),
        "wer": round(word_error_rate([(reference, text) for reference, text, _ in pairs]), 5) if pairs else None,
        "wer_alone": round(word_error_rate([(ref, by_itself) for ref, _, by_itself in pairs]), 5) if pairs else None,
        "equal_to_alone": sum(text == by_itself for _, text, by_itself in pairs),
        "cpu_per_audio_s": round(total / sent_s, 5) if sent_s else None,
        "cpu_s": {role: round(seconds, 2) for role, seconds in used.items()},
        "audio_s": round(sent_s, 1),
        "streams_planned": load["streams"]["planned"],
        "streams_done": load["streams"]["done"],
        "by_outcome": load["streams"]["by_outcome"],
        "exactly_once_in_order": load["finals"]["exactly_once_in_order"],
        "faults": load["finals"]["faults"],
        "partials_per_stream": load["partials_per_stream"]["mean"],
        "generator": load["generator"],
    }


def _seconds(spread: Mapping[str, Any]) -> dict[str, float | int | None]:
    found: dict[str, float | int | None] = {"count": spread["count"]}
    for name in ("p50", "p95", "max"):
        value = spread[name]
        found[name] = None if value is None else round(value / 1000, 4)
    return found
