"""The log of a demonstration: a file that no other demonstration writes at the same time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path


@contextmanager
def own_log(folder: Path) -> Iterator[Path]:
    """An empty file for the length of a ``with``: ``demo.log``, or the first of ``demo-2.log``, ``demo-3.log``, ...
    whose demonstration is over. It is left behind, to be read, and used again by a later one.

    Raises OSError where the folder cannot be written.
    """
    for number in count(1):
        path = folder / ("demo.log" if number == 1 else f"demo-{number}.log")
        with path.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            path.chmod(0o600)
            file.truncate(0)
            yield path
            return
