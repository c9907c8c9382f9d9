"""Where a benchmark ran: without it a figure cannot be compared with another."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from queueing.machine import processor, usable_cpus

PACKAGES = ("hearline", "faster-whisper", "ctranslate2", "numpy", "onnxruntime", "earshot")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory, versions, and how busy the machine was with other things."""
    return {
        "processor": processor(),
        "cores": usable_cpus(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
