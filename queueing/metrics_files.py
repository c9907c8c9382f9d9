"""Room for the files through which a process shares its metrics, made sure of before prometheus-client maps them.

It maps files of holes: a page that a full disk cannot give when a number is first written there is SIGBUS, which ends
the process, and again each one that takes its place. Here every page is there before the first metric is made, and
more than a process ever fills, for a file that prometheus-client lets grow gets holes again. Where there is no room,
the process keeps its metrics to itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import structlog
from prometheus_client import values

COUNTERS_BYTES = 65_536
HISTOGRAMS_BYTES = 262_144
GAUGES_BYTES = 16_384
"""More than twice what a process fills that has seen every scheduling policy: 25 KB of histograms for each."""

log = structlog.get_logger()


def share_metrics(folder: str, gauges: Sequence[str]) -> bool:
    """Before the process's first metric: whether its metrics go to ``folder``; else they are in its memory alone.

    ``gauges`` are the multiprocess modes of its gauges. An empty ``folder`` means that nothing is to be shared; one in
    which the files cannot be had is told to the log.
    """
    if folder:
        try:
            _make_room(Path(folder), files_of(os.getpid(), gauges))
        except OSError as error:
            log.warning(
                "metrics_not_shared",
                folder=folder,
                needed_bytes=sum(files_of(0, gauges).values()),
                reason=error.strerror,
                advice="this process goes on, and its metrics are missing where others show them: free space there, or "
                "set PROMETHEUS_MULTIPROC_DIR (for `hearline up`: TMPDIR) to a folder with room, then restart",
            )
        else:
            return True
    values.ValueClass = values.MutexValue
    return False


def files_of(pid: int, gauges: Sequence[str]) -> dict[str, int]:
    """Names of the files that prometheus-client makes for a process, and how many bytes each gets."""
    return {
        f"counter_{pid}.db": COUNTERS_BYTES,
        f"histogram_{pid}.db": HISTOGRAMS_BYTES,
        **{f"gauge_{mode}_{pid}.db": GAUGES_BYTES for mode in gauges},
    }


def _make_room(folder: Path, files: dict[str, int]) -> None:
    """All of the files or none; those of an earlier process with this id keep what they hold."""
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    try:
        for name, size in files.items():
            file = folder / name
            if file.exists():
                _allocate(file, max(size, file.stat().st_size))
                continue
            # Under another name until it is whole: a scrape meanwhile cannot read an empty one.
            unready = file.with_suffix(".new")
            made.append(unready)
            _allocate(unready, size)
            unready.rename(file)
            made.append(file)
    except OSError:
        for file in made:
            with suppress(OSError):
                file.unlink(missing_ok=True)
        raise


def _allocate(file: Path, size: int) -> None:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if sys.platform == "darwin":  # which has no such call
            at = os.lseek(descriptor, 0, os.SEEK_END)
            os.write(descriptor, bytes(max(0, size - at)))
        else:
            os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)
