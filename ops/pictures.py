"""Whether a picture can be drawn: asked before the work whose figures it shows, for afterwards is too late."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from ops.errors import Missing, WrongUse

SUFFIXES = (".svg", ".png", ".pdf")


def check_picture(path: Path) -> None:
    """Raise `WrongUse` for a file that cannot be drawn into, `Missing` without matplotlib."""
    if path.suffix not in SUFFIXES or not path.parent.is_dir():
        raise WrongUse(f"--plot {path}: name a .svg, .png or .pdf file in a folder that is there")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise WrongUse(f"--plot {path}: it cannot be written; name a file elsewhere")
    if importlib.util.find_spec("matplotlib") is None:
        raise Missing("--plot needs matplotlib: pip install 'hearline[bench]', or leave --plot out")
