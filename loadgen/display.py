"""What a person or a program sees of a stream: a live line that redraws, plain lines, or JSON.

    terminal     the segment being spoken on one line that is redrawn in place: stable words as they are, the rest
                 dimmed; a final takes its place for good
    no terminal  one line per message that says something: ``~`` for partials, ``|`` behind their stable words; times
                 for finals
    JSON         one object per server message, as it came and with `ARRIVAL` beside its own fields (and one of type
                 ``connection_lost`` for each loss), a summary at the end

Thread-safe: warnings come from the thread that reads the audio.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, Protocol, TextIO

from rich.cells import cell_len

from loadgen.errors import ClientError
from sessions.wire import Error, Final, Partial, Ready, ServerMessage

CLEAR = "\r\x1b[K"
DIM, SOLID = "\x1b[2m", "\x1b[22m"

ARRIVAL = "at_s"
"""The one key that JSON lines add: when it arrived, by the client's clock, since the stream began. No message of the
protocol has a field of that name, so none is written over."""


class Display(Protocol):
    """Where a stream's messages go."""

    def message(self, at_s: float, message: ServerMessage) -> None:
        """A message of the server, ``at_s`` seconds after the start of the audio."""

    def lost(self, at_s: float, failure: ClientError) -> None:
        """The connection was lost, and the client tries to come back."""

    def note(self, text: str) -> None:
        """A warning or a hint, one sentence."""

    def summary(self, line: str, fields: dict[str, Any]) -> None:
        """The end: as a sentence and as fields."""


class JsonDisplay:
    """Messages and the summary as JSON objects, one a line; notes go to ``errors``."""

    def __init__(self, out: TextIO, errors: TextIO) -> None:
        self._out = out
        self._errors = errors
        self._lock = threading.Lock()

    def message(self, at_s: float, message: ServerMessage) -> None:
        self._write({**message.model_dump(exclude_none=True), ARRIVAL: round(at_s, 3)})

    def lost(self, at_s: float, failure: ClientError) -> None:
        self._write({"type": "connection_lost", "reason": str(failure), ARRIVAL: round(at_s, 3)})

    def note(self, text: str) -> None:
        with self._lock:
            print(text, file=self._errors, flush=True)

    def summary(self, line: str, fields: dict[str, Any]) -> None:
        self._write({"type": "summary", **fields})
        if fields["exit_status"]:
            self.note(line)

    def _write(self, fields: dict[str, Any]) -> None:
        with self._lock:
            self._out.write(json.dumps(fields, ensure_ascii=False) + "\n")
            self._out.flush()


class TextDisplay:
    """For people. ``columns``: the terminal's width now, or None when ``out`` is no terminal."""

    def __init__(self, out: TextIO, errors: TextIO, columns: Callable[[], int] | None) -> None:
        self._out = out
        self._errors = errors
        self._columns = columns
        self._live = False
        self._spoken: Partial | None = None
        self._said = False
        self._lock = threading.Lock()

    def message(self, at_s: float, message: ServerMessage) -> None:  # noqa: ARG002  # people see times of audio
        match message:
            case Ready(resumed=True):
                self.note("connected again; the stream goes on")
            case Partial():
                self._spoken = message
                self._partial(message)
            case Final():
                self._final(message)
            case Error(fatal=False):  # a fatal one ends the stream and is in its summary
                self.note(f"note from the service ({printable(message.code)}): {printable(message.message)}")
            case _:
                pass

    def lost(self, at_s: float, failure: ClientError) -> None:  # noqa: ARG002
        self.note(f"reconnecting: {printable(str(failure))}")

    def note(self, text: str) -> None:
        with self._lock:
            self._clear()
            print(text, file=self._errors, flush=True)

    def summary(self, line: str, fields: dict[str, Any]) -> None:  # noqa: ARG002  # the line says it all
        self.note(line)

    def _final(self, final: Final) -> None:
        text = printable(final.text)
        if text or (final.last and not self._said):
            start_s = final.start_s if final.speech_start_s is None else final.speech_start_s
            end_s = final.end_s if final.speech_end_s is None else final.speech_end_s
            self._line(f"[{clock_time(start_s)} - {clock_time(end_s)}] {text or '(nothing said)'}")
            self._said = True
        if final.words:
            self._line("    " + " ".join(f"{printable(word.text)}@{word.start_s:.2f}" for word in final.words))
        spoken = self._spoken
        if spoken is None or spoken.end_s <= final.end_s:
            with self._lock:
                self._clear()
            self._spoken = None
        elif self._columns is not None:  # the next segment is being spoken already
            self._partial(spoken)

    def _partial(self, partial: Partial) -> None:
        stable, text = printable(partial.stable), printable(partial.text)
        if self._columns is None:
            if text:
                self._line(f"~ {stable} |{text.removeprefix(stable)}" if stable else f"~ {text}")
            return
        # One column stays free: a full line would wrap, and could not be redrawn in place.
        line = tail(f"{clock_time(partial.end_s)} {text}", self._columns() - 1)
        tentative = min(len(text.removeprefix(stable)), len(line))
        solid, dim = line[: len(line) - tentative], line[len(line) - tentative :]
        with self._lock:
            self._out.write(f"{CLEAR}{solid}{DIM}{dim}{SOLID}" if dim else CLEAR + solid)
            self._out.flush()
            self._live = True

    def _line(self, text: str) -> None:
        with self._lock:
            self._clear()
            self._out.write(text + "\n")
            self._out.flush()

    def _clear(self) -> None:
        if self._live:
            self._out.write(CLEAR)
            self._out.flush()
            self._live = False


def tail(text: str, cells: int) -> str:
    """The end of ``text`` that fits ``cells`` terminal columns, behind an ellipsis when something is cut.

    Wide characters (CJK) take two columns.
    """
    if cell_len(text) <= cells:
        return text
    kept = ""
    for char in reversed(text):
        if cell_len(char) + cell_len(kept) > cells - 1:
            break
        kept = char + kept
    return "…" + kept if cells > 0 else ""


def printable(text: str) -> str:
    """``text`` on one line without control characters: what a service says must not steer the terminal."""
    return "".join(char if char.isprintable() else " " for char in text).strip()


def clock_time(seconds: float) -> str:
    """Minutes and seconds, ``m:ss.t``."""
    tenths = round(seconds * 10)
    return f"{tenths // 600}:{tenths % 600 / 10:04.1f}"
