"""Plain answers are made a few at a time.

Hundreds of threads that make answers, however small, share one interpreter with the streams, which then wait for their
turn: with 250 connections that asked for the page without end, finals came fifteen times later. What waits here costs
nothing, and what makes an answer does not wait for the client: it is sent when the turn is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any

AT_ONCE = 4

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]
"""A WSGI application."""


class Answering:
    """A WSGI application of which `AT_ONCE` answers are made at the same time. ``aside``: paths that do not count, for
    they may wait for something, and nobody shall wait for them."""

    def __init__(self, application: Application, *, aside: Collection[str]) -> None:
        self._application = application
        self._aside = frozenset(aside)
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ.get("PATH_INFO") in self._aside:
            return self._application(environ, start_response)
        with self._turns:
            return self._application(environ, start_response)
