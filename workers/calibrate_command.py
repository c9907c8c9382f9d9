"""`hearline calibrate`: find out how short the model's windows may be, and write it down for the workers."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import click

from queueing.errors import SettingsError
from queueing.lane import Kind
from workers.bench_corpus import BenchError, load_recordings
from workers.bench_text import word_counter
from workers.model_files import ModelError, resolve_model
from workers.settings import WorkerSettings


class Failed(click.ClickException):
    """It was tried and failed."""

    exit_code = 1


class WrongUse(click.ClickException):
    """Arguments or settings are wrong."""

    exit_code = 2


class Missing(click.ClickException):
    """A package, the recordings or the model are not there."""

    exit_code = 3


@click.command("calibrate", context_settings={"max_content_width": 110})
@click.option(
    "--speech",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    metavar="DIR",
    help="Folder with manifest.csv (columns id, file, reference) and the recordings that it names.",
)
@click.option("--model", metavar="NAME", help="The model; else $HEARLINE_MODEL.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Take N of the recordings, for a quick look.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write; else $HEARLINE_CALIBRATION, else hearline-calibration.json in the model's directory.",
)
@click.option("--dry-run", is_flag=True, help="Measure and show, write nothing.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON object on standard output.")
def calibrate(
    speech: Path, model: str | None, limit: int | None, output: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Measure which windows keep the model's word error rate, and what they cost.

    \b
      hearline calibrate --speech recordings
      hearline calibrate --speech recordings --limit 20 --dry-run
      HEARLINE_MODEL=base.en hearline calibrate --speech recordings --json

    The other HEARLINE_* settings of a worker hold here too (device, beams, ...). It takes about a minute for each
    minute of recordings with the smallest model on one CPU.

    \b
    Exit status: 0 measured (and written), also when right-sizing does not pay; 1 it was tried and failed;
    2 wrong arguments or settings; 3 a package, the recordings or the model is missing.
    """
    try:
        settings = WorkerSettings.from_env({**_environment(), **({"HEARLINE_MODEL": model} if model else {})})
        word_counter()
        recordings = load_recordings(speech, limit)
    except SettingsError as error:
        raise WrongUse(str(error)) from error
    except BenchError as error:
        raise (Missing if error.exit_status == Missing.exit_code else WrongUse)(str(error)) from error

    from workers.calibrate import describe, measure
    from workers.calibration import FULL, Calibration, calibration_path, write_calibration
    from workers.whisper import WhisperOptions, fetch_from_hub, known_sizes, load_whisper

    try:
        files = resolve_model(settings.model, model_dir=settings.model_dir, sizes=known_sizes(), fetch=fetch_from_hub)
        whisper = load_whisper(
            files,
            WhisperOptions(
                device=settings.device,
                compute_type=settings.compute_type,
                threads=settings.threads,
                language=settings.language,
                partial_beam=settings.partial_beam,
                final_beam=settings.final_beam,
                calibration=FULL,
            ),
        )
        whisper.warm_up()
        measured = [
            measure(
                whisper,
                recordings,
                kind,
                beam,
                cpu_s=time.process_time if whisper.device == "cpu" else time.perf_counter,
                progress=lambda line: click.echo(line, err=True),
            )
            for kind, beam in ((Kind.PARTIAL, settings.partial_beam), (Kind.FINAL, settings.final_beam))
        ]
    except ModelError as error:
        raise Missing(str(error)) from error
    except BenchError as error:
        raise Failed(str(error)) from error

    path = output or calibration_path(files, settings.calibration)
    result = {"model": files.name, "recordings": len(recordings)} | {one.kind: one.to_dict() for one in measured}
    if not dry_run:
        try:
            write_calibration(path, files, Calibration(measured[0].chosen, measured[1].chosen), result)
        except OSError as error:
            raise Failed(
                f"cannot write {path}: {error.strerror}; name another place with --output and HEARLINE_CALIBRATION"
            ) from error
    if as_json:
        click.echo(json.dumps(result | {"written": None if dry_run else str(path)}))
        return
    for one in measured:
        click.echo(f"{one.kind}s (beam {one.beam}):")
        for candidate in one.candidates:
            mark = "*" if candidate.sizing is not None and candidate.sizing == one.chosen else " "
            click.echo(
                f" {mark} {describe(candidate.sizing):44s} word error rate {100 * candidate.word_error_rate:6.2f} %  "
                f"CPU {candidate.cpu_per_audio_s:.4f} s per audio s  decoded again "
                f"{candidate.fallbacks.get('full_window', 0)}"
            )
        if one.chosen is None:
            click.echo("   Right-sizing does not pay here: the full window stays.")
    click.echo("Nothing written (--dry-run)." if dry_run else f"Written to {path}; workers read it when they start.")


def _environment() -> Mapping[str, str]:
    """The environment that the composition root passed on; this command's own when it is run by itself."""
    return getattr(click.get_current_context().obj, "environment", None) or os.environ  # noqa: TID251
