"""Which node of a Redis Cluster owns which slot: asked for when it is first needed, and again when it may be old."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import redis

SLOTS = 16_384


class Address(NamedTuple):
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class SlotMap:
    """Thread-safe. ``ask_node`` makes a client with short timeouts for one question; ``on_renewed`` is called with all
    nodes, replicas too, whenever they were asked for.

    Nodes are asked in turn, the one that has just failed last, so that an old map of one node does no harm for long.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        ask_node: Callable[[Address], redis.Redis],
        on_renewed: Callable[[frozenset[Address]], None],
    ) -> None:
        self._seeds = tuple(seeds)
        self._ask_node = ask_node
        self._on_renewed = on_renewed
        self._asking = threading.Lock()
        self._owners: list[Address | None] | None = None
        self._members: frozenset[Address] = frozenset()
        self._is_old = True
        self._suspect: Address | None = None
        self._turn = itertools.count(secrets.randbelow(SLOTS))
        """Where the next question goes: not all clients to the same node."""

    def owner(self, slot: int) -> Address:
        """The primary of a slot. Raises ConnectionError when none serves it, or no node answers."""
        owner = self._current()[slot]
        if owner is None:
            self._is_old = True
            raise redis.ConnectionError(f"no node of the cluster serves slot {slot}")
        return owner

    def primaries(self) -> list[Address]:
        """The nodes that own slots, in a fixed order. Raises ConnectionError when no node says which they are."""
        return sorted({owner for owner in self._current() if owner is not None})

    def uncovered(self) -> int:
        """How many slots no node serves. Raises as `primaries` does."""
        return sum(owner is None for owner in self._current())

    def moved(self, slot: int, address: Address) -> None:
        """A node says that this one has the slot now."""
        self._current()[slot] = address
        self._is_old = True

    def doubt(self, suspect: Address | None = None) -> None:
        """The map may be old; ``suspect`` does not answer."""
        self._suspect, self._is_old = suspect or self._suspect, True

    def _current(self) -> list[Address | None]:
        """Slot -> owner. While one thread asks for a new map the others go by the old one."""
        owners = self._owners
        if (owners is None or self._is_old) and self._asking.acquire(blocking=owners is None):
            try:
                if self._owners is None or self._is_old:
                    self._renew()
            finally:
                self._asking.release()
        if self._owners is None:
            raise redis.ConnectionError("no node of the cluster answers")
        return self._owners

    def _renew(self) -> None:
        self._is_old = False
        suspect, self._suspect = self._suspect, None
        known = sorted(self._members.union(self._seeds))
        turn = next(self._turn) % len(known)
        problems = []
        for address in sorted([*known[turn:], *known[:turn]], key=lambda one: one == suspect):
            try:
                with self._ask_node(address) as client:
                    ranges: Any = client.execute_command("CLUSTER SLOTS")
            except (redis.RedisError, OSError) as error:
                problems.append(f"{address}: {error}")
                continue
            if ranges:
                self._take(ranges, address)
                return
            problems.append(f"{address}: it belongs to no cluster")
        self._is_old = True
        raise redis.ConnectionError(f"no node of the cluster says who owns which slots ({'; '.join(problems)})")

    def _take(self, ranges: Sequence[Any], asked: Address) -> None:
        owners: list[Address | None] = [None] * SLOTS
        members = set()
        for first, last, *nodes in ranges:
            addresses = [_address(node, asked) for node in nodes]
            members.update(addresses)
            owners[int(first) : int(last) + 1] = [addresses[0]] * (int(last) - int(first) + 1)
        self._owners, self._members = owners, frozenset(members)
        self._on_renewed(self._members)


def _address(node: Sequence[Any], asked: Address) -> Address:
    """A node of CLUSTER SLOTS; one that does not know its own address is reached as the one that was asked."""
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return Address(asked.host if host in (None, "", "?") else str(host), int(node[1]))
