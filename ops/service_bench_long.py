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

CUT_FROM_S = 18.0
"""A segment that is cut for its length, not at a pause, holds at least so much: 28 s less the 10 s in which the best
gap is looked for. Its final cannot come sooner than the place of the cut is known, up to 10 s later."""


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
        found[clip.id] = one = describe(clip, *_stream(clip, service.url, environment))
        progress(f"long: {clip.id}: {one['finals']} finals, slowest segment {one['segment_latency_max_s']} s")
    at_pauses, at_length = (
        [s for one in found.values() for s in one[name]] for name in ("segment_latency_s", "cut_latency_s")
    )
    return {
        "recordings": found,
        "segments": len(at_pauses),
        "segment_latency_max_s": max(at_pauses, default=None),
        "cut_segments": len(at_length),
        "cut_latency_max_s": max(at_length, default=None),
        "last_words_lost": [name for name, one in found.items() if not one["last_word_kept"]],
    }


def describe(clip: Clip, summary: Mapping[str, Any], finals: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of one stream, from what `hearline stream --json` says. Raises `Failed` for one not done.

    Segments of `CUT_FROM_S` or more are kept apart: they may have been cut for their length.
    """
    if summary["outcome"] != "done":
        raise Failed(f"{clip.id}: the stream ended as {summary['outcome']}: {summary['error']}")
    said, heard = last_word(clip.reference), last_word(summary["text"])
    timed = [final for final in finals if not final["last"] and "speech_end_s" in final]
    latencies = [
        (final["speech_end_s"] - final["speech_start_s"] >= CUT_FROM_S, round(float(seconds), 3))
        for final, seconds in zip(timed, summary["segment_latency_s"], strict=True)
    ]
    at_pauses = [seconds for cut, seconds in latencies if not cut]
    return {
        "audio_s": summary["audio_s"],
        "finals": summary["finals"],
        "segment_latency_s": at_pauses,
        "segment_latency_max_s": max(at_pauses, default=None),
        "cut_latency_s": [seconds for cut, seconds in latencies if cut],
        "final_latency_s": summary["final_latency_s"],
        "wer": round(word_error_rate([(clip.reference, summary["text"])]), 4),
        "last_word": {"said": said, "heard": heard},
        "last_word_kept": said == heard,
    }


def last_word(text: str) -> str:
    """In lower case and without punctuation; empty for none."""
    words = re.findall(r"[^\W_]+(?:'[^\W_]+)?", text.lower())
    return words[-1] if words else ""


def _stream(clip: Clip, url: str, environment: Mapping[str, str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(summary, finals)."""
    run = subprocess.run(
        [*python_module("ops.cli"), "stream", str(clip.path), "--url", url, "--json"],
        capture_output=True,
        text=True,
        timeout=clip.seconds + 300,
        check=False,
        env=dict(environment),
    )
    messages = [json.loads(line) for line in run.stdout.splitlines()]
    if messages and messages[-1].get("type") == "summary":
        return messages[-1], [message for message in messages if message.get("type") == "final"]
    raise Failed(f"`hearline stream` ended with {run.returncode}:\n{(run.stderr or run.stdout)[-1_000:]}")
