"""Changes to the key file: one at a time, and readers see the file before or after, never half of it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sessions.api_keys import HEADER, KeyRecord, parse_keys, read_keys, records_by_line

OWNER_ONLY = 0o600


class NoSuchLabel(Exception):
    """No key has this label; ``known`` are those that are there."""

    def __init__(self, label: str, known: tuple[str, ...]) -> None:
        self.label = label
        self.known = known
        super().__init__(label)


def add(path: Path, record: KeyRecord) -> None:
    """Append a record; the file is made where there is none. Raises `BadKeyFile` (also for a label that is there
    already) and OSError."""

    def added(text: str) -> str:
        return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{record.line()}"

    with _locked(path):
        _rewrite(path, added, create=True)


def take_back(path: Path, record: KeyRecord, *, made: bool) -> None:
    """Undo `add`; with ``made`` the file goes, too, unless it has other keys by now. Raises `BadKeyFile`, OSError."""
    with _locked(path):
        line = record.line()
        text = path.read_text(encoding="utf-8")
        if line not in text:
            return  # somebody has revoked it meanwhile
        if made and text == f"{HEADER}{line}":
            path.unlink()
            return
        _rewrite(path, lambda text: text.replace(line, "", 1), create=False)


def revoke(path: Path, label: str) -> KeyRecord:
    """Remove the record of this label and return it. Raises `NoSuchLabel`, `BadKeyFile` and OSError."""
    with _locked(path):
        records = read_keys(path)
        gone = next((record for record in records if record.label == label), None)
        if gone is None:
            raise NoSuchLabel(label, tuple(record.label for record in records))

        def without(text: str) -> str:
            number = next(number for number, record in records_by_line(path, text) if record.label == label)
            lines = text.split("\n")
            del lines[number - 1]
            return "\n".join(lines) or HEADER

        _rewrite(path, without, create=False)
        return gone


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other commands from changing files of this folder meanwhile."""
    folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _rewrite(path: Path, change: Callable[[str], str], *, create: bool) -> None:
    target = path.resolve()  # a link stays one
    existing = target.exists()
    if existing or not create:
        read_keys(path)  # one that is wrong is not written again
        text = target.read_text(encoding="utf-8")
    else:
        text = HEADER
    changed = change(text)
    parse_keys(path, changed)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), OWNER_ONLY)
            if existing:
                owner = target.stat()
                with suppress(PermissionError):  # only root may; anybody else is the owner, or becomes it
                    os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(changed)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
