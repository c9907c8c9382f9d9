"""Asks every web process for its health and its metrics, once a second: ``python -m ops.soak_probe PORT ...``.

A process of its own, as a load balancer or Prometheus is: beside threads that read all of /proc, it would measure them.
A timer beside the probes says how late this process itself was served: what the machine, not the service, held up.
Each line of standard output is a `Probe`. It ends with standard input.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from queueing.clock import Clock, SystemClock

PROBE_PATHS = ("/health", "/metrics")
PROBE_TIMEOUT_S = 5.0
EVERY_S = 1.0
TIMER_S = 0.005


@dataclass(frozen=True, slots=True)
class Probe:
    """One request: when (monotonic), how long it took, and what was wrong, if anything."""

    at: float
    path: str
    seconds: float
    problem: str = ""
    timer_late_s: float = 0.0
    """How late a timer of the prober was meanwhile, at most."""


class Timer:
    """A thread that does nothing but sleep for `TIMER_S`, and notes how late it wakes up."""

    def __init__(self, clock: Clock, over: threading.Event) -> None:
        self._clock = clock
        self._over = over
        self._worst_s = 0.0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        begin = self._clock.monotonic()
        while not self._over.wait(TIMER_S):
            now = self._clock.monotonic()
            self._worst_s = max(self._worst_s, now - begin - TIMER_S)
            begin = now

    def worst_s(self) -> float:
        """Since the last call."""
        worst_s, self._worst_s = self._worst_s, 0.0
        return worst_s


def probe(port: int, path: str, clock: Clock, timer: Timer) -> Probe:
    """One GET on a connection of its own."""
    timer.worst_s()
    begin = clock.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_TIMEOUT_S)
    problem = ""
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        if response.status != 200:
            problem = f"HTTP {response.status}"
    except (OSError, http.client.HTTPException) as error:
        problem = f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    return Probe(begin, path, clock.monotonic() - begin, problem, timer.worst_s())


def main(ports: Sequence[int], clock: Clock) -> None:
    """Probe until standard input ends."""
    over = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    timer = Timer(clock, over)
    while not over.wait(EVERY_S):
        for port in ports:
            for path in PROBE_PATHS:
                sys.stdout.write(json.dumps(asdict(probe(port, path, clock, timer))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main([int(port) for port in sys.argv[1:]], SystemClock())
