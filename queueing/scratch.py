"""A temporary folder for a process and those that it starts; what a killed one left is removed by the next.

The folder is locked (flock) through a descriptor which child processes inherit. The kernel gives the lock up when the
last of them has ended, however it ended, so a folder without a lock is nobody's.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder, and the descriptor by which children that outlive this process keep it."""

    path: str
    descriptor: int


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Scratch]:
    """A new folder in the place for temporary files, gone at the end; those of this prefix that are nobody's go first.

    Raises OSError where no folder can be made.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            _remove_if_nobodys(left)
    scratch = _make(prefix)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch.path, ignore_errors=True)
        os.close(scratch.descriptor)


def _make(prefix: str) -> Scratch:
    while True:
        path = tempfile.mkdtemp(prefix=prefix)
        with suppress(FileNotFoundError):
            descriptor = _open(path)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Another process may have found it before it was locked, and removed it.
            if os.path.isdir(path):
                return Scratch(path, descriptor)
            os.close(descriptor)


def _remove_if_nobodys(path: Path) -> None:
    descriptor = _open(path)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
    finally:
        os.close(descriptor)


def _open(path: str | Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
