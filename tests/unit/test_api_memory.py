"""A process of many threads and long life gives back what it does not need."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc is left alone")

THREADS = """
import ctypes, sys, threading
from api.memory import share_one_arena
if sys.argv[1] == "shared":
    share_one_arena()
met = threading.Barrier(6)
def work():
    kept = [bytearray(5_000) for _ in range(100)]
    met.wait()
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""

HOLES = """
from api.memory import TRIM_EVERY, Trimming
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
trimming, audio = Trimming(), [bytearray(60_000) for _ in range(2_000)]
full = resident()
del audio[::2]
for _ in range(TRIM_EVERY - 1):
    trimming.beat()
before = resident()
trimming.beat()
print(full, before, resident())
"""


def run(script: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True).stdout


def test_threads_share_one_arena() -> None:
    assert run(THREADS, "shared").count("<heap ") == 1
    assert run(THREADS, "each its own").count("<heap ") > 1


def test_holes_are_given_back_now_and_then() -> None:
    full, before, after = map(int, run(HOLES).split())
    assert before > 0.9 * full
    assert after < 0.7 * full
