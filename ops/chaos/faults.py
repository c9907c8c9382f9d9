"""Puts the planned faults into a running service, and writes down which were put in and when."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import redis

from ops.chaos.clocks import Clocks
from ops.chaos.plan import WEBS, WORKERS, Fault
from ops.chaos.programs import Programs
from ops.chaos.proxy import Pair, Proxy
from ops.chaos.records import Injected
from ops.chaos.redis_box import RedisBox


@dataclass(frozen=True, slots=True)
class Stage:
    """What faults can reach. ``links``: program -> its proxy to Redis; ``fronts``: from clients to webs."""

    programs: Programs
    redis: RedisBox
    links: Mapping[str, Proxy]
    fronts: Sequence[Proxy]
    clocks: Clocks
    now: Callable[[], float]
    say: Callable[[str], None]


class Injector:
    """Runs the plan's faults; `injected` are those that came about."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.injected: list[Injected] = []
        self.failed: list[str] = []
        self._running: set[asyncio.Task[None]] = set()

    async def run(self, faults: Sequence[Fault]) -> None:
        """Each at its time; returns when the last one is over."""
        for fault in faults:
            await asyncio.sleep(max(0.0, fault.at_s - self._stage.now()))
            self._running.add(asyncio.create_task(self._inject(fault)))
        if self._running:
            await asyncio.wait(self._running)
        for task in self._running:
            if (error := task.exception()) is not None:
                self.failed.append(f"{type(error).__name__}: {error}")

    async def _inject(self, fault: Fault) -> None:
        now = self._stage.now
        if fault.kind.startswith("clock.") and not self._stage.clocks.available:
            return
        begun_s = now()
        # At once, so that what follows from a fault that is still going on finds its cause.
        place = len(self.injected)
        self.injected.append(Injected(fault.kind, fault.target, begun_s, begun_s + fault.hold_s))
        self._stage.say(f"{fault.kind} {fault.target} for {fault.hold_s:.1f} s")
        came_about = await self._act(fault)
        done = Injected(fault.kind if came_about else "", fault.target, begun_s, now())
        self.injected[place] = done

    def _act(self, fault: Fault) -> Awaitable[bool]:
        area, _, what = fault.kind.partition(".")
        match area:
            case "web" | "worker":
                return self._process(fault, what)
            case "redis" | "disk" | "memory":
                return self._redis(fault)
            case "link":
                return self._link(fault, what)
            case "client":
                return self._client(fault, what)
            case _:
                return self._clock(fault, what)

    async def _process(self, fault: Fault, what: str) -> bool:
        programs, rng = self._stage.programs, random.Random(fault.seed)
        if what == "stop":
            stopped = programs.strike(fault.target, signal.SIGSTOP, blame_s=fault.hold_s + 15)
            await asyncio.sleep(fault.hold_s)
            programs.go_on(fault.target, stopped)
        elif what == "term":
            programs.strike(fault.target, signal.SIGTERM, whom="leader")
        else:
            whom = rng.choice(("all", "all", "children", "leader")) if fault.target in WEBS else "all"
            programs.strike(fault.target, signal.SIGKILL, whom=whom)
        return True

    async def _redis(self, fault: Fault) -> bool:
        box = self._stage.redis
        match fault.kind:
            case "redis.kill":
                await box.restart(fault.hold_s)
            case "redis.term":
                await box.restart(fault.hold_s, orderly=True)
            case "redis.empty":
                await box.restart(fault.hold_s, forgetful=True)
            case "redis.stop":
                await box.freeze(fault.hold_s)
            case "redis.script_flush":
                with suppress(redis.RedisError):
                    await asyncio.to_thread(box.client.script_flush)
            case "redis.client_kill":
                await asyncio.to_thread(box.kill_clients, "normal")
            case "redis.pubsub_kill":
                await asyncio.to_thread(box.kill_clients, "pubsub")
            case "disk.full":
                await box.fill_disk(fault.hold_s)
            case "memory.limit":
                await box.limit_memory(fault.hold_s, round(fault.amount))
        return True

    async def _link(self, fault: Fault, what: str) -> bool:
        link = self._stage.links[fault.target]
        match what:
            case "reset":
                pairs = link.pairs
                for pair in pairs:
                    pair.reset()
                return bool(pairs)
            case "silent":
                link.silence(True)
                await asyncio.sleep(fault.hold_s)
                link.silence(False)
            case "delay":
                link.delay(fault.amount)
                await asyncio.sleep(fault.hold_s)
                link.delay(0.0)
            case _:
                before = link.cut
                link.cut_replies(round(fault.amount))
                await asyncio.sleep(fault.hold_s)
                link.cut_replies(0)
                return link.cut > before
        return True

    async def _client(self, fault: Fault, what: str) -> bool:
        rng = random.Random(fault.seed)
        pairs = [pair for front in self._stage.fronts for pair in front.pairs]
        chosen: list[Pair] = rng.sample(pairs, max(1, round(len(pairs) * fault.amount))) if pairs else []
        for pair in chosen:
            if what == "reset":
                pair.reset()
            elif what == "half_open":
                pair.half_open(client_knows=rng.random() < 0.5)
            else:
                pair.flows.clear()
        if what == "stall":
            await asyncio.sleep(fault.hold_s)
            for pair in chosen:
                pair.flows.set()
        return bool(chosen)

    async def _clock(self, fault: Fault, what: str) -> bool:
        clocks, rng = self._stage.clocks, random.Random(fault.seed)
        groups = {"worker": WORKERS, "web": WEBS}.get(what, ("redis",))
        for group in groups:  # every process another way, as clocks do
            clocks.step(group, fault.amount if len(groups) == 1 else rng.uniform(-1, 1) * abs(fault.amount))
        await asyncio.sleep(fault.hold_s)
        for group in groups:
            clocks.step(group, 0.0)
        return True
