"""Wall clocks that can be set: a small library, compiled when a run begins, between a process and its clock."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).with_name("clock_step.c")
COMPILE_S = 60.0


class Clocks:
    """One clock for each group of processes; without a C compiler there are none (`available` is false)."""

    def __init__(self, folder: Path, groups: tuple[str, ...]) -> None:
        self._library = _compile(folder)
        self._files = {group: folder / f"clock-{group}" for group in groups}
        for group in groups:
            self.step(group, 0.0)

    @property
    def available(self) -> bool:
        return self._library is not None

    def environment(self, group: str) -> Mapping[str, str]:
        """What a process of the group needs in its environment."""
        if self._library is None:
            return {}
        return {"LD_PRELOAD": str(self._library), "HEARLINE_CLOCK_FILE": str(self._files[group])}

    def step(self, group: str, seconds: float) -> None:
        """From now on the group's wall clocks are ``seconds`` off."""
        file = self._files[group]
        with file.open("r+b" if file.exists() else "w+b") as out:  # in place: it is mapped
            out.write(struct.pack("<q", round(seconds * 1e6)))


def _compile(folder: Path) -> Path | None:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or compiler is None:
        return None
    library = folder / "clock_step.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    made = subprocess.run(command, capture_output=True, check=False, timeout=COMPILE_S)
    return library if made.returncode == 0 else None
