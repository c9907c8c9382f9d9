"""What this machine has, as far as the defaults of ``hearline up`` depend on it."""

from __future__ import annotations

from pathlib import Path

MOST_THREADS = 4
"""As in `workers.devices`: threads beyond this help one decode little."""

MOST_WORKERS = 4
"""More is a decision: each worker holds a model of its own in memory."""

GPU = Path("/dev/nvidia0")


def usual_workers(*, cpus: int, threads: int, device: str, gpu: bool) -> int:
    """Workers that keep the CPUs busy: as many as have room beside each other with ``threads`` each.

    ``threads``: HEARLINE_THREADS, where 0 stands for what a worker takes by itself; ``device``: HEARLINE_DEVICE. A GPU
    is shared badly, so there is one worker for it. On two CPUs, two workers of one thread decoded a third more than
    one, and finals beside ten streams came in a third of the time (`hearline doctor --tune`, docs/measurements.md).
    """
    if device == "cuda" or (device == "auto" and gpu):
        return 1
    each = threads or max(1, min(cpus - 1, MOST_THREADS))
    return max(1, min(cpus // each, MOST_WORKERS))
