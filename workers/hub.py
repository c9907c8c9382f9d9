"""The hub that models come from, by faster-whisper's names of them."""

from __future__ import annotations

from pathlib import Path

from faster_whisper.utils import available_models, download_model


def known_sizes() -> tuple[str, ...]:
    """The model names that the hub has."""
    return tuple(available_models())


def fetch_from_hub(size: str, model_dir: Path | None) -> str:
    """The directory of a hub model: what is in the cache, else downloaded. Raises OSError without either."""
    try:
        return find_in_cache(size, model_dir)
    except OSError:
        return str(download_model(size, cache_dir=str(model_dir) if model_dir else None))


def find_in_cache(size: str, model_dir: Path | None) -> str:
    """The directory of a hub model that was downloaded before. Raises OSError where it was not."""
    return str(download_model(size, cache_dir=str(model_dir) if model_dir else None, local_files_only=True))
