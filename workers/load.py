"""From the settings to a transcriber that is ready to decode. The model's libraries are imported only when used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from workers.model_files import resolve_model
from workers.scripted import Script, ScriptedTranscriber
from workers.settings import WorkerSettings
from workers.transcriber import Transcriber


@dataclass(frozen=True, slots=True)
class Loaded:
    """A transcriber and what the worker says of it to others."""

    transcriber: Transcriber
    description: dict[str, object]


def load_transcriber(settings: WorkerSettings, *, crash: Callable[[int], object]) -> Loaded:
    """Load and warm up; ``crash`` is what the scripted fault of that name does.

    Raises `ModelError` or `SettingsError`.
    """
    if settings.transcriber == "scripted":
        script = Script.read(settings.script) if settings.script else Script()
        scripted = ScriptedTranscriber(script, pause=threading.Event().wait, crash=crash)
        return Loaded(scripted, {"model": scripted.name, "device": "none", "compute_type": "none", "threads": 0})
    from workers.calibration import find_calibration
    from workers.whisper import WhisperOptions, fetch_from_hub, known_sizes, load_whisper

    files = resolve_model(settings.model, model_dir=settings.model_dir, sizes=known_sizes(), fetch=fetch_from_hub)
    options = WhisperOptions(
        device=settings.device,
        compute_type=settings.compute_type,
        threads=settings.threads,
        language=settings.language,
        partial_beam=settings.partial_beam,
        final_beam=settings.final_beam,
        calibration=find_calibration(files, settings.calibration, settings.window),
    )
    whisper = load_whisper(files, options)
    whisper.check_language()
    whisper.warm_up()
    return Loaded(
        whisper,
        {
            "model": whisper.name,
            "device": whisper.device,
            "compute_type": whisper.compute_type,
            "threads": whisper.threads,
            "multilingual": whisper.multilingual,
            "calibration": whisper.calibration.source,
        },
    )
