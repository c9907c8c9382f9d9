"""Real Redis servers put together by the test: a primary with a replica and Sentinels, a Cluster."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from ops.redis_server import find_server
from queueing.local_redis import free_port
from tests.support.eventually import eventually
from tests.support.standstill import stop

BUS = 10_000
"""A Cluster's nodes talk to each other on their port plus this, unless told otherwise (which Redis 6.2 cannot be)."""

SERVICE = "hearline"
DOWN_AFTER_MS = 500
NODE_TIMEOUT_MS = 1_000
SLOTS = 16_384


class Server:
    """One server process with a folder and configuration of its own."""

    def __init__(self, folder: Path, *config: str, flags: tuple[str, ...] = ()) -> None:
        self.port = port_with_bus()
        own = folder / str(self.port)
        own.mkdir()
        self.log = own / "log"
        self._config = own / "server.conf"
        lines = (f"port {self.port}", "bind 127.0.0.1", f"dir {own}", f"logfile {self.log}", *config)
        self._config.write_text("\n".join(lines) + "\n")
        self._flags = flags
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def call(self, *args: object) -> Any:
        """The answer to one command, on a connection of its own."""
        with redis.Redis(port=self.port, socket_timeout=5) as client:
            return client.execute_command(*args)

    def start(self) -> None:
        """Start it, also again after `kill`."""
        self._process = subprocess.Popen(
            [str(find_server()), str(self._config), *self._flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(self._answers, what=f"an answer at {self.place}")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text() if self.log.exists() else "it did not start"
        try:
            return bool(self.call("PING"))
        except (redis.ConnectionError, redis.TimeoutError):
            return False

    def kill(self) -> None:
        """SIGKILL. Idempotent."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP: it answers nothing any more, and its connections stay open."""
        assert self._process is not None
        stop(self._process.pid)


def port_with_bus() -> int:
    """A free port whose Cluster bus port is free too."""
    while True:
        port = free_port()
        with socket.socket() as bus:
            try:
                bus.bind(("127.0.0.1", port + BUS))
            except (OSError, OverflowError):
                continue
        return port


class _Group:
    """Servers that end together."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="hearline-redis-")))

    def _start(self, *config: str, flags: tuple[str, ...] = ()) -> Server:
        server = Server(self._folder, *config, flags=flags)
        self._stack.callback(server.kill)
        return server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


class Sentinels(_Group):
    """A primary, its replica, and three Sentinels that know both and each other."""

    def __init__(self) -> None:
        super().__init__()
        store = ('save ""', "repl-diskless-sync yes", "repl-diskless-sync-delay 0")
        self.primary = self._start(*store)
        self.replica = self._start(*store, f"replicaof 127.0.0.1 {self.primary.port}")
        eventually(lambda: self.replica.call("ROLE")[3] == b"connected", what="a replica in step")
        self.sentinels = [
            self._start(
                f"sentinel monitor {SERVICE} 127.0.0.1 {self.primary.port} 2",
                f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
                f"sentinel failover-timeout {SERVICE} 3000",
                flags=("--sentinel",),
            )
            for _ in range(3)
        ]
        eventually(lambda: all(self._knows_all(one) for one in self.sentinels), what="Sentinels that know each other")

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(one.place for one in self.sentinels)}/{SERVICE}/0"

    def primary_port(self) -> int:
        """The port of the primary, as the first Sentinel has it."""
        _, port = self.sentinels[0].call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE)
        return int(port)

    @staticmethod
    def _knows_all(sentinel: Server) -> bool:
        state: dict[str, Any] = sentinel.call("SENTINEL MASTER", SERVICE)
        return bool(state["num-slaves"] == 1 and state["num-other-sentinels"] == 2)


class Cluster(_Group):
    """A Cluster of ``primaries`` nodes that share the slots evenly; with ``replicas`` each has one."""

    def __init__(self, primaries: int = 3, *, replicas: bool = False, full_coverage: bool = True) -> None:
        super().__init__()
        config = (
            'save ""',
            "cluster-enabled yes",
            f"cluster-node-timeout {NODE_TIMEOUT_MS}",
            f"cluster-require-full-coverage {'yes' if full_coverage else 'no'}",
            "repl-diskless-sync yes",
            "repl-diskless-sync-delay 0",
        )
        self.primaries = [self._start(*config) for _ in range(primaries)]
        self.replicas = [self._start(*config) for _ in self.primaries if replicas]
        nodes = [*self.primaries, *self.replicas]
        for index, node in enumerate(self.primaries):
            first, last = index * SLOTS // primaries, (index + 1) * SLOTS // primaries
            node.call("CLUSTER ADDSLOTS", *range(first, last))
        for index, node in enumerate(nodes):
            node.call("CLUSTER SET-CONFIG-EPOCH", index + 1)
            node.call("CLUSTER MEET", "127.0.0.1", self.primaries[0].port)
        eventually(lambda: all(node.call("CLUSTER NODES").keys() >= self._places(nodes) for node in nodes))
        for primary, replica in zip(self.primaries, self.replicas, strict=False):
            replica.call("CLUSTER REPLICATE", self.id_of(primary))
        eventually(lambda: all(node.call("CLUSTER INFO")["cluster_state"] == "ok" for node in nodes), what="a Cluster")
        eventually(lambda: all(one.call("ROLE")[3] == b"connected" for one in self.replicas), what="replicas in step")

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(node.place for node in self.primaries)}"

    @staticmethod
    def id_of(node: Server) -> str:
        """A node's id."""
        return str(node.call("CLUSTER MYID").decode())

    def owner(self, key: str) -> Server:
        """The primary that was given the slot of ``key``."""
        slot = int(self.primaries[0].call("CLUSTER KEYSLOT", key))
        return next(node for i, node in enumerate(self.primaries) if slot < (i + 1) * SLOTS // len(self.primaries))

    @staticmethod
    def _places(nodes: list[Server]) -> set[str]:
        return {node.place for node in nodes}
