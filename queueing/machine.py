"""What this machine has: for defaults that depend on it, and for reports of benchmarks."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def usable_cpus() -> int:
    """CPUs this process may run on, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The processor's model name, as far as the system tells."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
