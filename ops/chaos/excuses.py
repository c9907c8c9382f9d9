"""Which explicit end of a stream a fault may have caused. What no fault of the run explains is a violation.

Promises behind it: a stream holds on while Redis is away up to `HELD_ON_S`, and nothing else suffers from an absence up
to `RIDDEN_OUT_S`; a lost connection is no end for a stream that can be resumed; workers may die and stop as they like;
only a Redis that forgot everything may cost a stream its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ops.chaos.records import Injected, Record
from ops.chaos.settings import Profile

HELD_ON_S = 7.0
"""A front end goes on trying for ten seconds; coming back takes the rest."""
RIDDEN_OUT_S = 4.0
"""What takes its time too, a decode or a client that comes back, may be over its limit after a longer absence."""
BACK_S = 1.5
"""After Redis answers again, until every process has noticed."""
RETRY_S = 1.0
"""Redis tries again so often to write a file that it could not write."""
CAUSE_S = 25.0
"""A drain, a worker's end or a wrong clock may show so long after it was over, at the most."""

REDIS_AWAY = ("redis.kill", "redis.term", "redis.empty", "redis.stop", "disk.full", "memory.limit")
CONNECTION_BREAKS = ("web.", "client.")


class Faults:
    """The faults that came about, asked by the life of a stream."""

    def __init__(self, injected: Sequence[Injected], profile: Profile) -> None:
        self._all = [fault for fault in injected if fault.kind]
        self._profile = profile

    def struck(self, record: Record, *kinds: str, after_s: float = CAUSE_S) -> int:
        """Faults of these kinds (or areas: ``web.``) while the stream lived or up to ``after_s`` before."""
        return sum(
            1
            for fault in self._all
            if fault.kind.startswith(kinds)
            and fault.at_s <= record.ended_s
            and fault.until_s + after_s >= _born_s(record)
        )

    def unheard_s(self, record: Record) -> float:
        """For how long, at most, the stream's client may not have known that its connection was gone: a half-open one
        hears no close, and if its server ended meanwhile the grace time ran from then on."""
        halves = [
            fault.at_s for fault in self._all if fault.kind == "client.half_open" and fault.at_s >= _born_s(record)
        ]
        return max((record.ended_s - at_s for at_s in halves), default=0.0)

    def redis_away_s(self, record: Record) -> float:
        """Longest time on end, in the stream's life, in which Redis was away from a front end or refused writes."""
        spans = sorted(
            (fault.at_s, fault.until_s + BACK_S)
            for fault in self._all
            if fault.kind in REDIS_AWAY or (fault.kind == "link.silent" and fault.target.startswith("web"))
        )
        longest, end_s, begin_s = 0.0, float("-inf"), 0.0
        for at_s, until_s in spans:
            if at_s > end_s:
                begin_s = at_s
            end_s = max(end_s, until_s)
            if begin_s <= record.ended_s and end_s >= _born_s(record):
                longest = max(longest, end_s - begin_s - BACK_S)
        return longest

    def killed_when_full(self, record: Record) -> bool:
        """Whether Redis was killed in the stream's life before its full disk was written again. What came with the
        write that failed first is answered as done then, and is in no file: it is refused from the next one on."""
        full = [fault for fault in self._all if fault.kind == "disk.full"]
        return any(
            fault.kind == "redis.kill"
            and fault.at_s <= record.ended_s
            and fault.until_s + BACK_S >= _born_s(record)
            and any(disk.at_s <= fault.until_s and fault.at_s <= disk.until_s + RETRY_S for disk in full)
            for fault in self._all
        )

    def excuses(self, record: Record) -> bool:
        """Whether faults explain the error, or the refusal, with which this stream ended."""
        if record.outcome == "lost" and record.code in ("connection", "unreachable"):
            return not record.resumable and (
                self.struck(record, *CONNECTION_BREAKS) > 0 or self.redis_away_s(record) >= RIDDEN_OUT_S
            )
        return self.explain(record.code, record)

    def explain(self, code: str, record: Record) -> bool:
        """Whether faults in the stream's life may have caused this error."""
        rule = RULES.get(code)
        return rule is not None and rule(self, record, self._profile)


def _born_s(record: Record) -> float:
    """Since when there was something of the stream to be lost; of one that was never let in, since when it tried."""
    return record.joined[0].at_s if record.joined else record.begun_s


Rule = Callable[[Faults, Record, Profile], bool]


def _away(faults: Faults, record: Record, _profile: Profile) -> bool:
    return faults.redis_away_s(record) >= RIDDEN_OUT_S


def _given_up(faults: Faults, record: Record, profile: Profile) -> bool:
    """Who can come back is told that too, and goes on trying; who was trying already does so for the grace time."""
    away_s = faults.redis_away_s(record)
    if record.away_s >= profile.grace_s and away_s >= profile.grace_s:
        return True
    return away_s >= HELD_ON_S + (profile.grace_s if record.resumable else 0.0)


def _emptied(faults: Faults, record: Record, _profile: Profile) -> bool:
    return faults.struck(record, "redis.empty", after_s=BACK_S) > 0


def _forgot(faults: Faults, record: Record, profile: Profile) -> bool:
    return _emptied(faults, record, profile) or faults.killed_when_full(record)


def _cannot_return(faults: Faults, record: Record, profile: Profile) -> bool:
    away_s = max(record.away_s, faults.unheard_s(record))
    late = away_s >= profile.grace_s or faults.struck(record, "clock.redis", after_s=BACK_S) > 0
    return late or _emptied(faults, record, profile)


def _not_decoded(faults: Faults, record: Record, profile: Profile) -> bool:
    """Leases hold as long as Redis's clock says, and a Redis that is away for long takes its time from the limit."""
    return (
        faults.struck(record, "clock.redis") > 0
        or _emptied(faults, record, profile)
        or faults.redis_away_s(record) >= RIDDEN_OUT_S
    )


def _gave_up(faults: Faults, record: Record, _profile: Profile) -> bool:
    """Each attempt was struck."""
    return faults.struck(record, "worker.", "link.", "redis.", "clock.redis") >= 3


def _full(faults: Faults, record: Record, profile: Profile) -> bool:
    return faults.struck(record, "memory.limit", "disk.full", after_s=BACK_S) > 0 or _away(faults, record, profile)


def _ended_process(faults: Faults, record: Record, _profile: Profile) -> bool:
    return not record.resumable and faults.struck(record, "web.term") > 0


def _silent(faults: Faults, record: Record, profile: Profile) -> bool:
    """Its connection stood, and it was trying to get another, or sent into one that is half open."""
    return max(record.away_s, faults.unheard_s(record)) >= profile.idle_s


def _stalled(faults: Faults, record: Record, _profile: Profile) -> bool:
    return not record.resumable and faults.struck(record, "client.stall", "client.half_open") > 0


RULES: dict[str, Rule] = {
    "unavailable": _given_up,
    "state_lost": _forgot,
    "resume_refused": _cannot_return,
    "inference_timeout": _not_decoded,
    "decode_failed": _gave_up,
    "overloaded": _full,
    "shutting_down": _ended_process,
    "slow_client": _stalled,
    "idle_timeout": _silent,
}
"""Codes not listed have no excuse at all."""
