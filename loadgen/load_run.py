"""Play a scenario against a service: every stream at its time, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from loadgen.async_client import stream
from loadgen.client import Sending
from loadgen.connecting import Timeouts
from loadgen.errors import ClientError
from loadgen.outcome import Outcome, outcome_of
from loadgen.recorder import Recorder
from loadgen.resumption import Resuming
from loadgen.scenario import Clip, PlannedStream, Scenario
from queueing.clock import Clock
from sessions.wire import Start

ALONE = Sending(speed=0)


@dataclass
class StreamResult:
    """One stream of the run: what was planned, what happened, how it ended."""

    planned: PlannedStream
    recorder: Recorder = field(default_factory=Recorder)
    outcome: Outcome | None = None
    """None while it waits or runs."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where and how every stream of the run is played."""

    urls: Sequence[str]
    start: Start
    sending: Sending
    timeouts: Timeouts
    api_key: str | None = None
    resuming: Resuming = field(default_factory=Resuming)
    seed: int = 1
    """Of the delays before attempts to reconnect."""

    def at(self, index: int) -> list[str]:
        """The front ends in the order in which stream ``index`` tries them: load is spread over all."""
        first = index % len(self.urls)
        return [*self.urls[first:], *self.urls[:first]]


@dataclass
class Run:
    """What is known of a run, also of one that was interrupted."""

    results: list[StreamResult]
    wall_s: float = 0.0
    interrupted: bool = False
    alone: dict[str, str] = field(default_factory=dict)
    """Clip id -> its text when nothing else was streamed."""
    alone_failed: dict[str, str] = field(default_factory=dict)


async def play(scenario: Scenario, target: Target, clock: Clock, run: Run, progress: Callable[[Run], None]) -> None:
    """Run every stream; failures end up in their results. ``progress`` is called about once a second."""
    begin = clock.monotonic()

    async def one(index: int, result: StreamResult) -> None:
        await asyncio.sleep(max(0.0, begin + result.planned.at_s - clock.monotonic()))
        result.outcome = await _stream_once(index, result.planned.clip, target, clock, result.recorder)

    async def tell() -> None:
        while True:
            await asyncio.sleep(1)
            progress(run)

    telling = asyncio.create_task(tell())
    run.results.extend(StreamResult(planned) for planned in scenario.streams)
    try:
        async with asyncio.TaskGroup() as group:
            for index, result in enumerate(run.results):
                group.create_task(one(index, result))
    finally:
        run.wall_s = clock.monotonic() - begin
        telling.cancel()
        await asyncio.wait({telling})


async def play_alone(clips: list[Clip], target: Target, clock: Clock, run: Run) -> None:
    """Decode every clip by itself, one after the other, as fast as the service takes it."""
    alone = replace(target, start=target.start.model_copy(update={"partials": False}), sending=ALONE)
    for index, clip in enumerate(clips):
        recorder = Recorder()
        outcome = await _stream_once(index, clip, alone, clock, recorder)
        if outcome.status:
            run.alone_failed[clip.id] = outcome.message
        else:
            run.alone[clip.id] = recorder.text


async def _stream_once(index: int, clip: Clip, target: Target, clock: Clock, recorder: Recorder) -> Outcome:
    try:
        await stream(
            target.at(index),
            clip.audio,
            target.start,
            clock=clock,
            sending=target.sending,
            timeouts=target.timeouts,
            recorder=recorder,
            api_key=target.api_key,
            resuming=target.resuming,
            rng=random.Random(f"{target.seed} {index}"),
        )
    except ClientError as error:
        return outcome_of(recorder, error, [])
    return outcome_of(recorder, None, [])
