"""Run a command that ends when its parent ends: ``tether.py PARENT_PID PROGRAM [ARGUMENT ...]`` (Linux).

Started by path with ``python -I -S`` and so standing on the standard library alone. The kernel sends the
program SIGTERM when the parent dies, whatever killed it: no orphan keeps the port or the queue.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h; survives execve, is bound to the thread that started this process."""


def tether() -> list[str]:
    """What to put before a command so that it ends with this process; nothing where the kernel does not offer it.

    The thread that starts the command must live as long as the command.
    """
    if sys.platform != "linux":
        return []
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(os.getpid())]


def main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0) != 0:
        sys.stderr.write(f"cannot tie {program[0]} to its parent: {os.strerror(ctypes.get_errno())}\n")
    if os.getppid() != parent:
        sys.exit(f"{program[0]} is not started: its parent {parent} is gone")
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]}: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
