"""How a model's windows are sized: as measured for common models, or by ``hearline calibrate`` for the one in use.

A calibration is a small JSON file: HEARLINE_CALIBRATION, or ``hearline-calibration.json`` in the model's directory.
It belongs to its weights (told by their size), and a model without any decodes in the full window.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workers.encoder import Sizing
from workers.model_files import WEIGHTS, ModelError, ModelFiles

FILE_NAME = "hearline-calibration.json"
VERSION = 1
MOST_PADDING_S = 28.0
MOST_SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """The sizing of each kind of decode; None: the full window. ``source``: where it comes from, for a log."""

    partial: Sizing | None = None
    final: Sizing | None = None
    source: str = field(default="none", compare=False)


FULL = Calibration()

SHIPPED: Mapping[str, Calibration] = {
    "tiny.en": Calibration(Sizing(1.0, 4.0), Sizing(1.0, 4.0), "shipped"),
    "base": Calibration(Sizing(2.0, 0.0), Sizing(3.0, 0.0), "shipped"),
}
"""What was measured for models under their usual names; any other needs ``hearline calibrate``."""


def calibration_path(files: ModelFiles, setting: Path | None) -> Path:
    """Where the calibration of a model is kept."""
    return setting or files.path / FILE_NAME


def find_calibration(files: ModelFiles, setting: Path | None, window: str = "auto") -> Calibration:
    """The calibration to decode with: none for the window ``full``, else the file's, else what ships.

    Raises `ModelError` when a file is named and not there, cannot be read, or belongs to other weights.
    """
    if window == "full":
        return Calibration(source="HEARLINE_WINDOW=full")
    path = calibration_path(files, setting)
    if path.is_file():
        return read_calibration(path, files)
    if setting is not None:
        raise missing_calibration(setting)
    return SHIPPED.get(files.name, FULL)


def missing_calibration(setting: Path) -> ModelError:
    """What is wrong when the file that HEARLINE_CALIBRATION names is not there."""
    return ModelError(
        f"HEARLINE_CALIBRATION={str(setting)!r} is no file; write it with `hearline calibrate --speech DIR`, or "
        "unset it"
    )


def write_calibration(
    path: Path, files: ModelFiles, calibration: Calibration, measured: Mapping[str, Any] | None = None
) -> None:
    """Write what `read_calibration` reads, and what was measured beside it; raises OSError."""
    content = {
        "version": VERSION,
        "model": files.name,
        "weights_bytes": _weights_bytes(files),
        "partial": _as_json(calibration.partial),
        "final": _as_json(calibration.final),
        "measured": dict(measured or {}),
    }
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_calibration(path: Path, files: ModelFiles) -> Calibration:
    """The calibration in a file, for these weights. Raises `ModelError` naming the file and the fix."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']!r}, not {VERSION}")
        weights = int(content["weights_bytes"])
        found = Calibration(_sizing(content["partial"]), _sizing(content["final"]), str(path))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ModelError(
            f"{path} is no calibration ({type(error).__name__}: {error}); write it anew with "
            "`hearline calibrate --speech DIR`, or remove it"
        ) from error
    if weights != _weights_bytes(files):
        raise ModelError(
            f"{path} was measured with other weights than those in {files.path}; write it anew with "
            "`hearline calibrate --speech DIR`, or remove it"
        )
    return found


def _weights_bytes(files: ModelFiles) -> int:
    return (files.path / WEIGHTS).stat().st_size


def _as_json(sizing: Sizing | None) -> dict[str, float] | None:
    return asdict(sizing) if sizing else None


def _sizing(value: Any) -> Sizing | None:
    if value is None:
        return None
    padding_s, silence_s = float(value["padding_s"]), float(value["silence_s"])
    if not (0 <= padding_s <= MOST_PADDING_S and 0 <= silence_s <= MOST_SILENCE_S):
        raise ValueError(f"padding_s must be in [0, {MOST_PADDING_S}] and silence_s in [0, {MOST_SILENCE_S}]")
    return Sizing(padding_s, silence_s)
