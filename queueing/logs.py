"""Structured log lines on standard error: one event a line, never any transcript or audio."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from typing import TextIO, cast

import structlog

_KEY = re.compile(r"\bhl_[a-z2-7]{16,}", re.IGNORECASE)
_KEY_IN_QUERY = re.compile(r"(api_key(?:=|%3d))[^\s&#\"'\\]+", re.IGNORECASE)
_PASSWORD = re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+@")


def without_secrets(text: str) -> str:
    """The text with API keys, and passwords of URLs, left out. Nothing here logs them on purpose; but libraries
    quote the requests and addresses that they could not make sense of."""
    lower = text.lower()
    if "api_key" in lower:
        text = _KEY_IN_QUERY.sub(r"\1(left out)", text)
    if "hl_" in lower:
        text = _KEY.sub("hl_(left out)", text)
    return _PASSWORD.sub(r"\1(left out)@", text) if "://" in text else text


class _Sink:
    """Standard error, which may be a pipe whose reader died: then there is nobody left to tell, and a program
    that is ending must not stumble over its last words."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(BrokenPipeError):
            self._stream.write(without_secrets(text))
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._stream.flush()


def configure_logs(level: str, log_format: str, *, program: str) -> None:
    """Send structlog and the standard library's loggers to standard error.

    ``level`` is debug, info, warning or error; ``log_format`` is json or console. Called once, by a
    composition root.
    """
    sink = cast(TextIO, _Sink(sys.stderr))
    number = getattr(logging, level.upper())
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if log_format == "console"
        else structlog.processors.JSONRenderer()
    )

    def name_program(_logger: object, _method: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
        # A processor and not a context variable: threads do not inherit those.
        return {"program": program, **event}

    structlog.configure(
        processors=[
            name_program,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        # One write a line: several processes share the pipe, and a line of one must not begin within that of another.
        logger_factory=structlog.WriteLoggerFactory(file=sink),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=max(number, logging.WARNING), stream=sink, format="%(name)s: %(message)s", force=True)
