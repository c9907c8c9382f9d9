"""Addresses, timeouts, and the opening handshake: what both clients (threads and asyncio) share."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect

from loadgen.connect_errors import connect_error
from loadgen.errors import ClientError, NoAnswer, ServerFailed
from sessions.wire import Error, ErrorCode

DEFAULT_URL = "ws://127.0.0.1:8000/v1/stream"
STREAM_PATH = "/v1/stream"
MAX_MESSAGE_BYTES = 2**22
MAX_DISCARDED = 1_000
LIBRARY_LOG = logging.getLogger("hearline.client.websockets")
LIBRARY_LOG.addHandler(logging.NullHandler())  # what the library reports of a dead connection, the client says itself
RESUMABLE_PING_S = 10.0
RESUMABLE_PONG_S = 20.0
"""A loss that nobody is told of (a cable, a NAT entry) is noticed after their sum: within the usual grace time."""

GOING_AWAY = 1001
LEAVE_S = 0.5
"""How long a client that leaves waits for the server's close frame: its own is on its way, and a person waits."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds; each ends in `CannotConnect` or `NoAnswer`."""

    connect_s: float = 10.0
    ready_s: float = 15.0
    """From the start message to `ready`."""
    send_s: float = 60.0
    """Longest time that the server may take no audio at all."""
    answer_s: float = 90.0
    """Longest silence after `end` (the service itself gives up a final earlier, and says so)."""
    close_s: float = 5.0
    keepalive_s: float = 10.0
    """A source that is silent for this long gets a keepalive sent in its place."""


def stream_url(text: str) -> str:
    """A full WebSocket URL from what a person types: ``host:port`` and http(s) URLs are completed.

    Raises ValueError for what cannot be one.
    """
    url = text.strip()
    for http, ws in (("http://", "ws://"), ("https://", "wss://")):
        url = ws + url.removeprefix(http) if url.startswith(http) else url
    url = url if "://" in url else f"ws://{url}"
    parts = urlsplit(url)
    if parts.scheme not in {"ws", "wss"} or not parts.hostname:
        raise ValueError(f"{text!r} is not a WebSocket URL; an example is {DEFAULT_URL}")
    _port = parts.port  # raises ValueError for a port out of range
    return url if parts.path.strip("/") else url.rstrip("/") + STREAM_PATH


def stream_urls(text: str) -> list[str]:
    """The URLs of a comma-separated list, each as `stream_url` has it: front ends of one service. Raises ValueError."""
    urls = [stream_url(part) for part in text.split(",") if part.strip()]
    if not urls:
        raise ValueError(f"{text!r} names no URL; an example is {DEFAULT_URL}")
    return urls


def find_urls(given: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Where the service is: as ``given``, else ``HEARLINE_URL``, a running ``hearline up``, `DEFAULT_URL`.

    Raises ValueError for what is no URL.
    """
    if given:
        return [url for text in given for url in stream_urls(text)]
    if named := environment.get("HEARLINE_URL"):
        return stream_urls(named)
    return [_running(environment) or DEFAULT_URL]


def _running(environment: Mapping[str, str]) -> str | None:
    """The URL that ``hearline up`` leaves in its state folder; None without one, or when its process is gone."""
    if own := environment.get("HEARLINE_STATE_DIR"):
        folder = Path(own)
    elif state := environment.get("XDG_STATE_HOME"):
        folder = Path(state) / "hearline"
    else:
        folder = Path(environment.get("HOME", "/nonexistent")) / ".local" / "state" / "hearline"
    try:
        fields = json.loads((folder / "up.json").read_text(encoding="utf-8"))
        return stream_url(fields["url"]) if psutil.pid_exists(fields["pid"]) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # no such file, or not one that this version knows


def connection_options(url: str, timeouts: Timeouts, api_key: str | None = None) -> dict[str, Any]:
    """What both of `websockets`' clients, threaded and asyncio, are told of a connection."""
    return {
        "additional_headers": {"Authorization": f"Bearer {api_key}"} if api_key else None,
        "compression": None,
        "logger": LIBRARY_LOG,
        "proxy": None if is_local(url) else True,
        "open_timeout": timeouts.connect_s,
        "close_timeout": timeouts.close_s,
        # A pong may wait behind audio that the server has not read yet, so it gets as long as a send.
        "ping_interval": 20,
        "ping_timeout": timeouts.send_s,
        "max_size": MAX_MESSAGE_BYTES,
    }


def address(url: str, *, back: bool) -> str:
    """What to connect to; ``back``: one that comes back is let in where no new stream would be."""
    parts = urlsplit(url)
    return parts._replace(query="&".join(filter(None, [parts.query, "resume=1"]))).geturl() if back else url


@contextmanager
def open_connection(
    url: str, timeouts: Timeouts, api_key: str | None = None, *, back: bool = False
) -> Iterator[ClientConnection]:
    """A connection for the length of a ``with``; ``back``: to go on with a stream. Raises `CannotConnect` or `Refused`
    where there is none."""
    with ExitStack() as stack:
        try:
            options = connection_options(url, timeouts, api_key)
            connection = stack.enter_context(connect(address(url, back=back), **options))
        except (WebSocketException, OSError) as error:
            raise connect_error(url, error) from error
        yield connection


def watch_closely(connection: ClientConnection | AsyncConnection) -> None:
    """Notice a dead peer while its stream still waits: from now on (both are read before each ping)."""
    connection.ping_interval, connection.ping_timeout = RESUMABLE_PING_S, RESUMABLE_PONG_S


def abandon(connection: ClientConnection) -> None:
    """End a connection whose stream goes on elsewhere: without a close frame, which would end the stream as well.

    It also frees a send that is stuck. What still arrives is not needed: whoever resumes gets it anew.
    """
    with suppress(OSError):
        connection.socket.shutdown(socket.SHUT_RDWR)
    with suppress(ConnectionClosed, TimeoutError):
        for _ in range(MAX_DISCARDED):  # until the reading thread has seen the end; it must not be cut short
            connection.recv(timeout=0.5)
    connection.close()


async def leave(connection: AsyncConnection) -> None:
    """End a connection whose stream nobody will resume, and say so: the server then holds nothing for it.

    Takes at most `LEAVE_S`, also where the server takes nothing.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await connection.close(GOING_AWAY)
    connection.transport.abort()


def stream_failure(fatal: Error | None, closed: ConnectionClosed | None, timeouts: Timeouts) -> ClientError:
    """What it means that a stream ended before `done`: the server's fatal message, else how it closed. (The reason of a
    close repeats the code: a message right before it is lost where the server has no time to hear the answer.)"""
    received = closed.rcvd if closed is not None else None
    code = received.code if received is not None else None
    if fatal is not None:
        return ServerFailed(fatal.code, fatal.message, code, fatal.retry_after_s)
    if closed is not None and received is None and closed.sent is not None and "ping" in closed.sent.reason:
        return NoAnswer("a pong", timeouts.send_s)
    reason = received.reason if received is not None else ""
    told = reason if reason in set(ErrorCode) else ""
    return ServerFailed(told, reason or "the server closed the stream before it was done", code)


def is_local(url: str) -> bool:
    """Whether the URL's host is this machine: proxies of the environment do not apply then."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
