"""A whole service for one run: Redis, web processes, workers, and a proxy on every way between them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from ops.chaos.clocks import Clocks
from ops.chaos.faults import Stage
from ops.chaos.plan import WEBS, WORKERS
from ops.chaos.programs import Program, Programs
from ops.chaos.proxy import Proxy
from ops.chaos.redis_box import RedisBox
from ops.chaos.settings import Profile
from ops.errors import Failed
from ops.procfile import python_module
from ops.readiness import State, ask, local_url
from queueing.local_redis import free_port

READY_S = 120.0
MARK = "HEARLINE_CHAOS_MARK"
"""Every process of a run has this in its environment, with the run's folder as value."""


class Service:
    """Started with `start`, ended with `stop`; `stage` is what faults can reach."""

    def __init__(
        self, folder: Path, profile: Profile, environment: Mapping[str, str], *, model: str, now: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._profile = profile
        self._model = model
        self._now = now
        self._environment = {
            name: value
            for name, value in environment.items()
            if not name.startswith("HEARLINE_") and name not in ("REDIS_URL", "PROMETHEUS_MULTIPROC_DIR")
        } | {MARK: str(folder)}
        self.clocks = Clocks(folder, ("redis", *WEBS, *WORKERS))
        self.ended_alone: list[tuple[str, str]] = []
        self.programs = Programs(now, lambda name, text: self.ended_alone.append((name, text)))
        self.redis = RedisBox(folder / "redis", {**self._environment, **self.clocks.environment("redis")})
        self._links: dict[str, Proxy] = {}
        self._fronts: list[Proxy] = []
        self._ports: dict[str, int] = {}
        self._watcher: asyncio.Task[None] | None = None

    async def start(self, say: Callable[[str], None]) -> Stage:
        """Bring everything up. Raises `Failed` when it does not get ready."""
        await asyncio.to_thread(self.redis.start)
        for name in (*WEBS, *WORKERS):
            self._links[name] = Proxy(name, self.redis.port)
            await self._links[name].start()
        for name in WEBS:
            self._ports[name] = free_port()
            self._fronts.append(Proxy(name, self._ports[name]))
            await self._fronts[-1].start()
        for name in (*WEBS, *WORKERS):
            self.programs.add(self._program(name))
        self._watcher = asyncio.create_task(self.programs.watch())
        await self.await_ready(READY_S)
        return Stage(self.programs, self.redis, self._links, self._fronts, self.clocks, self._now, say)

    def _program(self, name: str) -> Program:
        web = name in WEBS
        environment = {
            **self._environment,
            **self._profile.environment,
            **self.clocks.environment(name),
            "REDIS_URL": f"redis://127.0.0.1:{self._links[name].port}/0",
        }
        if web:
            environment["HEARLINE_PORT"] = str(self._ports[name])
        elif self._model == "scripted":
            script = self._folder / "script.json"
            script.write_text(json.dumps(self._profile.script))
            environment |= {"HEARLINE_TRANSCRIBER": "scripted", "HEARLINE_SCRIPT": str(script)}
        else:
            environment["HEARLINE_THREADS"] = "1"
        command = python_module("api" if web else "workers")
        return Program(name, command, environment, self._folder / f"{name}.log")

    @property
    def urls(self) -> list[str]:
        """Where clients connect."""
        return [f"ws://127.0.0.1:{front.port}/v1/stream" for front in self._fronts]

    async def await_ready(self, limit_s: float) -> None:
        """Wait until every web process says that it is ready. Raises `Failed` with what they say."""
        give_up_s = self._now() + limit_s
        while problems := await asyncio.to_thread(self.not_ready):
            if self._now() > give_up_s:
                raise Failed(f"not ready within {limit_s:g} s: {'; '.join(problems)}")
            await asyncio.sleep(0.2)

    def not_ready(self) -> list[str]:
        """What web processes say against being ready."""
        answers = {name: ask(local_url("127.0.0.1", port)) for name, port in self._ports.items()}
        return [f"{name}: {answer.reason}" for name, answer in answers.items() if answer.state is not State.READY]

    def still_open(self) -> list[str]:
        """Connections of clients that web processes still hold, when there are no clients any more."""
        left = []
        for name, port in self._ports.items():
            for process in self.programs[name].family():
                with suppress(psutil.Error):
                    left += [
                        f"{name} holds {connection.raddr}"
                        for connection in process.net_connections("tcp")
                        if connection.laddr.port == port and connection.status == psutil.CONN_ESTABLISHED
                    ]
        return left

    async def close_fronts(self) -> None:
        """End what clients left behind in the proxies."""
        for front in self._fronts:
            await front.stop()

    async def stop(self) -> list[str]:
        """End everything; returns what did not end as it should."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.wait({self._watcher})
        left = await asyncio.to_thread(self.programs.stop, self._profile.drain_s + 8.0)
        for proxy in (*self._links.values(), *self._fronts):
            await proxy.stop()
        with suppress(AttributeError):
            await asyncio.to_thread(self.redis.stop)
        return left + await asyncio.to_thread(self._marked)

    def _marked(self) -> list[str]:
        """Processes of this run that are still there, ended by force."""
        left = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if process.environ().get(MARK) == str(self._folder) and process.status() != psutil.STATUS_ZOMBIE:
                    left.append(f"process {process.pid} is left: {' '.join(process.cmdline())[:80]}")
                    process.kill()
        return left
