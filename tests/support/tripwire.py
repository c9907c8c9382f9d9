"""A proxy before Redis that acts when a certain script passes: what happens exactly there, a test can choose."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Tripwire:
    """Use as a context manager; ``url`` is where the proxy listens.

    The first command that names ``digest`` (a script's SHA-1) is held before it reaches Redis, or, with ``reply``, the
    first answer to one that holds these bytes. Then ``act`` is called; afterwards the connection is cut, or goes on as
    if nothing had been where ``go_on`` is set. ``armed``: nothing is held before this is set.
    """

    def __init__(
        self, redis_url: str, digest: str, act: Callable[[], object], *, reply: bytes | None = None, go_on: bool = False
    ) -> None:
        address = urlsplit(redis_url)
        self._redis = (address.hostname or "127.0.0.1", address.port or 6379)
        self._digest = digest.encode()
        self._act = act
        self._reply = reply
        self._go_on = go_on
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.armed = threading.Event()
        self.armed.set()
        self.tripped = threading.Event()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        with suppress(OSError), socket.create_connection(self._listener.getsockname()):
            pass  # wakes the thread that accepts
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stop.is_set():
            client, _ = self._listener.accept()
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with ExitStack() as stack:
            stack.enter_context(client)
            with suppress(OSError):
                server = stack.enter_context(socket.create_connection(self._redis))
                self._pump(client, server)

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        named = False
        while not self._stop.is_set():
            readable, _, _ = select.select([client, server], [], [], 0.2)
            for source in readable:
                data = source.recv(65_536)
                if not data:
                    return
                if source is client:
                    named = self._digest in data
                    held = named and self._reply is None
                else:
                    held = named and self._reply is not None and self._reply in data
                if held and self._trips() and not self._go_on:
                    return
                (server if source is client else client).sendall(data)

    def _trips(self) -> bool:
        with self._lock:
            if self.tripped.is_set() or not self.armed.is_set():
                return False
            self._act()
            self.tripped.set()
            return True
