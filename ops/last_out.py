"""Ends a server after those who use it, should the supervisor itself be killed (Linux).

A pipe tells when everybody is gone: each user of the server inherits its writing end, so the reading end is at its
end when the last of them has ended. A small process waits for that and then sends the server SIGTERM. Users
that are still there when their time is over are killed, as the supervisor would have done. Run by path as
``last_out.py SUPERVISOR_PID SERVER_PID PATIENCE_S`` with ``python -I -S``, so it stands on the standard library alone.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress

PIPE = 0
"""The reading end is the standard input."""


class LastOut:
    """The pipe and the watching process. Close it when the server was stopped in good order."""

    def __init__(self, patience_s: float) -> None:
        """``patience_s``: how long users may take to end after the supervisor; then they are killed."""
        self._patience_s = patience_s
        self._read, self._write = os.pipe()
        self._watchers: list[subprocess.Popen[bytes]] = []

    @staticmethod
    def possible() -> bool:
        """Whether this kernel has what it takes: process descriptors, Linux 5.3."""
        if not hasattr(os, "pidfd_open"):
            return False
        try:
            os.close(os.pidfd_open(os.getpid()))
        except OSError:
            return False
        return True

    @property
    def pass_fds(self) -> tuple[int, ...]:
        """What every user of the server must inherit."""
        return (self._write,)

    def guard(self, server_pid: int) -> None:
        """Watch over this server, a child of this process, until it ends."""
        self._watchers = [watcher for watcher in self._watchers if watcher.poll() is None]
        command = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
        self._watchers.append(
            subprocess.Popen(
                [*command, str(os.getpid()), str(server_pid), str(self._patience_s)],
                stdin=self._read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )

    def close(self) -> None:
        """The server is gone: end the watching too. Idempotent."""
        for watcher in self._watchers:
            watcher.kill()
            watcher.wait()
        self._watchers.clear()
        if self._read >= 0:
            os.close(self._read)
            os.close(self._write)
            self._read = self._write = -1


def kill_holders() -> None:
    """SIGKILL for every other process that holds an end of the pipe."""
    pipe = os.readlink(f"/proc/self/fd/{PIPE}")
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        if pid == os.getpid():
            continue
        # A process may end at any moment, and another user's cannot be looked into.
        with suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                if any(_target(f"/proc/{pid}/fd/{number}") == pipe for number in os.listdir(f"/proc/{pid}/fd")):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""  # closed meanwhile


def main() -> None:
    supervisor, server, patience_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        handle = os.pidfd_open(server)
    except ProcessLookupError:
        return
    events = select.poll()
    events.register(PIPE, select.POLLIN)
    events.register(handle, select.POLLIN)
    while patience_s > 0:
        ready = {descriptor for descriptor, _ in events.poll(1000)}
        if handle in ready:
            return
        if PIPE in ready:
            break
        if os.getppid() != supervisor:
            patience_s -= 1
    else:
        kill_holders()
    signal.pidfd_send_signal(handle, signal.SIGTERM)


if __name__ == "__main__":
    main()
