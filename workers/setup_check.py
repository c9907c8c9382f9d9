"""What a worker can know before it loads its model: files, calibration, device, arithmetic, language.

Takes a second or two where loading may take minutes, and finds what a start would fail of each time. A model that only
the hub has is left for the start: nothing is downloaded here.
"""

from __future__ import annotations

import json
from pathlib import Path

from workers.model_files import TOKENIZER, VOCABULARIES, ModelError, ModelFiles, resolve_model
from workers.scripted import Script
from workers.settings import WorkerSettings

MULTILINGUAL_TOKENS = 51_865
"""The vocabulary of Whisper's multilingual models; the English ones have one token less (CTranslate2 tells them apart
by this too)."""


def check_setup(settings: WorkerSettings) -> None:
    """Raise `ModelError` or `SettingsError` for what `workers.load.load_transcriber` would certainly fail of."""
    if settings.transcriber == "scripted":
        if settings.script:
            Script.read(settings.script)
        return
    from workers.calibration import find_calibration
    from workers.devices import choose_compute_type, choose_device
    from workers.hub import find_in_cache, known_sizes

    choose_compute_type(settings.compute_type, choose_device(settings.device))
    try:
        files = resolve_model(settings.model, model_dir=settings.model_dir, sizes=known_sizes(), fetch=find_in_cache)
    except ModelError as error:
        if not error.retry:
            raise
        _check_file(settings.calibration)
        return
    find_calibration(files, settings.calibration, settings.window)
    if settings.language is not None:
        _check_language(settings.language, files)


def _check_file(calibration: Path | None) -> None:
    from workers.calibration import missing_calibration

    if calibration is not None and not calibration.is_file():
        raise missing_calibration(calibration)


def _check_language(language: str, files: ModelFiles) -> None:
    from workers.prompts import Prompts, read_tokenizer, unknown_language

    multilingual = vocabulary_size(files.path) >= MULTILINGUAL_TOKENS
    prompts = Prompts(read_tokenizer(files.path / TOKENIZER), multilingual=multilingual)
    if refusal := prompts.refusal(language, files.name):
        raise unknown_language(language, refusal)


def vocabulary_size(folder: Path) -> int:
    """Tokens of the model in a folder; 0 where its vocabulary cannot be read, which loading it will tell."""
    for path in (folder / name for name in VOCABULARIES):
        if path.is_file():
            data = path.read_bytes()
            if path.suffix == ".txt":
                return data.count(b"\n") + (not data.endswith(b"\n"))
            try:
                return len(json.loads(data))
            except (ValueError, TypeError):
                return 0
    return 0
