"""Long recordings through `hearline stream`, one at a time: how soon a segment's final comes, and the last word."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ops.errors import Failed, Missing
from ops.procfile import python_module
from ops.service_bench_client import Clip, load_clips, read_pcm
from ops.service_bench_load import Progress
from ops.service_bench_process import Service
from ops.service_bench_words import word_error_rate

LEAST_S = 28.0
"""What does not fit one decode."""

MOST_S = 600.0


def long_clips(folder: Path) -> list[Clip]:
    """The long recordings of ``edge/`` that have a text, and those of the manifest that no single decode holds.

    Raises `Missing` when there are none.
    """
    found: list[Clip] = []
    if (folder / "edge.csv").is_file():
        with (folder / "edge.csv").open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["group"] == "long" and row["reference"]:
                    path = (folder / row["file"]).resolve()
                    found.append(Clip(path.stem, path, read_pcm(path), row["reference"]))
    try:
        return found + load_clips(folder, LEAST_S, MOST_S)
    except Missing:
        if found:
            return found
        raise


def measure_long(
    service: Service, clips: Sequence[Clip], environment: Mapping[str, str], progress: Progress
) -> dict[str, Any]:
    """Each clip at the pace of speech, alone; by clip, and all segments together."""
    found: dict[str, Any] = {}
    for clip in clips:
        found[clip.id] = one = describe(clip, _stream(clip, service.url, environment))
        progress(f"long: {clip.id}: {one['finals']} finals, slowest segment {one['segment_latency_max_s']} s")
    latencies = [s for one in found.values() for s in one["segment_latency_s"]]
    return {
        "recordings": found,
        "segments": len(latencies),
        "segment_latency_max_s": max(latencies, default=None),
        "last_words_lost": [name for name, one in found.items() if not one["last_word_kept"]],
    }


def describe(clip: Clip, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one stream, from the summary of `hearline stream --json`. Raises `Failed` for one not done."""
    if summary["outcome"] != "done":
        raise Failed(f"{clip.id}: the stream ended as {summary['outcome']}: {summary['error']}")
    said, heard = last_word(clip.reference), last_word(summary["text"])
    latencies = [round(float(s), 3) for s in summary["segment_latency_s"]]
    return {
        "audio_s": summary["audio_s"],
        "finals": summary["finals"],
        "segment_latency_s": latencies,
        "segment_latency_max_s": max(latencies, default=None),
        "final_latency_s": summary["final_latency_s"],
        "wer": round(word_error_rate([(clip.reference, summary["text"])]), 4),
        "last_word": {"said": said, "heard": heard},
        "last_word_kept": said == heard,
    }


def last_word(text: str) -> str:
    """In lower case and without punctuation; empty for none."""
    words = re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower())
    return words[-1] if words else ""


def _stream(clip: Clip, url: str, environment: Mapping[str, str]) -> dict[str, Any]:
    run = subprocess.run(
        [*python_module("ops.cli"), "stream", str(clip.path), "--url", url, "--json"],
        capture_output=True,
        text=True,
        timeout=clip.seconds + 300,
        check=False,
        env=dict(environment),
    )
    for line in reversed(run.stdout.splitlines()):
        message: dict[str, Any] = json.loads(line)
        if message.get("type") == "summary":
            return message
    raise Failed(f"`hearline stream` ended with {run.returncode}:\n{(run.stderr or run.stdout)[-1_000:]}")
