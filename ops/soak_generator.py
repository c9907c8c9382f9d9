"""The soak's load generator, a process of its own: ``python -m ops.soak_generator`` with its plan as JSON on stdin.

One thread, one poller, frames masked before the start: it must cost little, for it shares the machine with what it
measures. It writes a JSON line a second to stdout (what was sent and received so far) and a last one with everything.
"""

from __future__ import annotations

import heapq
import json
import random
import select
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ops import soak_wire as wire
from ops.soak_stream import BYTES_PER_S, Books, SoakStream
from queueing.clock import Clock, SystemClock

TURN_S = 0.005
"""What falls due within one turn is sent in it: fewer wake-ups, and nothing is later than this."""
PER_S = 40.0
"""Streams begun in a second, at the start."""
ENDING_S = 10.0
"""At the end, over so many seconds, streams end at random moments."""
ANSWER_S = 60.0
RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class GeneratorPlan:
    """``addresses``: host and port of each web process, taken in turn. ``short``: the share of streams that last about
    ``short_s`` seconds and are followed by another; the rest last to the end. ``pcm``: a file of samples, in a loop."""

    addresses: list[tuple[str, int]]
    streams: int
    duration_s: float
    frame_ms: int
    short: float
    short_s: float
    seed: int
    pcm: str

    @classmethod
    def from_json(cls, text: str) -> GeneratorPlan:
        """Raises ValueError or TypeError for anything that `to_json` does not write."""
        fields = json.loads(text)
        fields["addresses"] = [(str(host), int(port)) for host, port in fields["addresses"]]
        return cls(**fields)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def masked_loop(pcm: bytes, frame_bytes: int) -> list[bytes]:
    """The samples as WebSocket frames of equal size; what is left at the end is dropped."""
    frames = [pcm[at : at + frame_bytes] for at in range(0, len(pcm) - frame_bytes + 1, frame_bytes)]
    return [wire.frame(wire.BINARY, piece) for piece in frames]


class Generator:
    """Keeps ``plan.streams`` streams open for ``plan.duration_s``, then ends them and waits for the last finals."""

    def __init__(self, plan: GeneratorPlan, pcm: bytes, clock: Clock, tell: Callable[[dict[str, Any]], None]) -> None:
        self._plan = plan
        self._clock = clock
        self._tell = tell
        self._rng = random.Random(plan.seed)
        self._frame_bytes = BYTES_PER_S * plan.frame_ms // 1000
        self._frames = masked_loop(pcm, self._frame_bytes)
        self._poll = select.epoll()
        self._streams: dict[int, SoakStream] = {}
        self._due: list[tuple[float, int, SoakStream]] = []
        self._births: list[tuple[float, int]] = []
        self._cuts: list[tuple[float, int, SoakStream]] = []
        self._count = 0
        self._ending = False
        self.books = Books()

    def run(self) -> None:
        """From the first connection to the last close."""
        now = begin = self._clock.monotonic()
        stop_s = begin + self._plan.duration_s
        for slot in range(self._plan.streams):
            heapq.heappush(self._births, (begin + slot / PER_S + self._rng.uniform(0, 0.1), slot))
        told_s = now
        while self._streams or not self._ending:
            if not self._ending and now >= stop_s:
                self._ending = True
                self._births.clear()
                self._plan_the_end(now)
            if now > stop_s + ENDING_S + ANSWER_S:
                break
            self._open_due(now)
            self._send_due(now)
            if now - told_s >= 1.0:
                told_s = now
                self._tell({"at": now, **self._totals()})
                for stream in list(self._streams.values()):
                    stream.flush()
            self._take(max(TURN_S, self._next_s(now)))
            now = self._clock.monotonic()
        for stream in self._streams.values():
            self.books.fault(f"session {stream.session or '?'}: no done within {ANSWER_S:g} s of its end")
            stream.close()
        self._poll.close()

    def _totals(self) -> dict[str, Any]:
        books = self.books
        return {
            "open": sum(stream.ready for stream in self._streams.values()), "audio_s": books.audio_bytes / BYTES_PER_S,
            "finals": books.finals, "partials": books.partials, "done": books.done, "refused": books.refused,
            "faults": books.fault_count, "cpu_s": time.process_time(),
        }  # fmt: skip

    def result(self) -> dict[str, Any]:
        """Everything, for the last line."""
        return {"result": {**self._totals(), **asdict(self.books), "opened": self.books.opened}}

    def _next_s(self, now: float) -> float:
        heads = [heap[0][0] for heap in (self._due, self._births, self._cuts) if heap]
        return min(min(heads, default=now + 0.2) - now, 0.2)

    def _open_due(self, now: float) -> None:
        while self._births and self._births[0][0] <= now:
            _, slot = heapq.heappop(self._births)
            long = slot >= self._plan.streams * self._plan.short
            length_s = 2 * self._plan.duration_s if long else self._plan.short_s * self._rng.uniform(0.5, 1.5)
            frames = max(1, round(length_s * 1000 / self._plan.frame_ms))
            address = self._plan.addresses[slot % len(self._plan.addresses)]
            first = self._rng.randrange(len(self._frames))
            stream = SoakStream(
                address, slot, self._frames, self._frame_bytes, first, frames, self.books, self._clock.monotonic
            )
            self._streams[stream.fd] = stream
            self._poll.register(stream.sock, select.EPOLLIN | select.EPOLLOUT)

    def _send_due(self, now: float) -> None:
        soon = now + TURN_S
        while self._due and self._due[0][0] <= soon:
            _, number, stream = heapq.heappop(self._due)
            stream.send_due(now)
            if stream.over:
                self._gone(stream)
            elif not stream.ending:
                heapq.heappush(self._due, (stream.due_s, number, stream))
        while self._cuts and self._cuts[0][0] <= now:
            heapq.heappop(self._cuts)[2].cut_short()

    def _plan_the_end(self, now: float) -> None:
        window_s = min(ENDING_S, self._plan.duration_s)
        for number, stream in enumerate(self._streams.values()):
            heapq.heappush(self._cuts, (now + self._rng.uniform(0, window_s), number, stream))

    def _take(self, wait_s: float) -> None:
        for fd, event in self._poll.poll(wait_s):
            stream = self._streams.get(fd)
            if stream is None:
                continue
            was_ready = stream.ready
            if event & select.EPOLLOUT:
                self._poll.modify(fd, select.EPOLLIN)
            stream.on_event(event)
            if stream.ready and not was_ready:
                self._count += 1
                self.books.opened += 1
                stream.begin(self._clock.monotonic())
                heapq.heappush(self._due, (stream.due_s, self._count, stream))
            if stream.over:
                self._gone(stream)

    def _gone(self, stream: SoakStream) -> None:
        """It is closed, and with that out of the poller; another takes its place."""
        if self._streams.pop(stream.fd, None) is None:
            return
        self.books.refused += stream.was_refused
        if not self._ending:
            pause_s = RETRY_S if stream.was_refused else 0.0
            heapq.heappush(self._births, (self._clock.monotonic() + pause_s, stream.slot))


def main(stdin: str, clock: Clock) -> Sequence[str]:
    """Run the plan; lines go to stdout as they come."""
    plan = GeneratorPlan.from_json(stdin)

    def tell(line: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    generator = Generator(plan, Path(plan.pcm).read_bytes(), clock, tell)
    generator.run()
    tell(generator.result())
    return generator.books.faults


if __name__ == "__main__":
    main(sys.stdin.read(), SystemClock())
