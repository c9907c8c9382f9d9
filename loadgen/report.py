"""The figures of a load run; docs/measurements.md says exactly what each of them is."""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from loadgen.load_run import Run, StreamResult
from loadgen.outcome import BAD_INPUT, DONE, FAILED, INTERRUPTED, REFUSED, UNREACHABLE
from loadgen.statistics import MissingPackages, spread, word_errors

SCHEMA = 1
SPREADS = (
    "final_latency_ms", "first_text_ms", "first_partial_ms", "segment_latency_ms", "partial_age_ms",
    "queue_ms", "decode_ms", "partials_per_stream", "finals_per_stream", "resume_gap_ms",
)  # fmt: skip
"""The figures that are percentiles over streams, finals or partials."""

LAG_LIMIT_S = 0.05
"""A sender that was later than this measured its own machine rather than the service."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time: of this process in seconds, of the whole machine as a share of all its cores."""

    process_cpu_s: float
    machine_busy: float


def environment() -> dict[str, Any]:
    """The machine and the versions, as far as a reader needs them to compare figures."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": psutil.cpu_count() or 0,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "hearline": _version("hearline"),
        "websockets": _version("websockets"),
    }


def report(run: Run, settings: dict[str, Any], usage: Usage) -> dict[str, Any]:
    """The whole run as JSON-able fields; milliseconds unless a name says otherwise, null where nothing is known."""
    done = [result for result in run.results if result.outcome is not None and result.outcome.status == DONE]
    faults = [fault for result in run.results for fault in result.recorder.faults]
    audio_s = sum(result.recorder.audio_s for result in done)
    max_lag_s = max((result.recorder.max_lag_s for result in run.results), default=0.0)
    return {
        "schema": SCHEMA,
        "settings": settings,
        "interrupted": run.interrupted,
        "environment": environment(),
        "streams": {
            "planned": len(run.results),
            "done": len(done),
            "by_outcome": dict(Counter(_outcome(result) for result in run.results)),
            "by_error": dict(Counter(_error(result) for result in run.results if _error(result))),
        },
        "audio_s": round(audio_s, 3),
        "sent_audio_s": round(sum(result.recorder.audio_s for result in run.results), 3),
        "wall_s": round(run.wall_s, 3),
        "final_latency_ms": spread(_ms(result.recorder.final_latency_s for result in done)),
        "first_text_ms": spread(_ms(result.recorder.first_text_s for result in done)),
        "first_partial_ms": spread(_ms(result.recorder.first_partial_s for result in done)),
        "segment_latency_ms": spread(_ms(s for result in done for s in result.recorder.segment_latencies_s)),
        "partial_age_ms": spread(_ms(age for result in done for age in result.recorder.partial_ages_s)),
        "queue_ms": spread([ms for result in done for ms in result.recorder.timings_ms("queue_ms")]),
        "decode_ms": spread([ms for result in done for ms in result.recorder.timings_ms("decode_ms")]),
        "partials_per_stream": spread([result.recorder.partials for result in done]),
        "finals_per_stream": spread([len(result.recorder.finals) for result in done]),
        "resume_gap_ms": spread(_ms(gap for result in run.results for gap in result.recorder.gaps_s)),
        "resumes": sum(result.recorder.resumes for result in run.results),
        "finals": {
            "received": sum(len(result.recorder.finals) for result in run.results),
            "exactly_once_in_order": _exactly_once_in_order(run, faults),
            "faults": faults[:20],
        },
        "word_error_rate": _word_error_rate(done),
        "alone": _alone(run, done),
        "generator": {
            "max_send_lag_ms": round(max_lag_s * 1000, 1),
            "trustworthy": max_lag_s <= LAG_LIMIT_S,
            "cpu_s": round(usage.process_cpu_s, 2),
            "machine_busy": round(usage.machine_busy, 3),
        },
        "each": [_one(result) for result in run.results],
    }


def exit_status(fields: dict[str, Any]) -> int:
    """As `hearline stream`: 0 when every stream is done and every text equals the one decoded alone."""
    outcomes = fields["streams"]["by_outcome"]
    alone = fields["alone"]
    if fields["interrupted"]:
        return INTERRUPTED
    if set(outcomes) == {"unreachable"}:
        return UNREACHABLE
    if outcomes.keys() & {"failed", "unreachable"} or (alone is not None and (alone["different"] or alone["failed"])):
        return FAILED
    if outcomes.get("bad_input"):
        return BAD_INPUT
    return REFUSED if outcomes.keys() & {"refused", "limited"} else DONE


def text(fields: dict[str, Any]) -> str:
    """The report as lines for people."""
    streams = fields["streams"]
    lines = [
        f"{streams['done']} of {streams['planned']} streams done, {fields['audio_s']:.1f} s of audio in "
        f"{fields['wall_s']:.1f} s ({', '.join(f'{name} {n}' for name, n in sorted(streams['by_outcome'].items()))})"
    ]
    lines += [f"  {error}: {count}" for error, count in streams["by_error"].items()]
    lines.append(f"{'':22}{'count':>8}{'mean':>10}{'p50':>10}{'p90':>10}{'p95':>10}{'p99':>10}{'max':>10}")
    for name in SPREADS:
        values = fields[name]
        shown = "".join(f"{'-' if values[key] is None else values[key]:>10}" for key in list(values)[1:])
        lines.append(f"{name:22}{values['count']:>8}{shown}")
    finals = fields["finals"]
    not_judged = f"not judged: {'interrupted' if fields['interrupted'] else 'no stream began'}"
    judged = {True: "yes", False: "NO", None: not_judged}[finals["exactly_once_in_order"]]
    lines.append(f"finals exactly once and in order: {judged}")
    lines += [f"  {fault}" for fault in finals["faults"]]
    if wer := fields["word_error_rate"]:
        lines.append(wer.get("missing") or f"word error rate: {100 * wer['rate']:.2f} % of {wer['words']} words")
    if alone := fields["alone"]:
        lines.append(f"texts equal to those decoded alone: {alone['equal']} of {alone['compared']}")
        lines += [f"  {clip}: alone it failed: {why}" for clip, why in alone["failed"].items()]
        lines += [f"  {d['clip']}: {d['text']!r}, alone {d['alone']!r}" for d in alone["different"]]
    if not fields["generator"]["trustworthy"]:
        lines.append(
            f"CAUTION: this process sent audio up to {fields['generator']['max_send_lag_ms']} ms late; "
            "its machine, not the service, may have been measured"
        )
    return "\n".join(lines)


def _exactly_once_in_order(run: Run, faults: list[str]) -> bool | None:
    """Of the streams that the service began. None where none did, and where all is well but for streams that an
    interrupt kept from their end."""
    begun = [result for result in run.results if result.recorder.session]
    if faults or any(result.outcome is not None and result.outcome.status != DONE for result in begun):
        return False
    waiting = any(result.outcome is None for result in run.results)
    return None if waiting or not begun else True


def _word_error_rate(done: list[StreamResult]) -> dict[str, Any] | None:
    pairs = [(r.planned.clip.reference, r.recorder.text) for r in done if r.planned.clip.reference is not None]
    if not pairs:
        return None
    try:
        errors = word_errors([(reference, heard) for reference, heard in pairs if reference is not None])
    except MissingPackages as missing:
        return {"rate": None, "missing": str(missing)}
    if errors.rate is None:
        return None
    return {
        "rate": round(errors.rate, 5),
        "words": errors.words,
        "substitutions": errors.substitutions,
        "deletions": errors.deletions,
        "insertions": errors.insertions,
        "texts": len(pairs),
    }


def _alone(run: Run, done: list[StreamResult]) -> dict[str, Any] | None:
    if not run.alone and not run.alone_failed:
        return None
    compared = [result for result in done if result.planned.clip.id in run.alone]
    different = [r for r in compared if r.recorder.text != run.alone[r.planned.clip.id]]
    return {
        "compared": len(compared),
        "equal": len(compared) - len(different),
        "different": [
            {"clip": r.planned.clip.id, "text": r.recorder.text, "alone": run.alone[r.planned.clip.id]}
            for r in different
        ],
        "failed": run.alone_failed,
    }


def _one(result: StreamResult) -> dict[str, Any]:
    recorder = result.recorder
    return {
        "clip": result.planned.clip.id,
        "at_s": round(result.planned.at_s, 3),
        "session": recorder.session or None,
        "outcome": _outcome(result),
        "error": _error(result) or None,
        "audio_s": round(recorder.audio_s, 3),
        "partials": recorder.partials,
        "finals": len(recorder.finals),
        "first_text_ms": _first(_ms([recorder.first_text_s])),
        "first_partial_ms": _first(_ms([recorder.first_partial_s])),
        "segment_latency_ms": _ms(recorder.segment_latencies_s),
        "final_latency_ms": _first(_ms([recorder.final_latency_s])),
        "queue_ms": recorder.timings_ms("queue_ms"),
        "decode_ms": recorder.timings_ms("decode_ms"),
        "resume_gap_ms": _ms(recorder.gaps_s),
        "text": recorder.text,
    }


def _ms(values: Any) -> list[float]:
    return [round(value * 1000, 1) for value in values if value is not None]


def _first(values: list[float]) -> float | None:
    return values[0] if values else None


def _outcome(result: StreamResult) -> str:
    return result.outcome.name if result.outcome is not None else "interrupted"


def _error(result: StreamResult) -> str:
    if result.outcome is None or result.outcome.status == DONE:
        return ""
    return result.outcome.code or result.outcome.message


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
