"""The decoding benchmark's report for a reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workers.bench_goals import Goal


def table(report: Mapping[str, Any]) -> str:
    """Plain text; what was not measured is not there."""
    lines: list[str] = []
    if wer := report.get("wer"):
        lines += ["Whole utterances", f"  {'':<18}{'word errors':>13}{'s per audio s':>15}"]
        lines += [
            f"  {name:<18}{100 * rate:>11.2f} %{report['cpu_per_audio_s'][name]:>15.4f}" for name, rate in wer.items()
        ]
        batches = report["batch_texts"]
        lines.append(
            f"  texts that differ in batches of {batches['batch']}: {batches['partial_different']} of "
            f"{batches['texts']} partials, {batches['final_different']} finals"
        )
    if ratio := report.get("partials_cpu_ratio"):
        lines += ["", f"Partials, transcribe over ours: alone {ratio['batch1']:.2f}, in batches {ratio['batch8']:.2f}"]
    lines.append("")
    for name, fit in (report.get("fit") or {}).items():
        base, slope = 1000 * fit["intercept"], 1000 * fit["slope"]
        lines.append(f"Fit, {name} windows: {base:.0f} ms + {slope:.1f} ms for each second, R2 {fit['r2']:.3f}")
    if live := report.get("live_cost"):
        shown = ", ".join(f"{seconds} s {cost:.4f}" for seconds, cost in live.items())
        lines += ["", f"Live streams, seconds for a second of audio: {shown}"]
    if edge := report.get("edge"):
        lines += ["", f"Text on {len(edge['silent'])} sounds without speech: {edge['texts'] or 'none'}"]
    if "loops" in report:
        lines += [f"Repeated phrases that nobody said: {report['loops'] or 'none'}"]
    if stable := report.get("stable"):
        lines += [f"Stable words that differ from the final: {stable['changed']} of {stable['words']}"]
    lines += ["", f"Fallbacks: {report['fallbacks'] or 'none'}"]
    lines += [f"FAILED: {name}: {why}" for name, why in (report.get("failed") or {}).items()]
    if report["goals"]:
        lines += ["", "Goals"]
        lines += [Goal(g["name"], g["value"], g["bound"], g["least"]).line() for g in report["goals"]]
    model, plan, machine = report["model"], report["plan"], report["machine"]
    lines += [
        "",
        f"{model['model']} {model['compute_type']} on {model['device']}, threads {model['threads']}; "
        f"{plan['recordings']} recordings, {plan['audio_s']} s; {plan['clock']} seconds, {plan['repeats']} repeats; "
        f"{machine['processor']}, {machine['cores']} cores, load average {machine['load_average'][0]}",
    ]
    return "\n".join(lines).strip("\n") + "\n"
