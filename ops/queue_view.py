"""The queue's snapshot for people (rich tables) and for programs (JSON-able fields). Pure: no Redis, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from queueing.job import NewJob
from queueing.lane import Kind
from queueing.records import JobRecord
from queueing.registry import WorkerInfo
from queueing.stats import LaneStats, LeaseStats, QueueStats

OUTCOMES = (
    "queued", "extended", "superseded", "cancelled", "stale", "requeued", "done", "dead", "dropped", "refused",
)  # fmt: skip

MOST_LEASES = 20
"""Lines of leases on the screen; the JSON has all."""


@dataclass(frozen=True, slots=True)
class Heading:
    """What the snapshot is of."""

    queue: str
    redis: str


def stats_fields(stats: QueueStats, heading: Heading) -> dict[str, Any]:
    """The whole snapshot; times in milliseconds, ``oldest_age_ms`` null where nothing waits, ``predicted_wait_ms``
    (of a final that comes now) while no worker can take work."""
    return {
        "queue": heading.queue,
        "redis": heading.redis,
        "taken_ms": stats.taken_ms,
        "policy": {
            "name": stats.policy.name,
            "version": stats.policy.version,
            "changed_ms": stats.policy.changed_ms,
        },
        "waiting": stats.waiting,
        "oldest_age_ms": stats.oldest_age_ms,
        "predicted_wait_ms": None if stats.predicted_wait_ms is None else round(stats.predicted_wait_ms, 3),
        "open_partials": stats.open_partials,
        "dead": stats.dead,
        "lanes": [_lane_fields(lane) for lane in stats.lanes],
        "leases": [_lease_fields(lease) for lease in stats.leases],
        "workers": [
            {"id": worker.id, "joined_ms": worker.joined_ms, "age_ms": worker.age_ms, **worker.info}
            for worker in stats.workers
        ],
        "counts": dict(sorted(stats.counts.items())),
    }


def _lane_fields(lane: LaneStats) -> dict[str, Any]:
    return {
        "lane": lane.lane.name,
        "kind": str(lane.lane.kind),
        "window_s": lane.lane.window_s,
        "waiting": lane.depth,
        "oldest_age_ms": lane.oldest_age_ms,
        "cost_ms": round(lane.cost_ms, 3),
        "cost_learned": lane.learned,
        "tier": lane.rank.tier,
        "head_start_ms": lane.rank.head_start_ms,
        "rate": lane.rank.rate,
        "max_age_ms": lane.rank.max_age_ms,
    }


def _lease_fields(lease: LeaseStats) -> dict[str, Any]:
    return {
        **_job_fields(lease.job),
        "lane": lease.lane.name,
        "worker": lease.worker,
        "generation": lease.generation,
        "attempt": lease.attempt,
        "claimed_ms": lease.claimed_ms,
        "lease_until_ms": lease.lease_until_ms,
        "left_ms": lease.left_ms,
    }


def _job_fields(job: NewJob) -> dict[str, Any]:
    return {
        "id": job.id,
        "session": job.session,
        "kind": str(job.kind),
        "segment": job.segment,
        "audio_s": round(job.audio_s, 3),
        "front": job.front,
    }


def record_fields(record: JobRecord) -> dict[str, Any]:
    """A job's record; what does not apply to its state is null. The session's options are left out."""
    return {
        **_job_fields(record.job),
        "lane": record.lane.name,
        "state": record.state,
        "start_byte": record.job.start_byte,
        "end_byte": record.job.end_byte,
        "arrival_ms": record.arrival_ms,
        "attempts": record.attempts,
        "generation": record.generation,
        "cost_ms": round(record.cost_ms, 3),
        "worker": record.worker,
        "claimed_ms": record.claimed_ms,
        "lease_until_ms": record.lease_until_ms,
        "died_ms": record.died_ms,
        "error_code": record.error_code,
        "error_message": record.error_message,
    }


def stats_view(stats: QueueStats, heading: Heading, *, all_lanes: bool = False) -> RenderableType:
    """The snapshot as a person reads it; lanes without jobs and without a measured cost only with ``all_lanes``."""
    shown = [lane for lane in stats.lanes if all_lanes or lane.depth or lane.learned]
    hidden = len(stats.lanes) - len(shown)
    at = datetime.fromtimestamp(stats.taken_ms / 1000, UTC).strftime("%H:%M:%S")
    title = Text.assemble(
        ("queue ", "dim"), (heading.queue, "bold"), ("  policy ", "dim"), (stats.policy.name, "bold"),
        (f" (version {stats.policy.version})  {heading.redis}  {at} UTC", "dim"),
    )  # fmt: skip
    dead_style = "bold red" if stats.dead else ""
    total = Text.assemble(
        (f"{stats.waiting} waiting", "bold"), f", oldest {seconds(stats.oldest_age_ms)}",
        f", {len(stats.leases)} leased, {stats.open_partials} open partials, ",
        (f"{stats.dead} dead", dead_style), ("  (hearline queue dead)" if stats.dead else "", "dim"),
    )  # fmt: skip
    wait = (
        Text("no worker can take work now", style="bold red")
        if stats.predicted_wait_ms is None
        else Text(f"a final that comes now waits about {seconds(round(stats.predicted_wait_ms))}")
    )
    parts: list[RenderableType] = [title, total, wait, Text(), _lanes(shown)]
    if hidden:
        parts.append(Text(f"{hidden} lanes are empty and never measured (--all shows them)", style="dim"))
    parts += [Text(), _workers(stats.workers)]
    if stats.leases:
        parts += [Text(), _leases(stats.leases, stats.taken_ms)]
    if stats.counts:
        parts += [Text(), _counts(stats.counts)]
    return Group(*parts)


def _titled(title: str, table: Table) -> RenderableType:
    """The table below its title; as rich's own title it would be broken to the table's width."""
    return Group(Text(title, style="bold", no_wrap=True), table)


def _table(left: Iterable[str], right: Iterable[str]) -> Table:
    """A table with text columns, then number columns."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in left:
        table.add_column(name, no_wrap=True, header_style="dim")
    for name in right:
        table.add_column(name, justify="right", no_wrap=True, header_style="dim")
    return table


def _lanes(lanes: Iterable[LaneStats]) -> RenderableType:
    table = _table(["lane"], ["waiting", "oldest", "cost", "tier", "head start", "rate"])
    for lane in lanes:
        table.add_row(
            lane.lane.name,
            str(lane.depth),
            seconds(lane.oldest_age_ms),
            f"{lane.cost_ms:.0f} ms" if lane.learned else f"~{lane.cost_ms:.0f} ms",
            str(lane.rank.tier),
            seconds(lane.rank.head_start_ms),
            f"{lane.rank.rate:.4g}",
            style="" if lane.depth else "dim",
        )
    return _titled("Lanes", table)


def _workers(workers: Iterable[WorkerInfo]) -> RenderableType:
    table = _table(["worker", "state", "model"], ["decodes", "last decode", "heartbeat"])
    for worker in workers:
        last = worker.info.get("last_decode_ms")
        table.add_row(
            worker.id,
            Text(worker.state, style="green" if worker.state in ("ready", "busy") else "yellow"),
            str(worker.info.get("model", "")),
            str(worker.info.get("decodes", "")),
            f"{last:.0f} ms" if isinstance(last, (int, float)) and last else "-",
            f"{seconds(worker.age_ms)} ago",
        )
    if not table.rows:
        return Text("no worker: nothing is decoded (start one: python -m workers)", style="bold red")
    return _titled("Workers", table)


def _leases(leases: tuple[LeaseStats, ...], now_ms: int) -> RenderableType:
    more = f" (the first {MOST_LEASES} of {len(leases)})" if len(leases) > MOST_LEASES else ""
    table = _table(["job", "lane", "worker"], ["attempt", "audio", "held", "left"])
    for lease in leases[:MOST_LEASES]:
        left = Text(seconds(lease.left_ms), style="bold red" if lease.left_ms < 0 else "")
        table.add_row(
            lease.job.id, lease.lane.name, lease.worker, str(lease.attempt), f"{lease.job.audio_s:.1f} s",
            seconds(now_ms - lease.claimed_ms), left,
        )  # fmt: skip
    return _titled(f"Leases{more}", table)


def _counts(counts: Mapping[str, int]) -> RenderableType:
    named = {name.partition(":")[2] for name in counts}
    outcomes = [outcome for outcome in OUTCOMES if outcome in named] + sorted(named - set(OUTCOMES))
    table = _table(["kind"], outcomes)
    for kind in Kind:
        if any(name.startswith(f"{kind}:") for name in counts):
            table.add_row(str(kind), *(f"{counts.get(f'{kind}:{outcome}', 0):,}" for outcome in outcomes))
    return _titled("Jobs since the queue exists", table)


def jobs_view(records: Iterable[JobRecord], now_ms: int) -> Table:
    """Jobs, one a line, in the order given."""
    table = _table(["job", "lane", "state", "worker"], ["age", "audio", "cost", "attempts"])
    for record in records:
        table.add_row(
            record.job.id, record.lane.name, record.state, record.worker if record.state == "leased" else "",
            seconds(now_ms - record.arrival_ms), f"{record.job.audio_s:.1f} s", f"{record.cost_ms:.0f} ms",
            str(record.attempts),
        )  # fmt: skip
    return table


def dead_view(records: Iterable[JobRecord], now_ms: int) -> Table:
    """Dead jobs with the reason, one a line, in the order given."""
    table = _table(["job", "lane", "code", "reason"], ["attempts", "audio", "died"])
    table.columns[3].no_wrap = False
    for record in records:
        died = f"{seconds(now_ms - record.died_ms)} ago" if record.died_ms is not None else "-"
        table.add_row(
            record.job.id, record.lane.name, record.error_code or "", record.error_message or "",
            str(record.attempts), f"{record.job.audio_s:.1f} s", died,
        )  # fmt: skip
    return table


def seconds(milliseconds: float | None) -> str:
    """``350 ms``, ``12.3 s``, ``4 min 05 s``, ``3 h 12 min``; ``-`` for None."""
    if milliseconds is None:
        return "-"
    sign, amount = ("-", -milliseconds) if milliseconds < 0 else ("", milliseconds)
    if amount < 1_000:
        return f"{sign}{amount:.0f} ms"
    if amount < 100_000:
        return f"{sign}{amount / 1000:.1f} s"
    minutes, rest = divmod(round(amount / 1000), 60)
    if minutes < 100:
        return f"{sign}{minutes} min {rest:02d} s"
    return f"{sign}{minutes // 60} h {minutes % 60:02d} min"
