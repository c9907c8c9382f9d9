"""Is a final text the same however its audio was sent: in what frames, alone or among busy streams, by what policy?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import click

from ops.errors import Failed
from ops.service_bench_client import Clip, Sending, transcribe
from ops.service_bench_load import Progress

FRAMES = (641, 3_200, 65_536)
"""Bytes: an odd number that splits samples, 100 ms, the most of two seconds."""

ONE_BYTE_S = 1.0
"""Frames of one byte carry this much of a recording: at the 500 frames a second that a service reads of one stream,
32,000 of them take a minute."""

BUSY = 8
"""Real-time streams around the ones that are compared."""

USUAL = 3_200

BUSY_AHEAD_S = 3.0
"""So long the busy streams play before the first compared one begins: all have partials then."""

AT_ONCE = 4
"""Compared streams that play at a time, beside the busy ones."""


@dataclass(frozen=True, slots=True)
class Case:
    """One way to send a clip."""

    clip: Clip
    frame_bytes: int
    busy: bool


@dataclass
class Comparison:
    """Texts against the first one known of the same clip: under the first policy, alone, in usual frames."""

    expected: dict[str, str] = field(default_factory=dict)
    compared: int = 0
    different: list[dict[str, Any]] = field(default_factory=list)
    by_frame: dict[int, list[int]] = field(default_factory=dict)

    def add(self, policy: str, case: Case, text: str | None) -> None:
        """Compare, or learn, a text; None, for a stream without one, equals nothing."""
        expected = self.expected.get(case.clip.id)
        if expected is None and text is not None:
            expected = self.expected[case.clip.id] = text
        self.compared += 1
        counts = self.by_frame.setdefault(case.frame_bytes, [0, 0])
        counts[1] += 1
        if text is not None and text == expected:
            counts[0] += 1
            return
        self.different.append(
            {
                "policy": policy,
                "clip": case.clip.id,
                "frame_bytes": case.frame_bytes,
                "busy": case.busy,
                "text": text,
                "expected": expected,
            }
        )

    def fields(self) -> dict[str, Any]:
        """JSON-able."""
        equal = self.compared - len(self.different)
        return {
            "share": round(equal / self.compared, 5) if self.compared else None,
            "compared": self.compared,
            "equal": equal,
            "by_frame_bytes": {
                str(size): f"{good} of {count}" for size, (good, count) in sorted(self.by_frame.items())
            },
            "different": self.different,
            "texts": self.expected,
            "one_byte_frames_carry_s": ONE_BYTE_S,
            "busy_streams": BUSY,
        }


def alone_cases(clips: Sequence[Clip], one_byte: bool) -> Iterator[Case]:
    """Usual frames first: their text is what all others are compared with."""
    beginning = clips[0].cut(ONE_BYTE_S)
    for clip in (*clips, beginning):
        yield Case(clip, USUAL, busy=False)
        for size in FRAMES:
            if size != USUAL:
                yield Case(clip, size, busy=False)
    if one_byte:
        yield Case(beginning, 1, busy=False)


def busy_cases(clips: Sequence[Clip]) -> list[Case]:
    """Sent at the same time, among the busy streams."""
    beginning = clips[0].cut(ONE_BYTE_S)
    return [
        *(Case(clip, size, busy=True) for clip in clips for size in FRAMES),
        *(Case(beginning, size, busy=True) for size in (1, *FRAMES)),
    ]


async def compare(
    url: str,
    policy: str,
    clips: Sequence[Clip],
    crowd: Sequence[Clip],
    comparison: Comparison,
    *,
    one_byte_alone: bool,
    progress: Progress,
) -> None:
    """Every case against the running service."""
    for case in alone_cases(clips, one_byte_alone):
        comparison.add(policy, case, await _text(url, case, paced=False))
    progress(f"identical: {policy}: alone, {len(comparison.different)} different so far")
    busy = [asyncio.create_task(_keep_busy(url, [*crowd[index:], *crowd[:index]])) for index in range(BUSY)]
    try:
        await asyncio.sleep(BUSY_AHEAD_S)
        limit = asyncio.Semaphore(AT_ONCE)
        cases = busy_cases(clips)
        texts = await asyncio.gather(*(_among_busy(limit, url, case) for case in cases))
    finally:
        for task in busy:
            task.cancel()
        await asyncio.wait(busy)
    for case, text in zip(cases, texts, strict=True):
        comparison.add(policy, case, text)
    progress(f"identical: {policy}: among {BUSY} busy streams, {len(comparison.different)} different so far")


async def _text(url: str, case: Case, paced: bool) -> str | None:
    try:
        return await transcribe(url, case.clip, Sending(case.frame_bytes, paced=paced))
    except Failed as error:
        click.echo(f"identical: frames of {case.frame_bytes} bytes: {error.message}", err=True)
        return None


async def _among_busy(limit: asyncio.Semaphore, url: str, case: Case) -> str | None:
    """Paced but for frames of one byte, which a service reads more slowly than real time anyway."""
    if case.frame_bytes == 1:
        return await _text(url, case, paced=False)
    async with limit:
        return await _text(url, case, paced=True)


async def _keep_busy(url: str, clips: Sequence[Clip]) -> None:
    """One real-time stream after another until cancelled; one that is refused or fails is no matter."""
    with suppress(asyncio.CancelledError):
        while True:
            for clip in clips:
                with suppress(Failed):
                    await transcribe(url, clip, Sending(USUAL, paced=True))
                await asyncio.sleep(0.05)


def first_with_text(clips: Sequence[Clip], text_of: Callable[[Clip], str], count: int) -> list[Clip]:
    """``count`` clips, the first of which says something within `ONE_BYTE_S`: an empty text would compare nothing."""
    for index, clip in enumerate(clips):
        if text_of(clip.cut(ONE_BYTE_S)):
            return [clip, *[*clips[:index], *clips[index + 1 :]][: count - 1]]
    raise Failed(f"no recording gives a text within its first {ONE_BYTE_S:g} s: frames of one byte compare nothing")
