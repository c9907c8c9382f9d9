"""The network between two parties of a run: a TCP proxy that can break every connection through it.

A proxy forwards bytes and knows one thing about them: a request to Redis that runs a script (EVALSHA), so that a
reply can be cut off after Redis has executed.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

CHUNK = 65_536
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends RST."""


class Pair:
    """A connection through the proxy: two sockets and what is done to them."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.client = client
        self.server = server
        self.flows = asyncio.Event()
        self.flows.set()
        self.frozen = False
        self.reply_is_cut = False

    def reset(self) -> None:
        """RST to both sides."""
        for writer in (self.client, self.server):
            _reset(writer)

    def half_open(self, *, client_knows: bool) -> None:
        """The server hears nothing any more, not even an end; its client learns of it at once, or does not either."""
        self.frozen = True
        self.flows.clear()
        if client_knows:
            _reset(self.client)


class Proxy:
    """Listens on a free port and forwards to ``port`` on this machine. All of it runs in one event loop."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = 0
        self._upstream = port
        self._server: asyncio.Server | None = None
        self._pairs: list[Pair] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._delay_s = 0.0
        self._cuts = 0
        self.cut = 0
        """Replies cut off so far."""

    async def start(self) -> None:
        """Listen; then `port` is known."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=CHUNK)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for pair in self._pairs:
            pair.reset()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def pairs(self) -> list[Pair]:
        """Connections that stand, oldest first, those that are only half there left out."""
        return [pair for pair in self._pairs if not pair.frozen]

    def silence(self, on: bool) -> None:
        """Nothing gets through, nothing is lost: all bytes wait until the silence is over."""
        if on:
            self._open.clear()
        else:
            self._open.set()

    def delay(self, seconds: float) -> None:
        """Replies take so much longer; 0 for no longer."""
        self._delay_s = seconds

    def cut_replies(self, count: int) -> None:
        """The next ``count`` replies to scripts are lost with their connections, after Redis has executed."""
        self._cuts = count

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._upstream, limit=CHUNK)
        except OSError:
            _reset(writer)
            return
        pair = Pair(writer, server_writer)
        self._pairs.append(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, server_writer, pair, self._request))
                group.create_task(self._pump(server_reader, writer, pair, self._reply))
        except* (OSError, _Broken):
            pair.reset()
        finally:
            self._pairs.remove(pair)
            writer.close()
            server_writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pair: Pair,
        look: Callable[[Pair, bytes], float],
    ) -> None:
        while data := await reader.read(CHUNK):
            wait_s = look(pair, data)
            if wait_s:
                await asyncio.sleep(wait_s)
            await self._open.wait()
            await pair.flows.wait()
            writer.write(data)
            await writer.drain()
        await pair.flows.wait()
        if writer.can_write_eof():
            writer.write_eof()

    def _request(self, pair: Pair, data: bytes) -> float:
        if self._cuts and b"EVALSHA" in data:
            self._cuts -= 1
            pair.reply_is_cut = True
        return 0.0

    def _reply(self, pair: Pair, _data: bytes) -> float:
        if pair.reply_is_cut:
            self.cut += 1
            raise _Broken
        return self._delay_s


class _Broken(Exception):
    """This connection ends here, by plan."""


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.fileno() >= 0:
        try:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        except OSError:
            return  # it has ended already
    writer.transport.abort()
