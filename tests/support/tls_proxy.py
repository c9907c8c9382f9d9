"""TLS in front of a plain Redis, for servers that were built without it."""

from __future__ import annotations

import asyncio
import ssl
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

CERTIFICATES = Path(__file__).resolve().parents[1] / "data" / "tls"


class TlsProxy:
    """Asks for a client certificate, and passes bytes on to 127.0.0.1:``port``. Use as a context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(CERTIFICATES / "server.pem")
        self._context.load_verify_locations(CERTIFICATES / "ca.pem")
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.port = 0
        self.connections = 0

    def url(self, user: str = "", *, ca: str = "ca.pem", certificate: bool = True, host: str = "localhost") -> str:
        """A ``rediss://`` URL through this proxy; ``user`` is NAME:PASSWORD."""
        own = CERTIFICATES / "client.pem"
        shown = f"&ssl_certfile={own}&ssl_keyfile={own}" if certificate else ""
        return f"rediss://{user}{'@' if user else ''}{host}:{self.port}/0?ssl_ca_certs={CERTIFICATES / ca}{shown}"

    def __enter__(self) -> Self:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            # At the end of the test this task is cancelled, which asyncio's server would report.
            with suppress(asyncio.CancelledError):
                await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
        finally:
            for end in (writer, back):
                end.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.transport.abort()  # TLS knows no half-closed connection
    except OSError:
        writer.transport.abort()
