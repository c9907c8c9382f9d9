"""Asking a web process whether it is ready, and waiting for it."""

from __future__ import annotations

import http.client
import json
import textwrap
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from queueing.clock import Clock

ASK_TIMEOUT_S = 2.0
ASK_EVERY_S = 0.2
REMIND_EVERY_S = 15.0

LONGEST_REASON = 200


class State(StrEnum):
    """How far a web process is."""

    AWAY = "away"
    """Nothing answers."""
    WAITING = "waiting"
    """It answers, but says that it is not ready."""
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Answer:
    """``reason`` says what is missing; empty when ready."""

    state: State
    reason: str = ""


def ask(url: str, path: str = "/ready", timeout_s: float = ASK_TIMEOUT_S) -> Answer:
    """One GET of ``url`` + ``path`` (no proxy, no redirect): 200 is ready, any other answer is waiting."""
    try:
        status, body = _get(url, path, timeout_s)
    except (OSError, http.client.HTTPException) as error:
        return Answer(State.AWAY, f"the web server does not answer at {url} ({type(error).__name__})")
    if status == 200:
        return Answer(State.READY)
    return Answer(State.WAITING, _reason(body) or f"{path} answers {status}")


def is_hearline(url: str, timeout_s: float = ASK_TIMEOUT_S) -> bool:
    """Whether what answers at ``url`` is a web process of this project, by its ``/health``, ready or not."""
    try:
        status, body = _get(url, "/health", timeout_s)
    except (OSError, http.client.HTTPException):
        return False
    fields = _fields(body)
    return status == 200 and fields.get("status") == "alive" and isinstance(fields.get("draining"), bool)


def _get(url: str, path: str, timeout_s: float) -> tuple[int, bytes]:
    """Status and body (its first 64 KiB). Raises OSError or HTTPException where nothing sensible answers."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "127.0.0.1", address.port or 80, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read(65_536)
    finally:
        connection.close()


def _fields(body: bytes) -> dict[str, Any]:
    """The JSON object that the body is; empty for anything else."""
    try:
        fields = json.loads(body)
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _reason(body: bytes) -> str:
    """What the JSON body says is missing: its ``reason``, or whatever text it has for one."""
    fields = _fields(body)
    for key in ("reason", "message", "detail", "error"):
        if isinstance(fields.get(key), str):
            return textwrap.shorten(str(fields[key]), LONGEST_REASON, placeholder=" ...")
    return ""


def local_url(host: str, port: int) -> str:
    """The URL at which this machine reaches a server that listens on ``host`` (a wildcard is asked on loopback)."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class ReadyWatch:
    """A thread that asks until every URL is ready (or only answers, with ``path="/health"``).

    ``on_ready(seconds)`` is called once; ``on_waiting(reason)`` every `REMIND_EVERY_S` until then.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        path: str,
        clock: Clock,
        on_ready: Callable[[float], None],
        on_waiting: Callable[[str], None],
    ) -> None:
        self._urls = tuple(urls)
        self._path = path
        self._clock = clock
        self._on_ready = on_ready
        self._on_waiting = on_waiting
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ready-watch", daemon=True)

    def start(self) -> None:
        """Begin asking."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Idempotent; also before `start`."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(ASK_TIMEOUT_S * (len(self._urls) + 1))

    def _run(self) -> None:
        started_s = told_s = self._clock.monotonic()
        while not self._stop.is_set():
            reason = next((answer.reason for url in self._urls if (answer := ask(url, self._path)).reason), "")
            now = self._clock.monotonic()
            if not reason:
                self._on_ready(now - started_s)
                return
            if now - told_s >= REMIND_EVERY_S:
                told_s = now
                self._on_waiting(reason)
            self._stop.wait(ASK_EVERY_S)
