"""Connects and disconnects at random moments, again and again; afterwards nothing may be left behind."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import psutil

from ops import soak_wire as wire
from ops.soak_leftovers import Leftovers
from ops.soak_run import SETTLE_S, Say, SoakPlan, Stage, stage
from queueing.clock import Clock

MOMENTS = (
    "connected", "in_handshake", "upgraded", "started", "mid_frame", "queued_partial", "decoding", "partial_heard",
    "after_end", "final_heard", "done",
)  # fmt: skip
"""When a client leaves: in this order in the life of a stream."""
WAYS = ("reset", "gone", "close")
"""How: by TCP reset, by closing the socket, by a WebSocket close before that."""
GRACE_S = 2.0
"""How long the service of this run holds the session of a lost socket."""
SCRIPT = {"base_s": 0.15, "per_job_s": 0.0, "per_audio_s": 0.02}
SPEECH_BYTES = 48_000
ANSWER_S = 20.0
WARM = 4
"""So many times the clients are open at once before the counting: the threads that the service keeps are there then."""
EXPECTED_DEATH = "audio_missing"
"""A session that ends takes its audio away before its jobs: a worker that claims one in between finds none."""
END = wire.text_frame({"type": "end"})


def cycles(plan: SoakPlan, count: int, clients: int, clock: Clock, say: Say) -> dict[str, Any]:
    """Run ``count`` cycles by ``clients`` threads; the report."""
    environment = {**plan.environment, "HEARLINE_RESUME_GRACE_S": str(GRACE_S)}
    plan = replace(plan, streams=WARM * clients, script=SCRIPT, environment=environment)
    speech = _speech(plan.pcm)
    tally = Tally(say)
    with stage(plan, clock) as ready:
        warm = [Client(ready, clock, speech, random.Random(f"{plan.seed}:warm"), tally) for _ in range(WARM * clients)]
        _all_at_once(warm)
        before = ready.inspector.settled(SETTLE_S)
        memory_before = _memory(ready)
        begin = clock.monotonic()
        threads = [
            threading.Thread(
                target=_some_cycles,
                args=(
                    Client(ready, clock, speech, random.Random(f"{plan.seed}:{index}"), tally),
                    count // clients + (index < count % clients),
                ),
                daemon=True,
            )
            for index in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s = clock.monotonic() - begin

        def base_line(found: Leftovers) -> bool:
            return not found.problems(before)

        after = ready.inspector.settled(SETTLE_S + GRACE_S, base_line)
        memory_after = _memory(ready)
        counts, dead = ready.inspector.outcomes(), ready.inspector.dead()
    return {
        "cycles": count, "clients": clients, "seed": plan.seed, "seconds": round(took_s, 1),
        "moments": dict(sorted(tally.moments.items())), "reached": dict(sorted(tally.reached.items())),
        "ways": dict(sorted(tally.ways.items())), "refused": tally.refused, "jobs": counts,
        "dead": dead,
        "before": _fields(before), "after": _fields(after),
        "rss_bytes": {name: [memory_before[name], memory_after.get(name)] for name in memory_before},
        "violations": [*tally.faults, *after.problems(before),
                       *(f"dead: {one}" for one in dead if EXPECTED_DEATH not in one)],
    }  # fmt: skip


def cycle_table(report: Mapping[str, Any]) -> str:
    """The report for people."""
    lines = [
        f"{report['cycles']} cycles by {report['clients']} clients in {report['seconds']} s, seed {report['seed']}",
        f"left at: {report['moments']}",
        f"before: {report['before']}",
        f"after:  {report['after']}",
        *(
            f"{name}: RSS {first / 2**20:.1f} -> {(last or 0) / 2**20:.1f} MiB"
            for name, (first, last) in report["rss_bytes"].items()
        ),
    ]
    lines += [f"VIOLATION {one}" for one in report["violations"]] or ["no violation"]
    return "\n".join(lines)


class Tally:
    """What the clients did. Thread-safe."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._lock = threading.Lock()
        self.moments: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.faults: list[str] = []
        self.refused = 0

    def cycle(self, moment: str, way: str, reached: bool) -> None:
        """A client left; ``reached``: at the moment that it wanted to."""
        with self._lock:
            self.moments[moment] += 1
            self.ways[way] += 1
            self.reached[moment] += reached
            done = sum(self.moments.values())
        if done % 100 == 0:
            self._say(f"{done} cycles")

    def fault(self, text: str) -> None:
        with self._lock:
            self.faults.append(text)


class Client:
    """One client of many lives; used by one thread."""

    def __init__(self, ready: Stage, clock: Clock, speech: Callable[[random.Random], bytes], rng: random.Random,
                 tally: Tally) -> None:  # fmt: skip
        self._ready = ready
        self._clock = clock
        self._speech = speech
        self._rng = rng
        self._tally = tally
        self._pause = threading.Event()

    def cycle(self) -> None:
        """Connect, go on to a random moment, leave in a random way."""
        moment, way = self._rng.choice(MOMENTS), self._rng.choice(WAYS)
        address = self._rng.choice(self._ready.addresses)
        with socket.create_connection(address, timeout=ANSWER_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            reached = False
            try:
                reached = self._live(connection, address, MOMENTS.index(moment))
            except OSError as error:
                self._tally.fault(f"{moment}: {type(error).__name__}: {error}")
            self._leave(connection, way)
        self._tally.cycle(moment, way, reached)

    def hold(self, everyone: threading.Barrier) -> None:
        """Open a stream, be heard, wait for all others to be, finish."""
        address = self._ready.addresses[0]
        with socket.create_connection(address, timeout=ANSWER_S) as connection:
            incoming = self._upgrade(connection, address)
            connection.sendall(wire.frame(wire.BINARY, self._speech(self._rng)))
            everyone.wait(ANSWER_S)
            connection.sendall(END)
            if incoming is not None:
                self._await(connection, incoming, "done")
            self._leave(connection, "close")

    def _live(self, connection: socket.socket, address: tuple[str, int], until: int) -> bool:
        rng = self._rng
        if until == 0:
            self._wait(0.02)
            return True
        if until == 1:
            request = wire.upgrade_request(*address)
            connection.sendall(request[: rng.randrange(1, len(request))])
            self._wait(0.02)
            return True
        incoming = self._upgrade(connection, address)
        if incoming is None:
            return False
        if until >= 3:
            connection.sendall(wire.text_frame({"type": "start"}))
        if until <= 3:
            self._wait(0.02)
            return True
        audio = wire.frame(wire.BINARY, self._speech(rng))
        if until == 4:
            connection.sendall(audio[: rng.randrange(1, len(audio))])
            self._wait(0.02)
            return True
        connection.sendall(audio)
        if until <= 6:
            self._wait(0.02 if until == 5 else 0.2)
            return True
        if until == 7:
            return self._await(connection, incoming, "partial")
        connection.sendall(END)
        if until == 8:
            self._wait(0.2)
            return True
        return self._await(connection, incoming, "final" if until == 9 else "done")

    def _upgrade(self, connection: socket.socket, address: tuple[str, int]) -> wire.Incoming | None:
        connection.sendall(wire.upgrade_request(*address))
        incoming = wire.Incoming()
        while (head := incoming.head(connection.recv(65_536))) is None:
            pass
        if b" 101 " in head.split(b"\r\n", 1)[0]:
            return incoming
        self._tally.refused += 1
        return None

    def _await(self, connection: socket.socket, incoming: wire.Incoming, kind: str) -> bool:
        """Read until a message of this kind came; False when the server closed before."""
        wanted = f'{{"type":"{kind}"'.encode()
        give_up_s = self._clock.monotonic() + ANSWER_S
        data = b""
        while self._clock.monotonic() < give_up_s:
            for found, payload in incoming.frames(data):
                if found == wire.CLOSE:
                    return False
                if found == wire.TEXT and payload.startswith(wanted):
                    return True
            data = connection.recv(65_536)
            if not data:
                return False
        return False

    def _wait(self, longest_s: float) -> None:
        self._pause.wait(self._rng.uniform(0, longest_s))

    @staticmethod
    def _leave(connection: socket.socket, way: str) -> None:
        with suppress(OSError):
            if way == "close":
                connection.sendall(wire.close_frame())
            elif way == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _some_cycles(client: Client, count: int) -> None:
    for _ in range(count):
        client.cycle()


def _all_at_once(clients: list[Client]) -> None:
    everyone = threading.Barrier(len(clients))
    threads = [threading.Thread(target=client.hold, args=(everyone,), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _speech(pcm: bytes) -> Callable[[random.Random], bytes]:
    """Pieces of the loudest parts, so that somebody speaks from their beginning."""
    samples = np.abs(np.frombuffer(pcm, "<i2").astype(np.int32))
    starts = range(0, max(1, len(samples) - SPEECH_BYTES // 2), 1_600)
    loudness = {start: float(samples[start : start + 4_800].mean()) for start in starts}
    loud = sorted(starts, key=lambda start: -loudness[start])[:50]

    def piece(rng: random.Random) -> bytes:
        start = 2 * rng.choice(loud)
        return pcm[start : start + SPEECH_BYTES]

    return piece


def _memory(ready: Stage) -> dict[str, int]:
    found = {}
    for process in ready.inspector.web_processes():
        with suppress(psutil.Error):
            found[f"web {process.pid}"] = int(process.memory_info().rss)
    return found


def _fields(found: Leftovers) -> dict[str, Any]:
    return {**found.nothing(), "threads": found.threads, "other descriptors": found.other_fds, "keys": found.by_kind}
