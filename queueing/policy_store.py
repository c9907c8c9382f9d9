"""The policy that Redis holds: read, installed, and kept up to date with what decodes cost.

Redis is authoritative: all processes rank by what it holds, whatever their settings say. The first process
that finds none installs its own setting's policy; after that only `PolicyStore.choose` changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

from queueing.costs import DRIFT_LIMIT, merge_costs
from queueing.errors import QueueError
from queueing.keys import QueueKeys
from queueing.lane import Lane, all_lanes
from queueing.policies import POLICIES, get_policy
from queueing.policy import LaneRank, Load, rank_all
from queueing.records import text, text_map
from queueing.redis_cluster import node_of
from queueing.scripts import Reply, Scripts, guarded
from queueing.verbs import SetPolicy, Verb

NO_POLICY = "NOPOLICY"
"""What a script answers that needs ranks and finds none."""

MOST_TRIES = 10
"""To find a policy or to install one: a try is lost to each process that is quicker, and to each that empties Redis."""

ARRIVAL_WINDOW_S = 60

INDEX_BYTES_PER_LANE = 68
"""In ``heads``, whose layout lib/lanes.lua describes."""


@dataclass(frozen=True, slots=True)
class InstalledPolicy:
    """What Redis holds. ``version`` counts up with every change of name or ranks."""

    name: str
    version: int
    changed_ms: int
    ranks: Mapping[Lane, LaneRank]


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """The result of an installation: the new version, and how many waiting jobs got a new score."""

    name: str
    version: int
    rescored: int


class PolicyStore:
    """Reads and installs the policy of one queue."""

    def __init__(self, client: redis.Redis, keys: QueueKeys, scripts: Scripts, default: str) -> None:
        get_policy(default)
        self._client = client
        self._keys = keys
        self._scripts = scripts
        self._default = default

    def read(self) -> InstalledPolicy | None:
        """What is installed now; None for nothing yet."""
        with guarded():
            return decode_policy(self._client.hgetall(self._keys.policy))

    def ensure(self) -> InstalledPolicy:
        """Install the default policy unless one is there with a rank for every lane; returns what is there then."""
        for _ in range(MOST_TRIES):
            found = self.read()
            if found is not None and self._is_whole(found):
                return found
            name = found.name if found is not None and found.name in POLICIES else self._default
            self._install(name, expected=str(found.version) if found is not None else "none")
        raise QueueError("another process keeps replacing the policy; do all run the same version of Hearline?")

    def _is_whole(self, found: InstalledPolicy) -> bool:
        """Whether Redis has a rank for each of our lanes, and an index of these lanes alone for scripts to rank by."""
        with guarded():
            indexed = int(self._client.strlen(self._keys.heads))
        return indexed == INDEX_BYTES_PER_LANE * len(all_lanes()) and all(lane in found.ranks for lane in all_lanes())

    def run(self, verb: Verb) -> Reply:
        """Run a verb that needs ranks in Redis, installing the policy first where there is none."""
        reply = self._scripts.run(verb)
        for _ in range(MOST_TRIES):
            if text(reply[0]) != NO_POLICY:
                return reply
            self.ensure()
            reply = self._scripts.run(verb)
        raise QueueError("the policy vanishes from Redis as soon as it is installed; who deletes it?")

    def choose(self, name: str, *, now_ms: int = 0) -> PolicyChange:
        """Install the policy ``name`` and rescore what waits, atomically; raises `UnknownPolicy`."""
        change = self._install(name, expected="any", now_ms=now_ms)
        assert change is not None, "nothing is expected, so nothing can have changed"
        return change

    def refresh(self, *, now_ms: int = 0) -> PolicyChange | None:
        """Rank anew with today's costs and load; rescore when a rank moved by more than `DRIFT_LIMIT`, else None."""
        installed = self.ensure()
        ranks = self._ranks(installed.name)
        if not any(has_drifted(installed.ranks[lane], rank) for lane, rank in ranks.items()):
            return None
        return self._install(installed.name, expected=str(installed.version), ranks=ranks, now_ms=now_ms)

    def costs(self) -> dict[Lane, float]:
        """Every lane's cost in ms: learned, else the prior."""
        with guarded():
            return merge_costs(text_map(self._client.hgetall(self._keys.costs)))

    def load(self) -> Load:
        """Arrivals of the last `ARRIVAL_WINDOW_S` seconds by lane, and the workers that are registered.

        Jobs are counted by minute in Redis, so that every process sees the same load; the last full minute
        counts with the part of it that lies within the window.
        """
        with guarded():
            seconds, micros = node_of(self._client, self._keys.policy).time()
            minute, into = divmod(seconds + micros / 1e6, ARRIVAL_WINDOW_S)
            pipeline = self._client.pipeline(transaction=False)
            pipeline.hgetall(self._keys.arrivals(int(minute) - 1))
            pipeline.hgetall(self._keys.arrivals(int(minute)))
            pipeline.zcard(self._keys.workers)
            before, current, workers = pipeline.execute()
        rest = 1.0 - into / ARRIVAL_WINDOW_S
        counts = {lane.name: 0.0 for lane in all_lanes()}
        for reply, share in ((before, rest), (current, 1.0)):
            for name, count in text_map(reply).items():
                if name in counts:
                    counts[name] += int(count) * share
        arrivals = {Lane.parse(name): count / ARRIVAL_WINDOW_S for name, count in counts.items() if count > 0}
        return Load(arrivals_per_s=arrivals, workers=max(1, int(workers)))

    def _ranks(self, name: str) -> dict[Lane, LaneRank]:
        return rank_all(get_policy(name), self.costs(), self.load())

    def _install(
        self, name: str, *, expected: str, ranks: Mapping[Lane, LaneRank] | None = None, now_ms: int = 0
    ) -> PolicyChange | None:
        """None when the installed version is not the ``expected`` one."""
        rows = tuple(
            (lane.name, rank.tier, float(rank.head_start_ms), float(rank.rate), float(rank.max_age_ms))
            for lane, rank in (ranks or self._ranks(name)).items()
        )
        code, version, rescored = self._scripts.run(SetPolicy(now_ms=now_ms, name=name, expected=expected, ranks=rows))
        return PolicyChange(name, int(version), int(rescored)) if text(code) == "OK" else None


def decode_policy(reply: Mapping[Any, Any]) -> InstalledPolicy | None:
    """Read the policy's hash; None when it is empty. Lanes that this version does not know are left out."""
    fields = {text(name): value for name, value in reply.items()}
    if "version" not in fields:
        return None
    ranks = {}
    for lane in all_lanes():
        if lane.name in fields:
            _, tier, head_start, rate, max_age = text(fields[lane.name]).split()
            ranks[lane] = LaneRank(int(tier), float(head_start), float(rate), float(max_age))
    return InstalledPolicy(
        text(fields["name"]), int(text(fields["version"])), int(float(text(fields["changed_ms"]))), ranks
    )


def has_drifted(old: LaneRank, new: LaneRank) -> bool:
    """Whether a rank moved so far that what waits should be rescored."""
    return (
        (old.tier, old.max_age_ms) != (new.tier, new.max_age_ms)
        or abs(new.rate - old.rate) > DRIFT_LIMIT * old.rate
        or abs(new.head_start_ms - old.head_start_ms) > max(1.0, DRIFT_LIMIT * abs(old.head_start_ms))
    )
