"""A Redis Cluster behind the face of one Redis: every command goes to the node that owns its keys' slot.

Commands and pipelines stay in one slot each (`keys` sees to that), so a command needs one node and a pipeline one
connection. Nothing is repeated unless its node said that it did not run it (MOVED, ASK): a claim whose reply was lost
must be repeated by its caller, with its nonce. A node that does not answer, MOVED and CLUSTERDOWN make the map of slots
old, so the next command asks for it anew.
"""

from __future__ import annotations

import itertools
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis
from redis.client import Pipeline, PubSub
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    MovedError,
    ResponseError,
    TryAgainError,
)

from queueing.slot_map import SLOTS, Address, SlotMap

MAX_REDIRECTIONS = 5

_KEYLESS = re.compile(
    r"(ACL|BGREWRITEAOF|BGSAVE|CLIENT|CLUSTER|COMMAND|CONFIG|DBSIZE|ECHO|FLUSHALL|FLUSHDB|INFO|KEYS|LASTSAVE|LATENCY|"
    r"PING|PUBLISH|PUBSUB|ROLE|SCAN|SCRIPT|SLOWLOG|TIME|WAIT)( |$)"
)
"""Commands whose first argument is no key: with no key to say where, one primary answers for itself alone."""

_EVERYWHERE = re.compile(r"FLUSHALL|FLUSHDB|SCRIPT|CONFIG SET|CLIENT KILL")
"""... but for these, which every primary gets; the first one's answer counts."""


def key_of(args: Sequence[Any]) -> Any | None:
    """The (first) key of a command as redis-py composes it; None for one without."""
    name = str(args[0]).upper()
    if name in ("EVAL", "EVALSHA"):
        return args[3] if int(args[2]) > 0 else None
    return None if _KEYLESS.match(name) or len(args) < 2 else args[1]


class ClusterRedis(redis.Redis):
    """Thread-safe. ``open_node`` makes a client of one node over a bounded pool, ``ask_node`` one with short timeouts
    for questions about the map; neither does I/O. At most the pool's connections are open to each node.
    """

    def __init__(
        self,
        seeds: Sequence[Address],
        open_node: Callable[[Address], redis.Redis],
        ask_node: Callable[[Address], redis.Redis],
    ) -> None:
        self.map = SlotMap(seeds, ask_node, self._keep_only)
        self._open_node = open_node
        self._lock = threading.Lock()
        self._clients: dict[Address, redis.Redis] = {}
        self._turn = itertools.count(secrets.randbelow(SLOTS))
        super().__init__(connection_pool=open_node(seeds[0]).connection_pool)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run a command at the node of its key. Raises as `redis.Redis` does."""
        key = key_of(args)
        if key is not None:
            return self._at_slot(self._slot(key), args, options)
        primaries = self.map.primaries()
        if _EVERYWHERE.match(str(args[0]).upper()):
            answers = [self._at(address, args, options) for address in primaries]
            return answers[0]
        return self._at(primaries[0], args, options)

    def node(self, address: Address) -> redis.Redis:
        """The client of one node."""
        with self._lock:
            if address not in self._clients:
                self._clients[address] = self._open_node(address)
            return self._clients[address]

    def node_of(self, key: str) -> redis.Redis:
        """The client of the node that owns ``key``."""
        return self.node(self.map.owner(self._slot(key)))

    def pipeline(self, transaction: bool = True, shard_hint: Any = None) -> Pipeline:
        """A pipeline whose keys share one slot; commands without a key run at its node."""
        return ClusterPipeline(self, transaction, shard_hint)

    def pubsub(self, **options: Any) -> PubSub:
        """A subscriber at one primary, the next one at each call: nodes pass on to all others what is published."""
        primaries = self.map.primaries()
        node = self.node(primaries[next(self._turn) % len(primaries)])
        found: PubSub = node.pubsub(**options)  # type: ignore[no-untyped-call]
        return found

    def scan_iter(self, *args: Any, **options: Any) -> Iterator[Any]:
        """The keys of all primaries."""
        for address in self.map.primaries():
            try:
                yield from self.node(address).scan_iter(*args, **options)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                self._doubt(address, error)
                raise

    def close(self) -> None:
        """Close every node's connections. Idempotent."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.connection_pool.disconnect()
        super().close()

    def run_pipeline(self, commands: Sequence[tuple[Any, Any]], transaction: bool) -> list[Any]:
        """The replies to the commands of one slot in order, errors among them; one round trip unless slots move."""
        keys = [key for args, _ in commands if (key := key_of(args)) is not None]
        slots = {self._slot(key) for key in keys}
        if len(slots) > 1:
            raise ClusterCrossSlotError(f"keys of a pipeline must share one slot, these do not: {keys[:5]}")
        slot = slots.pop() if slots else 0
        for _ in range(MAX_REDIRECTIONS):
            address = self.map.owner(slot)
            try:
                with self.node(address).pipeline(transaction) as pipe:
                    for args, options in commands:
                        pipe.execute_command(*args, **options)  # type: ignore[no-untyped-call]
                    replies = pipe.execute(raise_on_error=False)
            except MovedError as error:  # of a transaction: nothing of it has run
                self._moved(slot, error, address)
                continue
            except AskError as error:
                raise TryAgainError(f"slot {slot} is being moved: {error}") from error
            except (redis.ConnectionError, redis.TimeoutError, ClusterDownError) as error:
                self._doubt(address, error)
                raise
            return [
                self._again(args, options) if isinstance(reply, AskError) else reply
                for (args, options), reply in zip(commands, replies, strict=True)
            ]
        raise _too_often(slot)

    def _again(self, args: Any, options: Any) -> Any:
        """Run alone what a pipeline's node sent elsewhere."""
        try:
            return self.execute_command(*args, **options)
        except ResponseError as error:
            return error

    def _slot(self, key: Any) -> int:
        encoded: bytes = self.get_encoder().encode(key)  # type: ignore[no-untyped-call]
        return key_slot(encoded)

    def _at(self, address: Address, args: Any, options: Any) -> Any:
        try:
            return self.node(address).execute_command(*args, **options)  # type: ignore[no-untyped-call]
        except (redis.ConnectionError, redis.TimeoutError, ClusterDownError) as error:
            self._doubt(address, error)
            raise

    def _at_slot(self, slot: int, args: Any, options: Any) -> Any:
        for _ in range(MAX_REDIRECTIONS):
            address = self.map.owner(slot)
            try:
                return self._at(address, args, options)
            except MovedError as error:
                self._moved(slot, error, address)
            except AskError as error:
                try:
                    return self._ask(Address(error.host or address.host, error.port), args, options)
                except AskError:
                    self.map.doubt()
        raise _too_often(slot)

    def _ask(self, address: Address, args: Any, options: Any) -> Any:
        """Run a command of a slot that is on its way to this node."""
        try:
            with self.node(address).pipeline(transaction=False) as pipe:
                pipe.execute_command("ASKING")  # type: ignore[no-untyped-call]
                pipe.execute_command(*args, **options)  # type: ignore[no-untyped-call]
                _, reply = pipe.execute(raise_on_error=False)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            self._doubt(address, error)
            raise
        if isinstance(reply, Exception):
            raise reply
        return reply

    def _moved(self, slot: int, error: MovedError, asked: Address) -> None:
        self.map.moved(slot, Address(error.host or asked.host, error.port))

    def _doubt(self, address: Address, error: Exception) -> None:
        self.map.doubt(address)
        if not isinstance(error, ClusterDownError):  # what is idle is as dead as what has just failed
            self.node(address).connection_pool.disconnect(inuse_connections=False)

    def _keep_only(self, members: frozenset[Address]) -> None:
        """Forget the clients of nodes that have left."""
        with self._lock:
            gone = [self._clients.pop(address) for address in list(self._clients) if address not in members]
        for client in gone:
            client.connection_pool.disconnect(inuse_connections=False)


class ClusterPipeline(Pipeline):
    """Commands of one slot, collected and then run at its node. No WATCH."""

    def __init__(self, cluster: ClusterRedis, transaction: bool, shard_hint: Any) -> None:
        super().__init__(cluster.connection_pool, cluster.response_callbacks, transaction, shard_hint)
        self._cluster = cluster

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run what was collected; the replies in order. Raises as a plain pipeline does."""
        commands = list(self.command_stack)
        try:
            replies = self._cluster.run_pipeline(commands, bool(self.transaction)) if commands else []
        finally:
            self.reset()
        if raise_on_error:
            self.raise_first_error(commands, replies)  # type: ignore[no-untyped-call]
        return replies

    def immediate_execute_command(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError("a pipeline of a cluster cannot WATCH; use a script")


def node_of(client: redis.Redis, key: str) -> redis.Redis:
    """Whom to ask what has no key (TIME, INFO) of the server that holds ``key``: in a Cluster its node's client."""
    return client.node_of(key) if isinstance(client, ClusterRedis) else client


def _too_often(slot: int) -> redis.ConnectionError:
    return redis.ConnectionError(f"slot {slot} was moved {MAX_REDIRECTIONS} times during one command")
