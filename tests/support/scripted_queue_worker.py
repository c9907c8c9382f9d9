"""A worker inside the test: claims jobs through the queue, answers with text that follows from the audio's bytes."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Self

import redis

from queueing.errors import QueueUnavailable
from queueing.job import LeasedJob
from queueing.job_queue import JobQueue
from queueing.lane import Kind
from sessions.audio_buffer import AudioBuffer
from sessions.errors import AudioLost
from sessions.results import DecodeResult
from tests.support.sound import text_of


class QueueWorker:
    """Use as a context manager. ``hold`` (a set of kinds): such jobs wait, claimed, until `let_go`."""

    def __init__(self, client: redis.Redis, *, heartbeat: bool = True, hold: frozenset[Kind] = frozenset()) -> None:
        self._queue = JobQueue(client)
        self._buffer = AudioBuffer(client)
        self._id = f"in-test-{uuid.uuid4().hex[:8]}"
        self._heartbeat = heartbeat
        self._hold = hold
        self._free = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.claimed: list[LeasedJob] = []
        self.fault: Callable[[LeasedJob], tuple[str, str] | None] = lambda _lease: None
        """Gives code and message to fail a job with."""
        self.text: Callable[[bytes], str] = text_of
        self.result: Callable[[LeasedJob, bytes], DecodeResult] = lambda _lease, data: DecodeResult(
            self.text(data), "scripted", "en", language_probability=1.0
        )
        """Gives the whole answer, where a text of the audio alone is not enough."""

    def let_go(self) -> None:
        """Finish what is held, and hold nothing more."""
        self._free.set()

    def claimed_kinds(self) -> list[Kind]:
        return [lease.job.kind for lease in self.claimed]

    def __enter__(self) -> Self:
        self._beat()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._free.set()
        self._thread.join(20)

    def _beat(self) -> None:
        if self._heartbeat:
            self._queue.heartbeat(self._id, {"state": "ready", "model": "scripted"})

    def _run(self) -> None:
        count = 0
        while not self._stop.is_set():
            try:
                self._beat()
                count += 1
                leases = self._queue.claim(self._id, f"nonce-{count}")
                for lease in leases:
                    self._work(lease)
                if not leases:
                    self._queue.wait(0.5)
            except QueueUnavailable:
                self._stop.wait(0.1)

    def _work(self, lease: LeasedJob) -> None:
        self.claimed.append(lease)
        if lease.job.kind in self._hold:
            while not self._free.wait(0.5):
                self._beat()
        if self._stop.is_set():
            self._queue.release([lease])
            return
        if (fault := self.fault(lease)) is not None:
            self._queue.fail(lease, *fault, retry=False)
            return
        try:
            data = self._buffer.read(lease.job.session, lease.job.start_byte, lease.job.end_byte)
        except AudioLost:
            self._queue.fail(lease, "audio_missing", "the audio is gone", retry=False)
            return
        self._queue.complete(lease, self.result(lease, data).to_dict(), decode_ms=5.0)
