"""One line of progress: redrawn in place on a terminal, printed when it changes elsewhere."""

from __future__ import annotations

import shutil
from typing import TextIO

CLEAR_LINE = "\r\x1b[2K"


class ProgressLine:
    """What is being waited for and since when."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._redraws = stream.isatty()
        self._shown = ""

    def show(self, what: str, elapsed_s: float) -> None:
        """Show ``what`` with the seconds so far."""
        if self._redraws:
            # One column stays free: a full line would wrap, and could not be redrawn in place.
            line = _fit(f"{elapsed_s:5.1f} s  {what}", shutil.get_terminal_size().columns - 1)
            self._stream.write(f"{CLEAR_LINE}{line}")
            self._stream.flush()
        elif what != self._shown:
            self._stream.write(f"{elapsed_s:5.1f} s  {what}\n")
            self._stream.flush()
        self._shown = what

    def done(self, text: str) -> None:
        """Replace the line by a last word."""
        self._stream.write(f"{CLEAR_LINE if self._redraws else ''}{text}\n")
        self._stream.flush()
        self._shown = ""


def _fit(line: str, columns: int) -> str:
    """As many whole words of the line as fit, behind an ellipsis when some do not."""
    if len(line) <= columns:
        return line
    words = line[: max(0, columns - 1)].rpartition(" ")[0] if line[columns - 1] != " " else line[: columns - 1]
    return f"{words.rstrip()} …"[: max(0, columns)]
