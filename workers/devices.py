"""Which device, arithmetic and threads the model gets."""

from __future__ import annotations

import ctranslate2

from queueing.machine import usable_cpus
from workers.model_files import ModelError

MOST_THREADS = 4
"""Beyond four threads a single stream of small matrices gains little (CTranslate2's own default)."""


def choose_device(wanted: str) -> str:
    """``cpu`` or ``cuda``; raises `ModelError` when a GPU is asked for and none is there."""
    gpus = ctranslate2.get_cuda_device_count()
    if wanted == "cuda" and gpus == 0:
        raise ModelError("HEARLINE_DEVICE='cuda', but no CUDA device can be used; set it to cpu or auto")
    if wanted == "auto":
        return "cuda" if gpus else "cpu"
    return wanted


def choose_compute_type(wanted: str, device: str) -> str:
    """The arithmetic for a device; raises `ModelError` naming what it supports."""
    supported = ctranslate2.get_supported_compute_types(device)
    if wanted == "default":
        best = "int8" if device == "cpu" else "float16"
        return best if best in supported else "default"
    if wanted != "auto" and wanted not in supported:
        raise ModelError(
            f"HEARLINE_COMPUTE_TYPE={wanted!r} is not supported on this {device}; "
            f"use default, auto or one of {', '.join(sorted(supported))}"
        )
    return wanted


def choose_threads(wanted: int) -> int:
    """CPU threads of a decode; 0 stands for the CPUs this process may run on but one, at most `MOST_THREADS`.

    The threads of a decode wait for each other many times a second, so one that has to share its CPU holds up all:
    beside other busy processes two threads on two CPUs took twice as long as one. One CPU is left to the rest.
    """
    if wanted:
        return wanted
    return max(1, min(usable_cpus() - 1, MOST_THREADS))
