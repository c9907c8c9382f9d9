"""Measure decoding on this machine: Hearline's engine beside faster-whisper's own ``transcribe``, all in one run.

    python -m workers.bench --speech DIR                 a table, with progress on standard error
    python -m workers.bench --speech DIR --json          the same figures as one JSON object
    python -m workers.bench --speech DIR --limit 12      a look at a few recordings; figures are rough
    python -m workers.bench --speech DIR --only fit --plot docs/img/fit.svg

The model is the one that HEARLINE_MODEL names, one copy of its weights for all. On a CPU, seconds are CPU seconds of
this process with one thread, so that a busy machine changes them little; with --device cuda they are wall seconds.
docs/measurements.md explains every figure. Exit status: 0 it ran, whatever the goals say; 1 all or some of it could
not; 2 wrong arguments or settings; 3 a package, the recordings or the model is missing. As JSON:

    wer.DECODER              word error rate on all recordings together
    cpu_per_audio_s.DECODER  seconds for a second of audio; DECODER is transcribe_b1, transcribe_b5, full_b1, full_b5,
                             sized_b1, sized_b5, sized_b1_batch4, sized_b1_batch8
    batch_texts              texts that differ when decoded in batches of 8 instead of alone, for partials and finals
    partials_cpu_ratio.{batch1,batch8}   transcribe over ours, on partials of 0.5 to 8 s
    fit.{full,sized}         slope, intercept, r2, residual_s: decode seconds as a line over audio seconds
    live_cost.SECONDS        all partials and finals of a stream of that length, for each second of it
    edge.{empty,texts}       what was made of sound without speech;  loops: phrases repeated that nobody said
    stable.rate              share of words that differ from the final after they were called stable
    detectors                what voice detection takes of it
    fallbacks                suspicious decodes by what was done about them
    goals                    what the figures should reach, and whether they do
    spread, machine, model, plan
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from queueing.errors import SettingsError
from workers.bench_corpus import BenchError, Missing, WrongUse, load_recordings
from workers.bench_engines import Bank, Options, Stopwatch
from workers.bench_fit import check_plot, plot
from workers.bench_goals import goals
from workers.bench_live import STREAMS
from workers.bench_machine import describe_machine
from workers.bench_report import table
from workers.bench_sections import SECTIONS, Plan, measure
from workers.bench_text import word_counter
from workers.calibration import find_calibration
from workers.model_files import ModelError, resolve_model
from workers.settings import WorkerSettings

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""What numpy's linear algebra reads when it is loaded; its spare threads would burn CPU time in waiting."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; ends the process for wrong ones."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--speech", type=Path, required=True, metavar="DIR", help="recordings with their texts")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--limit", type=_count, metavar="N", help="so many recordings (default: all)")
    parser.add_argument("--only", choices=SECTIONS, nargs="+", help="measure these alone (default: everything)")
    parser.add_argument("--repeats", type=_count, default=1, metavar="N", help="repeats of each timing (default 1)")
    parser.add_argument("--streams", type=_count, default=40, metavar="N", help="recordings for partials (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="decides the order in made streams (default 1)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the fit (.svg, .png, .pdf)")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="write every decoder's texts as JSON lines")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to decode (default cpu)")
    parser.add_argument("--compute-type", default="default", metavar="T", help="as HEARLINE_COMPUTE_TYPE")
    parser.add_argument("--threads", type=_count, default=1, metavar="N", help="CPU threads of a decode (default 1)")
    parser.add_argument(
        "--batches", type=_count, nargs="+", default=[4, 8], metavar="N", help="batch sizes (default 4 8)"
    )
    parser.add_argument(
        "--live-seconds", type=_count, nargs="+", default=list(STREAMS), metavar="S", help="lengths of live streams"
    )
    given = parser.parse_args(arguments)
    if given.plot is not None and given.only and "fit" not in given.only:
        parser.error("--plot draws the fit: add fit to --only, or leave --only out")
    return given


def run(given: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, Any]:
    """The report. Raises `BenchError`, `ModelError`, `SettingsError`."""
    from workers.whisper import choose_compute_type, choose_device, fetch_from_hub, known_sizes

    if given.plot is not None:
        check_plot(given.plot)
    if not given.only or {"whole", "edge"} & {*given.only}:
        word_counter()
    settings = WorkerSettings.from_env(environment)
    files = resolve_model(settings.model, model_dir=settings.model_dir, sizes=known_sizes(), fetch=fetch_from_hub)
    device = choose_device(given.device)
    options = Options(
        device,
        choose_compute_type(given.compute_type, device),
        given.threads,
        find_calibration(files, settings.calibration, "auto"),
    )
    bank = Bank(files, options)
    watch = Stopwatch("cpu" if device == "cpu" else "wall")
    plan = Plan(
        folder=given.speech,
        repeats=given.repeats,
        streams=given.streams,
        seed=given.seed,
        batches=tuple(given.batches),
        sections=tuple(given.only or SECTIONS),
        live_s=tuple(given.live_seconds),
    )
    machine = describe_machine()  # before the work: the load average is then that of others
    recordings = load_recordings(given.speech, given.limit)
    measured = measure(bank, recordings, watch, plan, _say)
    report = {
        **measured.report,
        "fallbacks": bank.fallbacks,
        "spread": measured.spread,
        "machine": machine,
        "model": bank.describe(),
        "plan": {
            "clock": watch.clock,
            "recordings": len(recordings),
            "audio_s": round(sum(recording.audio_s for recording in recordings), 1),
            "repeats": plan.repeats,
            "seed": plan.seed,
            "streams": plan.streams,
            "sections": list(plan.sections),
        },
    }
    report["goals"] = [goal.fields() for goal in goals(report)]
    if given.plot is not None and measured.points:
        plot(measured.points, report["fit"], watch.clock, given.plot)
    if given.texts is not None:
        with given.texts.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in measured.texts)
    return report


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 100_000:
        raise argparse.ArgumentTypeError(f"{number} is not between 1 and 100000")
    return number


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns the exit status: 0 it ran, whatever the goals say, 1 all or some of it could not, 2 wrong usage
    or settings, 3 something is missing (a package, recordings, the model)."""
    given = parse(arguments)
    try:
        report = run(given, environment)
    except BenchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    except (ModelError, SettingsError) as error:
        sys.stderr.write(f"{error}\n")
        return Missing.exit_status if isinstance(error, ModelError) else WrongUse.exit_status
    sys.stdout.write(json.dumps(report, indent=2, ensure_ascii=False) + "\n" if given.json else table(report))
    return 1 if report.get("failed") else 0


if __name__ == "__main__":
    if any(os.environ.get(name) != number for name, number in ONE_THREAD.items()):  # noqa: TID251
        wanted = {**os.environ, **ONE_THREAD}  # noqa: TID251
        os.execve(sys.executable, [sys.executable, "-m", "workers.bench", *sys.argv[1:]], wanted)
    sys.exit(main(sys.argv[1:], os.environ))  # noqa: TID251
