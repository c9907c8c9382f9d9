"""How often an address may come with a wrong key."""

from __future__ import annotations

import threading
from collections import OrderedDict

from api.rates import TokenBucket
from queueing.clock import Clock

MOST_ADDRESSES = 4_096
BURST = 20
PER_S = 0.2


class WrongKeys:
    """Counts wrong keys by address. Bounded: beyond `MOST_ADDRESSES` the one that was quiet longest is forgotten.
    Thread-safe.

    A right key is let in whatever else came from its address, which may be that of a proxy before everybody. So this
    protects logs and attention, not the keys: 256 random bits need no limit on guesses.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def one_more(self, address: str) -> float:
        """Note a wrong key; seconds until the next may come, 0 when that was allowed."""
        with self._lock:
            bucket = self._buckets.get(address)
            if bucket is None:
                bucket = self._buckets[address] = TokenBucket(self._clock, BURST, PER_S)
                if len(self._buckets) > MOST_ADDRESSES:
                    self._buckets.popitem(last=False)
            self._buckets.move_to_end(address)
            if bucket.tokens() < 1:  # not overdrawn: who goes on trying waits no longer for it
                return bucket.wait_s()
            bucket.spend()
            return 0.0
