"""The audio of open segments that this worker has fetched already: only what is new crosses the network.

Each partial of a segment covers what the one before did and a little more. What Redis holds at a position never
changes, and a session's id never comes again, so bytes once read may be used again; whatever is not here is read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from queueing.job import NewJob
from queueing.lane import Kind

Read = Callable[[str, int, int], bytes]
"""(session, start, end) -> exactly these bytes of its stream, as `sessions.audio_buffer.AudioBuffer.read`."""


@dataclass(slots=True)
class _Stretch:
    """Bytes ``start`` to ``end`` of one session."""

    start: int
    data: bytearray

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class AudioCache:
    """One contiguous stretch for each of the sessions used last, ``max_bytes`` in all. For one thread.

    ``count`` hears of every read: bytes that came from Redis, bytes that were here.
    """

    def __init__(self, read: Read, max_bytes: int, count: Callable[[int, int], object]) -> None:
        self._read = read
        self._max_bytes = max_bytes
        self._count = count
        self._stretches: OrderedDict[str, _Stretch] = OrderedDict()
        self.held_bytes = 0

    def fetch(self, job: NewJob) -> bytes:
        """The job's audio. Raises what ``read`` raises, `AudioLost` above all.

        A partial's stays here for the next one, which begins no earlier; with a final all before its end is settled.
        """
        stretch = self._stretches.pop(job.session, None)
        kept = len(stretch.data) if stretch else 0
        self.held_bytes -= kept
        if stretch and not (stretch.start <= job.end_byte and job.start_byte <= stretch.end):
            stretch = None  # a gap lies between: what is here is of another segment
        pcm = self._joined(job, stretch)
        if job.kind is Kind.PARTIAL:
            self._keep(job.session, _Stretch(job.start_byte, bytearray(pcm)))
        elif job.kind is Kind.FINAL and stretch and stretch.end > job.end_byte:
            self._keep(job.session, _Stretch(job.end_byte, stretch.data[job.end_byte - stretch.start :]))
        return pcm

    def _joined(self, job: NewJob, stretch: _Stretch | None) -> bytes:
        """What lies before the stretch, the stretch as far as it is wanted, what lies behind it."""
        if stretch is None:
            return self._counted(self._read(job.session, job.start_byte, job.end_byte), 0)
        begin, end = max(job.start_byte, stretch.start), min(job.end_byte, stretch.end)
        here = bytes(memoryview(stretch.data)[begin - stretch.start : end - stretch.start])
        before = self._read(job.session, job.start_byte, begin) if job.start_byte < begin else b""
        behind = self._read(job.session, end, job.end_byte) if end < job.end_byte else b""
        self._count(len(before) + len(behind), len(here))
        return b"".join((before, here, behind))

    def _counted(self, pcm: bytes, kept: int) -> bytes:
        self._count(len(pcm), kept)
        return pcm

    def _keep(self, session: str, stretch: _Stretch) -> None:
        if len(stretch.data) > self._max_bytes:
            return
        self._stretches[session] = stretch
        self.held_bytes += len(stretch.data)
        while self.held_bytes > self._max_bytes:
            _, oldest = self._stretches.popitem(last=False)
            self.held_bytes -= len(oldest.data)
