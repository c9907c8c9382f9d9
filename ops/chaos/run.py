"""One run of one seed: quiet reference, chaos, settling, the books."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import redis

from ops.chaos.audio import Clip, scripted_text
from ops.chaos.books import check
from ops.chaos.client import Client, Surroundings
from ops.chaos.excuses import Faults
from ops.chaos.faults import Injector, Stage
from ops.chaos.plan import WORKERS, Plan, make_plan
from ops.chaos.records import Injected, Record, StreamPlan, Variant, Violation
from ops.chaos.recovery import recovery
from ops.chaos.service import Service
from ops.chaos.settings import Profile
from ops.chaos.watch import Watch
from ops.errors import Failed
from queueing.clock import Clock
from sessions.wire import Final

REFERENCE_SPEED = 25.0
STREAMS_S = 120.0
"""Longest wait for the last streams after the last one began; each has a bound of its own before."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to run. ``logs``: where the processes' logs are kept; None: nowhere."""

    minutes: float
    kinds: Sequence[str]
    profile: Profile
    model: str
    clips: Callable[[random.Random], tuple[Clip, ...]]
    logs: Path | None
    between_s: float


@dataclass(slots=True)
class Result:
    """What a run gave."""

    plan: Plan
    records: list[Record] = field(default_factory=list)
    injected: list[Injected] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    recovery: Mapping[str, list[float]] = field(default_factory=dict)
    unavailable: list[str] = field(default_factory=list)
    looks: int = 0

    def faults(self) -> Counter[str]:
        """How many of each kind came about."""
        return Counter(fault.kind for fault in self.injected if fault.kind)


async def run_seed(
    seed: int, wanted: Wanted, environment: Mapping[str, str], clock: Clock, say: Callable[[str], None]
) -> Result:
    """The whole run. Raises `Failed` when the service does not come up, or not to rest in the reference run."""
    clips = {clip.name: clip for clip in wanted.clips(random.Random(f"{seed} audio"))}
    plan = make_plan(seed, wanted.minutes, tuple(clips.values()), wanted.kinds, between_s=wanted.between_s)
    with tempfile.TemporaryDirectory(prefix="hearline-chaos-", ignore_cleanup_errors=True) as scratch:
        folder = scratch if wanted.logs is None else str(wanted.logs / f"seed-{seed}")
        Path(folder).mkdir(parents=True, exist_ok=True)
        run = Run(plan, clips, wanted, Path(folder), environment, clock, say)
        return await run.run()


class Run:
    """The parts of one run."""

    def __init__(
        self,
        plan: Plan,
        clips: Mapping[str, Clip],
        wanted: Wanted,
        folder: Path,
        environment: Mapping[str, str],
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._clips = clips
        self._wanted = wanted
        self._clock = clock
        self._zero_s = clock.monotonic()
        self._say = say
        self._service = Service(folder, wanted.profile, environment, model=wanted.model, now=self._now)
        self.result = Result(plan)

    def _now(self) -> float:
        return self._clock.monotonic() - self._zero_s

    async def run(self) -> Result:
        """Everything, in order; the service is stopped in any case."""
        result, service = self.result, self._service
        try:
            stage = await service.start(lambda text: self._say(f"{self._now():7.2f}  {text}"))
            references = await self._references()
            self._zero_s = self._clock.monotonic()
            await self._chaos(stage)
            self._balance(references)
            await self._settle()
        finally:
            for text in await service.stop():
                result.violations.append(Violation("left behind", "", text))
        result.violations += [Violation("ended by itself", "", f"{name}: {text}") for name, text in service.ended_alone]
        if not service.clocks.available:
            result.unavailable = sorted({fault.kind for fault in result.plan.faults if fault.kind.startswith("clock.")})
        return result

    async def _references(self) -> dict[Variant, list[Final]]:
        """What every variant gives while nothing is wrong."""
        variants = {stream.variant for stream in self.result.plan.streams}
        ordered = sorted(variants, key=repr)
        plans = [
            StreamPlan(f"reference-{variant.clip}", 0.0, variant, web=0, speed=REFERENCE_SPEED) for variant in ordered
        ]
        references = {}
        for record in await asyncio.gather(*(self._client(plan).run() for plan in plans)):
            if record.outcome != "done":
                raise Failed(f"the quiet run of {record.plan.name} ended with {record.outcome} {record.code}")
            references[record.plan.variant] = record.finals
            for violation in self._check(record, record.finals, Faults((), self._wanted.profile)):
                self.result.violations.append(violation)
        return references

    def _client(self, plan: StreamPlan) -> Client:
        around = Surroundings(self._service.urls, self._now, self._wanted.profile.answer_s)
        return Client(plan, self._clips[plan.variant.clip], around)

    async def _chaos(self, stage: Stage) -> None:
        """The faults and the streams, side by side, while Redis is watched."""
        injector = Injector(stage)
        watch = Watch(stage.redis.client)
        watching = asyncio.create_task(watch.run())
        faults = asyncio.create_task(injector.run(self.result.plan.faults))
        streams = [asyncio.create_task(self._stream(plan)) for plan in self.result.plan.streams]
        await asyncio.wait([faults, *streams], timeout=self.result.plan.seconds + STREAMS_S)
        for task in (watching, faults, *streams):
            task.cancel()
        await asyncio.gather(watching, faults, *streams, return_exceptions=True)
        result = self.result
        result.injected, result.looks = injector.injected, watch.looks
        result.violations += [Violation(what, "", evidence) for what, evidence in watch.found.items()]
        result.violations += [Violation("fault failed", "", text) for text in injector.failed]

    async def _stream(self, plan: StreamPlan) -> None:
        await asyncio.sleep(max(0.0, plan.begin_s - self._now()))
        client = self._client(plan)
        self.result.records.append(client.record)
        await client.run()

    def _check(self, record: Record, reference: Sequence[Final], faults: Faults) -> list[Violation]:
        text_of = scripted_text if self._wanted.model == "scripted" else None
        return check(record, self._clips[record.plan.variant.clip], reference, faults, text_of=text_of)

    def _balance(self, references: Mapping[Variant, Sequence[Final]]) -> None:
        result = self.result
        faults = Faults(result.injected, self._wanted.profile)
        for record in result.records:
            result.violations += self._check(record, references[record.plan.variant], faults)
        result.recovery = recovery(result.records, result.injected)

    async def _settle(self) -> None:
        """Within the documented bounds nothing of the streams may be left, and everybody is ready again."""
        await self._service.close_fronts()
        watch = Watch(self._service.redis.client)
        give_up_s = self._now() + self._wanted.profile.settle_s
        while left := await asyncio.to_thread(self._left, watch):
            if self._now() > give_up_s:
                self.result.violations += [Violation("leftover", "", text) for text in left]
                return
            await asyncio.sleep(0.5)
        self._say(f"{self._now():7.2f}  settled")

    def _left(self, watch: Watch) -> list[str]:
        try:
            watch.look()
            left = watch.leftovers(len(WORKERS), strict=any(record.resumable for record in self.result.records))
        except redis.RedisError as error:
            return [f"Redis: {error}"]
        return left + self._service.not_ready() + self._service.still_open()
