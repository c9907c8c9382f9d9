"""Sessions that have lost their connection: they wait for their client for a grace time, then somebody reaps them.

Who resumes a session takes it out of `unpark` first and takes it up (`AudioBuffer.take_up`) afterwards. Who reaps one
reads its epoch after it got it from `due`, asks `waits`, and forgets only what still has that epoch: so of the two one
has the session whole, whatever the order of their steps.
"""

from __future__ import annotations

import redis

from queueing.keys import QueueKeys
from queueing.scripts import guarded
from sessions.scripts import as_text, ask, run

AGAIN_S = 60.0
"""Should who reaps a session die over that, others try again after this."""


class Parking:
    """The parked sessions of one queue, of all front ends. Thread-safe; Redis time.

    Any verb raises `QueueUnavailable` when Redis is away.
    """

    def __init__(self, client: redis.Redis, queue_name: str, *, grace_s: float) -> None:
        self._client = client
        keys = QueueKeys(queue_name)
        self._streams, self._parked = keys.streams, keys.parked
        self._keys = [keys.streams, keys.parked]
        self._grace_ms = round(grace_s * 1000)

    def park(self, session: str, *, keep_slot: bool, now_ms: int = 0) -> None:
        """From now on the session waits; ``keep_slot``: with its slot, for it was cut off."""
        run(self._client, "park", self._keys, [now_ms, session, self._grace_ms, int(keep_slot)])

    def unpark(self, session: str) -> float | None:
        """Nobody shall reap it now: until when (Redis ms) it would have waited, None when it was not parked."""
        with guarded(), self._client.pipeline(transaction=False) as pipe:  # a full Redis refuses any transaction
            pipe.zscore(self._parked, session)
            pipe.zrem(self._parked, session)
            until, _ = pipe.execute()
        return None if until is None else float(until)

    def repark(self, session: str, until_ms: float) -> None:
        """Undo `unpark`."""
        with guarded():
            self._client.zadd(self._parked, {session: until_ms}, nx=True)

    def due(self, most: int, *, now_ms: int = 0) -> list[str]:
        """Up to ``most`` sessions that waited long enough, given to this caller only, for `AGAIN_S`."""
        _, (sessions,) = ask(self._client, "reap", self._keys, [now_ms, self._grace_ms, round(AGAIN_S * 1000), most])
        return [as_text(session) for session in sessions]

    def waits(self, session: str) -> bool:
        """Whether it is parked at this moment."""
        with guarded():
            return self._client.zscore(self._parked, session) is not None

    def forget(self, session: str) -> None:
        """Nothing is left of it: neither parked nor in a slot."""
        with guarded(), self._client.pipeline(transaction=False) as pipe:
            pipe.zrem(self._parked, session)
            pipe.zrem(self._streams, session)
            pipe.execute()
