"""TCP ports of this machine: whether one can be listened on, and who does."""

from __future__ import annotations

import socket
from contextlib import suppress

import psutil

LAST_PORT = 65_535
"""The highest there is: the system takes a higher number for another port, without a word."""


def try_port(host: str, port: int) -> None:
    """Listen on the port and let go again, as a server would.

    ``port`` is at most `LAST_PORT`. Raises `socket.gaierror` when ``host`` is no address, else OSError when the port
    cannot be used.
    """
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, number) as probe:
        # As gunicorn does: connections of an earlier server in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def holder(port: int) -> str:
    """``process 4711 (nginx)`` for who listens on the port; empty when that cannot be seen."""
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
                if connection.pid is None:
                    return ""
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    return ""
