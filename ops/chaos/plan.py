"""What will happen in a run: faults and streams, derived from the seed alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ops.chaos.audio import SAMPLE_RATE, Clip
from ops.chaos.records import Leave, StreamPlan, Variant

WEBS = ("web1", "web2")
WORKERS = ("worker1", "worker2", "worker3")

FIRST_FAULT_S = 4.0
FAULTS_END_S = 14.0
STREAMS_END_S = 8.0
"""Before the end of the run: the last fault, the last new stream."""
TOGETHER = 0.2
"""Share of faults that come while the one before may still be going on; all others find quiet before them."""
BETWEEN_STREAMS_S = 1.5
LONG = 0.2
"""Share of faults that last longer than streams must put up with."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault to come: seconds of the run, how long it is held, whom it hits, how hard, and its own chance."""

    kind: str
    at_s: float
    hold_s: float = 0.0
    target: str = ""
    amount: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run."""

    seed: int
    seconds: float
    faults: tuple[Fault, ...]
    streams: tuple[StreamPlan, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of fault is drawn: whom it may hit, how long it may last, a number with it."""

    targets: tuple[str, ...]
    hold_s: tuple[float, float] = (0.0, 0.0)
    long_s: tuple[float, float] | None = None
    amount: tuple[float, float] = (0.0, 0.0)


_EVERYBODY = (*WEBS, *WORKERS)
_SHARE = (0.3, 1.0)
_STEPS = (-300.0, 300.0)

KINDS: dict[str, Kind] = {
    "web.kill": Kind(WEBS),
    "web.stop": Kind(WEBS, (0.5, 3.0), (6.0, 8.0)),
    "web.term": Kind(WEBS),
    "worker.kill": Kind(WORKERS),
    "worker.stop": Kind(WORKERS, (0.5, 2.0), (4.0, 7.0)),
    "worker.term": Kind(WORKERS),
    "redis.kill": Kind(("redis",), (0.1, 1.5), (7.0, 14.0)),
    "redis.term": Kind(("redis",), (0.1, 1.5)),
    "redis.stop": Kind(("redis",), (0.3, 2.5), (7.0, 16.0)),
    "redis.empty": Kind(("redis",), (0.1, 1.5)),
    "redis.script_flush": Kind(("redis",)),
    "redis.client_kill": Kind(("redis",)),
    "redis.pubsub_kill": Kind(("redis",)),
    "link.cut_reply": Kind(_EVERYBODY, (1.0, 3.0), amount=(1, 4)),
    "link.delay": Kind(_EVERYBODY, (1.0, 3.0), amount=(0.05, 0.6)),
    "link.reset": Kind(_EVERYBODY),
    "link.silent": Kind(_EVERYBODY, (0.5, 3.0), (11.0, 13.0)),
    "client.reset": Kind(("streams",), amount=_SHARE),
    "client.stall": Kind(("streams",), (0.5, 2.0), (4.0, 7.0), amount=_SHARE),
    "client.half_open": Kind(("streams",), amount=_SHARE),
    "disk.full": Kind(("redis",), (0.5, 2.5), (6.0, 8.0)),
    "memory.limit": Kind(("redis",), (0.5, 2.5), (6.0, 8.0), amount=(0, 200_000)),
    "clock.worker": Kind(("workers",), (2.0, 6.0), amount=_STEPS),
    "clock.web": Kind(("webs",), (2.0, 6.0), amount=_STEPS),
    "clock.redis": Kind(("redis",), (2.0, 6.0), amount=(-60.0, 60.0)),
}
"""Every kind of fault. ``amount``: replies cut, seconds of delay, share of the streams, bytes left, seconds stepped."""


def chosen_kinds(names: Sequence[str]) -> tuple[str, ...]:
    """The kinds that ``names`` mean, each a kind or the part before its dot; all for none. Raises ValueError."""
    chosen = []
    for name in names:
        found = [kind for kind in KINDS if name in (kind, kind.partition(".")[0])]
        if not found:
            raise ValueError(f"no fault {name!r}; choose from {', '.join(KINDS)}")
        chosen += found
    return tuple(dict.fromkeys(chosen)) or tuple(KINDS)


def make_variants(clips: Sequence[Clip], rng: random.Random) -> tuple[Variant, ...]:
    """Every clip as it is, and some with another pause, or with flushes at some of its samples."""
    variants = [Variant(clip.name) for clip in clips]
    for clip in clips:
        if clip.seconds >= 5:
            # Whole hundredths of a second: the wire's times are rounded to less than a millisecond.
            flushes = sorted(rng.sample(range(SAMPLE_RATE, len(clip.pcm) // 2 - SAMPLE_RATE, SAMPLE_RATE // 100), 2))
            variants.append(Variant(clip.name, rng.choice((300, 500, None)), tuple(flushes)))
    return tuple(variants)


def make_plan(
    seed: int, minutes: float, clips: Sequence[Clip], kinds: Sequence[str], *, between_s: float = BETWEEN_STREAMS_S
) -> Plan:
    """The run of this seed; ``kinds`` are those that may come."""
    rng = random.Random(f"{seed} plan")
    seconds = minutes * 60
    variants = make_variants(clips, rng)
    faults = tuple(_faults(seconds, tuple(kinds), rng))
    lengths = {clip.name: len(clip.pcm) // 2 for clip in clips}
    return Plan(seed, seconds, faults, tuple(_streams(seconds, variants, lengths.__getitem__, rng, between_s)))


def _faults(seconds: float, kinds: tuple[str, ...], rng: random.Random) -> list[Fault]:
    faults: list[Fault] = []
    at_s, bag = FIRST_FAULT_S, list[str]()
    while at_s < seconds - FAULTS_END_S and kinds:
        if not bag:
            bag = list(kinds)
            rng.shuffle(bag)
        name = bag.pop()
        kind = KINDS[name]
        span = kind.long_s if kind.long_s and rng.random() < LONG else kind.hold_s
        fault = Fault(
            name, round(at_s, 3), round(rng.uniform(*span), 3), rng.choice(kind.targets),
            round(rng.uniform(*kind.amount), 3), rng.getrandbits(32),
        )  # fmt: skip
        faults.append(fault)
        together = rng.random() < TOGETHER
        at_s += rng.uniform(0.05, 0.5) if together else fault.hold_s + rng.uniform(2.0, 5.0)
    return faults


def _streams(
    seconds: float, variants: Sequence[Variant], samples: Callable[[str], int], rng: random.Random, between_s: float
) -> list[StreamPlan]:
    streams: list[StreamPlan] = []
    begin_s = 0.5
    while begin_s < seconds - STREAMS_END_S:
        variant = rng.choice(variants)
        leave = rng.choices((Leave.END, Leave.CLOSE, Leave.VANISH), (82, 9, 9))[0]
        total = samples(variant.clip)
        steals = leave is Leave.END and rng.random() < 0.08
        streams.append(
            StreamPlan(
                name=f"{len(streams)}-{variant.clip}",
                begin_s=round(begin_s, 3),
                variant=variant,
                web=rng.randrange(len(WEBS)),
                speed=rng.choices((1.0, 3.0, 25.0), (80, 10, 10))[0],
                leave=leave,
                leave_at=round(total * rng.uniform(0.2, 0.9)),
                steals_at=round(total * rng.uniform(0.2, 0.9)) if steals else None,
                promises=rng.random() < 0.5,
                seed=rng.getrandbits(32),
            )
        )
        begin_s += rng.expovariate(1 / between_s)
    return streams
