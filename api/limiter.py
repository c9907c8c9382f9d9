"""What one client may have: streams and requests of one address, streams and audio of one API key.

Streams and requests are counted in Redis, over all front ends. The audio of a key is let through by each process in the
share of the key's streams that it serves. Addresses of this machine do not count: who connects from here is the
operator, or a proxy that nobody has named in ``HEARLINE_TRUSTED_PROXIES``, behind which all would pass for one client.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flask import request

from api.addresses import Network, owner_name, sender_of
from api.admission import Refusal
from api.keys import ANYBODY, Principal
from api.pace import Pace, SharedRate
from queueing.clock import Clock
from queueing.errors import QueueUnavailable
from sessions.codes import ErrorCode
from sessions.owners import OverLimit, Owner, StreamOwners

MANY_RETRY_S = 10
FAST_RETRY_S = 60


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """From the settings; 0 is no limit."""

    streams_per_address: int = 0
    tries_per_address: int = 0
    stream_rate: float = 0.0
    trusted: Sequence[Network] = ()


class Limiter:
    """One for all streams of a process. Thread-safe."""

    def __init__(self, owners: StreamOwners, clock: Clock, limits: ClientLimits) -> None:
        self._owners = owners
        self._clock = clock
        self._limits = limits
        self._lock = threading.Lock()
        self._held: dict[str, tuple[str, tuple[str, ...]]] = {}
        """connection -> the session it is counted as, names of its owners."""
        self._rates: dict[str, SharedRate] = {}
        self._gone: list[tuple[str, tuple[str, ...]]] | None = None
        """What stopped counting while `keep` renews what counted before; None while it does not."""

    def take(self, connection: str, principal: Principal = ANYBODY, *, back: bool = False) -> Refusal | None:
        """Count the stream that the current request asks for, under the connection's own name; or why it may not be.
        ``back``: for a stream that is counted already, as its server may not have noticed that its connection is lost.
        So there may be twice as many, until `go_on`. Raises `QueueUnavailable`."""
        owners = self._owners_of(principal)
        if not owners:
            return None
        asked = [replace(owner, max_streams=2 * owner.max_streams) for owner in owners] if back else owners
        over = self._owners.add(connection, asked, back=back)
        if over is not None:
            own = owners[asked.index(over.owner)]
            return _refusal(OverLimit(own, over.too_fast), back=back)
        with self._lock:
            self._held[connection] = (connection, tuple(owner.name for owner in owners))
        return None

    def go_on(self, connection: str, session: str) -> None:
        """The connection goes on with this session: it is counted as that, once. Raises `QueueUnavailable`."""
        with self._lock:
            was, names = self._held.get(connection, ("", ()))
        if names:
            self._owners.add(session, [Owner(name) for name in names])
            with self._lock:
                self._held[connection] = (session, names)
                self._note_gone(was, names)
            self._owners.remove(was, names)

    def give_back(self, connection: str, *, keep: bool = False) -> None:
        """The stream has ended, or did not begin. ``keep``: it waits for its client, or goes on elsewhere, and counts
        until nobody renews that. Idempotent; without Redis it stops counting by itself."""
        with self._lock:
            session, names = self._held.pop(connection, ("", ()))
            if not keep:
                self._note_gone(session, names)
            live = {name for _, held in self._held.values() for name in held} if names else set()
            for name in names:
                if name not in live:
                    self._rates.pop(name, None)
        if names and not keep:
            try:
                self._owners.remove(session, names)
            except QueueUnavailable:
                return

    def keep(self) -> None:
        """Renew what counts, and each key's share of its rate. Raises `QueueUnavailable`."""
        with self._lock:
            held, self._gone = dict(self._held.values()), []
        try:
            counts = self._owners.keep(held)
        finally:
            with self._lock:
                gone, self._gone = self._gone, None
        for session, gone_names in gone:
            self._owners.remove(session, gone_names)
        here = Counter(name for names in held.values() for name in names)
        with self._lock:
            for name, rate in self._rates.items():
                if counts.get(name):
                    rate.set_share(min(1.0, here[name] / counts[name]))

    def _note_gone(self, session: str, names: tuple[str, ...]) -> None:
        if self._gone is not None and names:
            self._gone.append((session, names))

    def pace(self, principal: Principal = ANYBODY) -> Pace:
        """How fast a stream of this principal is read."""
        wanted, shared = principal.limits.max_audio_rate, None
        if wanted is not None:
            with self._lock:
                name = _key_name(principal)
                shared = self._rates.get(name)
                if shared is None or shared.audio_rate != wanted:
                    shared = self._rates[name] = SharedRate(self._clock, wanted)
        return Pace(self._clock, self._limits.stream_rate, shared)

    def _owners_of(self, principal: Principal) -> list[Owner]:
        found, limits = list[Owner](), self._limits
        if limits.streams_per_address or limits.tries_per_address:
            address = sender_of(request, limits.trusted)
            if address is not None and not address.is_loopback:
                found.append(Owner(owner_name(address), limits.streams_per_address, limits.tries_per_address))
        allowed = principal.limits
        if allowed.max_streams is not None or allowed.max_audio_rate is not None:
            found.append(Owner(_key_name(principal), allowed.max_streams or 0))
        return found


def _key_name(principal: Principal) -> str:
    return f"key:{principal.label}"


def _refusal(over: OverLimit, *, back: bool) -> Refusal:
    kind, _, name = over.owner.name.partition(":")
    if over.too_fast:
        reason, limit = "address_tries", f"{over.owner.max_tries} requests a minute (HEARLINE_MAX_TRIES_PER_ADDRESS)"
    elif kind == "address":
        reason, limit = "address_streams", f"{over.owner.max_streams} streams (HEARLINE_MAX_STREAMS_PER_ADDRESS)"
    else:
        reason, limit = "key_streams", f"{over.owner.max_streams} streams (max_streams of the key)"
    who = f"the API key {name!r}" if kind == "key" else f"the address {name}"
    if not over.too_fast:
        limit += (
            " and as many connections that come back for one"
            if back
            else "; to go on with one that lost its connection, connect to /v1/stream?resume=1"
        )
    proxy = "; if that is a proxy, name it in HEARLINE_TRUSTED_PROXIES" if kind == "address" else ""
    return Refusal(
        429,
        reason,
        ErrorCode.RATE_LIMITED,
        f"{who} has reached its limit of {limit}{proxy}",
        retry_after_s=FAST_RETRY_S if over.too_fast else MANY_RETRY_S,
    )
