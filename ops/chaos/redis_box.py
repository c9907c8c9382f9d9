"""The Redis of a run: persistent (append-only file), with ways to hurt it."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis

from ops.redis_server import RedisServer
from queueing.connect import connect

ADMIN_S = 15.0
"""An operator's command is tried for so long: Redis may be away when it is due."""


class RedisBox:
    """One server on one port for the whole run. Its own faults come one after the other (`lock`)."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        # Tethered: it starts with SIGXFSZ ignored (as Python sets it): a limit on its files is a full disk to it.
        self._server = RedisServer(data_dir=folder, environment=environment, tethered=True)
        self.lock = asyncio.Lock()
        self.client: redis.Redis

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def alive(self) -> bool:
        return self._server.ended() is None

    def start(self) -> None:
        """First start. Blocks."""
        self._server.start()
        self.client = connect(self._server.url, max_connections=4, client_name="chaos")

    def stop(self) -> None:
        """Last stop. Blocks."""
        self.client.close()
        self._server.stop()

    async def restart(self, away_s: float, *, orderly: bool = False, forgetful: bool = False) -> None:
        """End it (SIGTERM when ``orderly``, else SIGKILL), lose its data when ``forgetful``, start it again."""
        async with self.lock:
            await asyncio.to_thread(self._server.stop if orderly else self._server.kill)
            if forgetful:
                for file in (*self._folder.glob("*.aof"), *self._folder.glob("*.rdb")):
                    file.unlink()
            await asyncio.sleep(away_s)
            await asyncio.to_thread(self._server.start)

    async def freeze(self, seconds: float) -> None:
        """SIGSTOP, later SIGCONT."""
        async with self.lock:
            os.kill(self._server.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(seconds)
            finally:
                os.kill(self._server.pid, signal.SIGCONT)

    async def fill_disk(self, seconds: float) -> None:
        """The append-only file cannot grow for so long: Redis refuses writes, as with a full disk."""
        async with self.lock:
            files = [file.stat().st_size for file in self._folder.rglob("*.aof")]
            self._limit_files(max(files, default=0))
            try:
                await asyncio.sleep(seconds)
            finally:
                self._limit_files(resource.RLIM_INFINITY)

    def _limit_files(self, size: int) -> None:
        _, hard = resource.prlimit(self._server.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self._server.pid, resource.RLIMIT_FSIZE, (size, hard))

    async def limit_memory(self, seconds: float, spare: int) -> None:
        """``maxmemory`` is ``spare`` bytes above what is used now, for so long."""
        async with self.lock:
            info: dict[str, Any] = await self.ask(lambda: self.client.info("memory"))
            await self.ask(lambda: self.client.config_set("maxmemory", int(info["used_memory"]) + spare))
            try:
                await asyncio.sleep(seconds)
            finally:
                await self.ask(lambda: self.client.config_set("maxmemory", 0))

    async def ask(self, command: Callable[[], Any]) -> Any:
        """An operator's command, tried until Redis takes it."""
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + ADMIN_S
        while True:
            try:
                return await asyncio.to_thread(command)
            except redis.RedisError:
                if loop.time() > give_up_s:
                    raise
                await asyncio.sleep(0.1)

    def kill_clients(self, kind: str) -> None:
        """CLIENT KILL TYPE ``normal`` or ``pubsub``; nothing while Redis is away."""
        with suppress(redis.RedisError):
            self.client.client_kill_filter(_type=kind, skipme=True)
