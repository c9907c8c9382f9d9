"""Between a client and a server: forwards bytes, and breaks every connection when told to, as a network does."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class ResetProxy:
    """Use as a context manager. ``reset`` breaks both sides of each connection."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream = upstream_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self.connections = 0

    @property
    def stream_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/stream"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()

    def reset(self) -> None:
        """Break what is connected now."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for side in (side for pair in pairs for side in pair):
            with suppress(OSError):
                side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                side.shutdown(socket.SHUT_RD)  # its pump ends, and with the last use of the socket the RST goes out
            side.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:
                client.close()
                continue
            with self._lock:
                self.connections += 1
                self._pairs.append((client, server))
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(source, target), name="pump", daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
