"""One soak: a whole service with scripted workers, generators beside it, a watch over both."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import redis

from ops import run_file
from ops.errors import Failed
from ops.procfile import python_module
from ops.service_bench_process import Service, Setup, running
from ops.soak_generator import ANSWER_S, ENDING_S, PER_S, GeneratorPlan
from ops.soak_leftovers import Inspector, Leftovers
from ops.soak_report import Window, latencies, probes, processes, spread, thirds
from ops.soak_watch import ProcessLook, Watch, Watched
from ops.tether import tether
from queueing.clock import Clock
from queueing.connect import connect

Say = Callable[[str], None]

SETTLE_S = 20.0
SPARE_STREAMS = 32
SCRIPT = {"base_s": 0.03, "per_job_s": 0.004, "per_audio_s": 0.002}
"""Decode times of a worker with a GPU: they wait, and leave the CPU to what is measured."""

FULL_SOON = {"HEARLINE_AUDIO_CACHE_BYTES": "4194304"}
"""A worker's cache grows until it is full, which takes its usual size half an hour: not what a run shall judge."""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """What to run; ``minutes`` counts from the first stream to the moment when the last ones are told to end."""

    streams: int
    minutes: float
    web: int
    workers: int
    frame_ms: int
    short: float
    short_s: float
    seed: int
    generators: int
    pcm: bytes
    script: Mapping[str, float]
    environment: Mapping[str, str]


@dataclass(slots=True)
class Outcome:
    """A report and what it was made of."""

    report: dict[str, Any]
    watched: Watched
    window: Window
    progress: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Stage:
    """A service ready to be loaded."""

    service: Service
    client: redis.Redis
    addresses: list[tuple[str, int]]
    inspector: Inspector
    folder: Path


@contextmanager
def stage(plan: SoakPlan, clock: Clock) -> Iterator[Stage]:
    """The service for the length of a ``with``. Raises `Failed` when it does not get ready."""
    with tempfile.TemporaryDirectory(prefix="hearline-soak-") as scratch:
        folder = Path(scratch)
        (folder / "script.json").write_text(json.dumps(dict(plan.script)))
        (folder / "audio.pcm").write_bytes(plan.pcm)
        capacity = str(plan.streams + SPARE_STREAMS)
        settings = {
            "HEARLINE_TRANSCRIBER": "scripted", "HEARLINE_SCRIPT": str(folder / "script.json"),
            "HEARLINE_MAX_STREAMS": capacity, "HEARLINE_PROCESS_STREAMS": capacity,
            "HEARLINE_HOST": "127.0.0.1", "HEARLINE_LOG_LEVEL": "warning",
        }  # fmt: skip
        environment = {**FULL_SOON, **plan.environment, **settings}
        with running(Setup(plan.workers, "priority", environment, plan.web)) as service:
            port = int(service.http.rpartition(":")[2])
            addresses = [("127.0.0.1", port + index) for index in range(plan.web)]
            record = run_file.RunRecord.from_json((service.state / run_file.FILE_NAME).read_text())
            client = connect(record.redis_url, max_connections=4, client_name="hearline-soak")
            queue = plan.environment.get("HEARLINE_QUEUE", "main")
            inspector = Inspector(record.pid, client, queue, [one for _, one in addresses], clock)
            try:
                yield Stage(service, client, addresses, inspector, folder)
            finally:
                client.close()


def soak(plan: SoakPlan, clock: Clock, say: Say) -> Outcome:
    """Run it. Raises `Failed` when the service or a generator cannot be started or ends before its time."""
    with stage(plan, clock) as ready:
        watch = Watch(ready.inspector.root_pid, ready.client, [port for _, port in ready.addresses], clock)
        watch.look(pss=True)
        watch.look(pss=True)
        idle = {name: looks[-1] for name, looks in watch.seen.processes.items()}
        before = ready.inspector.count()
        with watch:
            progress, results = _generate(plan, ready, clock, say)
        left = ready.inspector.settled(SETTLE_S + float(plan.environment.get("HEARLINE_RESUME_GRACE_S", 30)))
        watch.look(pss=True)
    window = _window(plan, progress)
    report = _report(plan, watch.seen, window, progress, results, idle)
    report["left_behind"] = _left(left, before, plan)
    report["leftovers"] = {"before": before.nothing(), "after": left.nothing(), "keys": left.by_kind}
    return Outcome(report, watch.seen, window, progress)


def _left(left: Leftovers, before: Leftovers, plan: SoakPlan) -> list[str]:
    """Threads are kept by the web's pool for the next streams: as many as there were streams are none too many."""
    return left.problems(replace(before, threads=before.threads + plan.streams + SPARE_STREAMS))


def _generate(
    plan: SoakPlan, ready: Stage, clock: Clock, say: Say
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    lines: list[list[dict[str, Any]]] = [[] for _ in range(plan.generators)]
    running_ones = []
    for index in range(plan.generators):
        share = plan.streams // plan.generators + (index < plan.streams % plan.generators)
        part = GeneratorPlan(
            ready.addresses, share, plan.minutes * 60, plan.frame_ms, plan.short, plan.short_s,
            plan.seed + index, str(ready.folder / "audio.pcm"),
        )  # fmt: skip
        process = subprocess.Popen(
            [*tether(), *python_module("ops.soak_generator")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(part.to_json())
        process.stdin.close()
        running_ones.append(process)
    readers = [
        threading.Thread(target=_read, args=(process, into, say if not index else None), daemon=True)
        for index, (process, into) in enumerate(zip(running_ones, lines, strict=True))
    ]
    for reader in readers:
        reader.start()
    give_up_s = clock.monotonic() + plan.minutes * 60 + ENDING_S + ANSWER_S + 60
    try:
        for reader in readers:
            reader.join(max(0.0, give_up_s - clock.monotonic()))
    finally:
        for process in running_ones:
            if process.poll() is None:
                process.terminate()
            process.wait()
    results = []
    for process, found in zip(running_ones, lines, strict=True):
        assert process.stderr is not None
        errors = process.stderr.read()
        process.stderr.close()
        if not found or "result" not in found[-1]:
            raise Failed(f"a load generator ended with {process.returncode}:\n{errors[-2_000:]}")
        results.append(found.pop()["result"])
    return _together(lines), results


def _read(process: subprocess.Popen[str], into: list[dict[str, Any]], say: Say | None) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        fields = json.loads(line)
        into.append(fields)
        if say is not None and "open" in fields and len(into) % 10 == 0:
            say(
                f"{len(into)} s: {fields['open']} streams open, {fields['finals']} finals, "
                f"{fields['partials']} partials, {fields['faults']} faults"
            )
    process.stdout.close()


def _together(lines: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The generators' lines, second by second, added up."""
    together = []
    for same_second in zip(*lines, strict=False):
        sums = {name: sum(one[name] for one in same_second) for name in same_second[0] if name != "at"}
        together.append({"at": same_second[0]["at"], **sums})
    return together


def _window(plan: SoakPlan, progress: list[dict[str, Any]]) -> Window:
    if len(progress) < 3:
        raise Failed("the run was too short to measure anything; give more --minutes")
    begin = progress[0]["at"]
    end = begin + plan.minutes * 60 - 1.5
    full = next((one["at"] for one in progress if one["open"] >= plan.streams), begin)
    return Window(min(max(full, begin + min(plan.streams / PER_S, 60)), end - 1), end)


def _report(
    plan: SoakPlan, watched: Watched, window: Window, progress: list[dict[str, Any]],
    results: list[dict[str, Any]], idle: Mapping[str, ProcessLook],
) -> dict[str, Any]:  # fmt: skip
    found = processes(window, watched, idle)
    steady = [one for one in progress if window.holds(one["at"])]
    audio_s = steady[-1]["audio_s"] - steady[0]["audio_s"] if len(steady) > 1 else 0.0
    scale = 1000 / audio_s * (steady[-1]["at"] - steady[0]["at"]) if audio_s else 0.0
    cpu = {role: _role(found, role, "cpu_cores") * scale for role in ("web", "worker", "redis")}
    cpu["generator"] = 1000 * (steady[-1]["cpu_s"] - steady[0]["cpu_s"]) / audio_s if audio_s else 0.0
    memory = [(look.at, float(look.used_memory)) for look in watched.redis if window.holds(look.at)]
    idle_memory = watched.redis[0].used_memory if watched.redis else 0
    pss = {
        role: sum((one["pss_max_bytes"] or 0) - (one["idle_pss_bytes"] or 0) for name, one in found.items()
                  if name.startswith(role))
        for role in ("web",)
    }  # fmt: skip
    everything = [tuple(one) for result in results for one in result["latencies"]]
    return {
        "plan": {
            "streams": plan.streams, "minutes": plan.minutes, "web": plan.web, "workers": plan.workers,
            "frame_ms": plan.frame_ms, "short": plan.short, "short_s": plan.short_s, "seed": plan.seed,
            "script": dict(plan.script), "steady_s": round(window.end - window.begin, 1),
        },
        "streams": {name: sum(one[name] for one in results) for name in ("opened", "done", "refused")}
        | {"open": spread([float(one["open"]) for one in steady])},
        "finals": {
            "expected": sum(one["finals_said"] for one in results), "received": sum(one["finals"] for one in results),
            "partials": sum(one["partials"] for one in results),
        },
        "audio_s": round(sum(one["audio_s"] for one in results), 1),
        "final_latency_s": latencies(window, everything),
        "cpu_ms_per_audio_s": {role: round(value, 3) for role, value in cpu.items()},
        "memory_per_stream_bytes": {
            "web_pss": round(pss["web"] / plan.streams),
            "redis": round((max((value for _, value in memory), default=idle_memory) - idle_memory) / plan.streams),
        },
        "probes": probes(window, watched),
        "processes": found,
        "redis": {
            "used_memory": thirds(window, memory),
            "keys": thirds(window, [(look.at, float(look.keys)) for look in watched.redis if window.holds(look.at)]),
            "keys_max": max((look.keys for look in watched.redis), default=0),
            "clients_max": max((look.clients for look in watched.redis), default=0),
        },
        "generator": {"late_max_s": round(max(one["late_max_s"] for one in results), 4)},
        "faults": [fault for one in results for fault in one["faults"]],
        "fault_count": sum(one["fault_count"] for one in results),
        "watch_problems": watched.problems,
    }  # fmt: skip


def _role(found: Mapping[str, Any], role: str, name: str) -> float:
    return sum(float(one[name]) for process, one in found.items() if process.startswith(role))
