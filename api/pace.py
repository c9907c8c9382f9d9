"""How fast a stream is read: audio beyond a multiple of real time, after a burst, is held back by TCP."""

from __future__ import annotations

import threading

from api.rates import TokenBucket
from queueing.clock import Clock
from sessions.wire import BYTES_PER_SECOND

BURST_S = 200.0
"""Seconds of audio that a stream, or a key, may send at once before its rate counts: a recording from before a
connection was lost, or a short file. (As for frames: see `api.socket`.)"""

LEAST_SHARE = 0.001


class SharedRate:
    """The audio of all streams of one key in this process, which has a share of the key's whole rate. Thread-safe."""

    def __init__(self, clock: Clock, audio_rate: float) -> None:
        self.audio_rate = audio_rate
        self._bucket = TokenBucket(clock, _burst(audio_rate), audio_rate * BYTES_PER_SECOND)
        self._lock = threading.Lock()

    def set_share(self, share: float) -> None:
        """This process has so much of the key's streams, from 0 to 1."""
        with self._lock:
            self._bucket.set_rate(self.audio_rate * BYTES_PER_SECOND * max(LEAST_SHARE, share))

    def spend(self, count: int) -> None:
        with self._lock:
            self._bucket.spend(count)

    def wait_s(self) -> float:
        with self._lock:
            return self._bucket.wait_s()


class Pace:
    """What one stream may send. Used by it alone."""

    def __init__(self, clock: Clock, audio_rate: float, shared: SharedRate | None = None) -> None:
        """``audio_rate``: seconds of audio a second; 0 is no limit."""
        own = TokenBucket(clock, _burst(audio_rate), audio_rate * BYTES_PER_SECOND) if audio_rate > 0 else None
        self._buckets: tuple[TokenBucket | SharedRate, ...] = tuple(b for b in (own, shared) if b is not None)

    def spend(self, count: int) -> None:
        """So many bytes came."""
        for bucket in self._buckets:
            bucket.spend(count)

    def wait_s(self) -> float:
        """How long to read nothing; 0 to go on."""
        return max((bucket.wait_s() for bucket in self._buckets), default=0.0)


def _burst(audio_rate: float) -> float:
    # A key that allows less than real time gets no three minutes beforehand.
    return BYTES_PER_SECOND * min(BURST_S, max(1.0, 10 * audio_rate))
