"""Standard output that cannot be written, told from every other failure of a file: one line and an exit status.

A full disk behind ``> captions.txt`` shows up in any command, in the middle of whatever it does. Errors of standard
output are therefore marked where they arise, in its lowest layer. A reader that has seen enough (``| head -1``) is no
error: that ends a command as it always does, without a word.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO, TypeGuard

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

EXIT_STATUS = 74
"""EX_IOERR of sysexits.h: none of a command's own statuses, so that it means this alone."""


class CannotPrint(OSError):
    """Standard output cannot be written; ``errno`` and ``strerror`` say why."""


class _Marked(io.FileIO):
    """A file whose failures are `CannotPrint`, but for a pipe that nobody reads any more."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CannotPrint(error.errno, error.strerror) from None


@contextmanager
def printing() -> Iterator[None]:
    """For the whole of a command: ends the process with one line and `EXIT_STATUS` when its output cannot be written.

    What a command has printed is written out before its end, so that success means that it has arrived.
    """
    given = sys.stdout
    marked = _marked(given if _is_open(given) else _closed())
    if marked is None:  # a test's
        yield
        return
    sys.stdout = marked
    ending: SystemExit | None = None
    failure: OSError | None = None
    try:
        yield
    except SystemExit as end:
        ending = end
    except CannotPrint as error:
        failure = error
    finally:
        sys.stdout = given
    if failure is None:
        try:
            marked.flush()
        except OSError as error:
            failure = error
    if failure is not None:
        silence(marked)
        if failure.errno == errno.EPIPE:
            raise ending or SystemExit(1)
        with suppress(OSError):
            click.echo(f"Error: standard output cannot be written: {failure.strerror}", err=True)
        raise SystemExit(EXIT_STATUS)
    if ending is not None:
        raise ending


def silence(stream: TextIO) -> None:
    """Point a broken stream at nothing, or Python complains about it once more at exit."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def _is_open(stream: TextIO | None) -> TypeGuard[TextIO]:
    """Python has None for a standard stream that was closed before it began, whatever its type says."""
    return stream is not None


def _closed() -> TextIO:
    """In place of a standard output that whoever started this has closed (`>&-`): open for reading only, so that a
    write fails as it would have. It takes the free number, too: else the next file that is opened, a socket say, had
    it, and what a child prints would go there."""
    while (descriptor := os.open(os.devnull, os.O_RDONLY)) < 1:  # 0: standard input is closed as well
        pass
    return open(descriptor, "w", encoding="utf-8", closefd=False)


def _marked(stream: TextIO | None) -> io.TextIOWrapper | None:
    """The same file with the same manners, its errors marked; None for what is no file."""
    if not isinstance(stream, io.TextIOWrapper):
        return None
    try:
        raw = _Marked(stream.fileno(), "wb", closefd=False)
    except OSError:
        return None
    unbuffered = isinstance(stream.buffer, io.RawIOBase)  # python -u
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
