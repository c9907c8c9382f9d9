"""The hub that models come from, by faster-whisper's names of them."""

from __future__ import annotations

from pathlib import Path

from faster_whisper.utils import available_models, download_model


def known_sizes() -> tuple[str, ...]:
    """The model names that the hub has."""
    return tuple(available_models())


def fetch_from_hub(size: str, model_dir: Path | None) -> str:
    """The directory of a hub model: what is in the cache, else downloaded. Raises OSError without either."""
    cache = str(model_dir) if model_dir else None
    try:
        return str(download_model(size, cache_dir=cache, local_files_only=True))
    except OSError:
        return str(download_model(size, cache_dir=cache))
