"""What the streams of this process hold in Redis is renewed, so that it expires with the process."""

from __future__ import annotations

from collections.abc import Callable, Collection

from api.limiter import Limiter
from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer


class Renewal:
    """Renews the slots of streams, and what counts for their clients. ``live``: the sessions that run here now."""

    def __init__(
        self, slots: StreamSlots, limiter: Limiter, buffer: AudioBuffer, live: Callable[[], Collection[str]]
    ) -> None:
        self._slots = slots
        self._limiter = limiter
        self._buffer = buffer
        self._live = live

    def __call__(self, sessions: Collection[str]) -> None:
        """Renew the slots of these, which were live a moment ago. Raises `QueueUnavailable`."""
        self._slots.refresh(sessions)
        # One that ended meanwhile has got its slot again, for nobody. One that waits for its client keeps it.
        for session in set(sessions).difference(self._live()):
            if not self._buffer.epoch(session):
                self._slots.release(session)
        self._limiter.keep()
