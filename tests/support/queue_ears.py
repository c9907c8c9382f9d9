"""Hearing what the queue publishes, and reading Redis with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import redis

from queueing.job import Delivery
from queueing.job_queue import JobQueue
from queueing.keys import front_channel
from queueing.lane import all_lanes


class Ears:
    """A front end's subscription; a context manager."""

    def __init__(self, client: redis.Redis, front: str = "front-1") -> None:
        pubsub: Callable[..., Any] = client.pubsub
        self._client = client
        self._channel = front_channel(front)
        self._subscription = pubsub(ignore_subscribe_messages=True)
        self._subscription.subscribe(self._channel)
        self._subscription.get_message(timeout=5)

    def heard(self) -> list[Delivery]:
        """Everything published since the last call: what comes before a mark of our own."""
        self._client.publish(self._channel, "mark")
        found: list[Delivery] = []
        while message := self._subscription.get_message(timeout=5):
            if message["data"] == b"mark":
                return found
            found.append(Delivery.from_wire(message["data"]))
        raise AssertionError("the mark was not heard")

    def close(self) -> None:
        self._subscription.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def key_names(client: redis.Redis) -> list[str]:
    """Every key there is."""
    names: Any = client.execute_command("KEYS", "*")  # type: ignore[no-untyped-call]
    return sorted(name.decode() for name in names)


def scores(client: redis.Redis, queue: JobQueue) -> dict[str, float]:
    """The score of every waiting job."""
    found: dict[str, float] = {}
    for lane in all_lanes():
        jobs: Any = client.zrange(queue.keys.lane(lane), 0, -1, withscores=True)
        found |= {job_id.decode(): score for job_id, score in jobs}
    return found
