"""A front end's one subscriber: deliveries from its channel to the session they belong to."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType
from typing import Self

import redis

from queueing.job import Delivery


class FrontListener:
    """One thread that listens on the channel of ``front`` and survives Redis restarts.

    ``on_reconnect(sessions)`` is called from that thread each time the subscription stands again after a loss, with
    the ids registered then: what was published meanwhile is only in their durable events.
    """

    def __init__(
        self,
        client: redis.Redis,
        front: str,
        *,
        rng: random.Random,
        on_reconnect: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        """``client``: its pool gives one connection to the subscription for good. ``rng``: jitter of the backoff."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start the thread; returns at once."""
        raise NotImplementedError

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait until the subscription stands; False when the time is up first."""
        raise NotImplementedError

    @property
    def connected(self) -> bool:
        """Whether the subscription stands at this moment."""
        raise NotImplementedError

    def register(self, session: str, callback: Callable[[Delivery], None]) -> None:
        """Hand this session's deliveries to ``callback``, which must not block (it puts into a mailbox)."""
        raise NotImplementedError

    def unregister(self, session: str) -> None:
        """No more calls for this session. Idempotent."""
        raise NotImplementedError

    def close(self) -> None:
        """End the thread and give its connection back. Idempotent."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
