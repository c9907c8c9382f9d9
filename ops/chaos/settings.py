"""How the service of a run is set: short times, so that two minutes hold many faults, or the service's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from queueing.limits import QueueLimits

MARGIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Settings of every process, and the bounds that follow from them (seconds)."""

    name: str
    environment: Mapping[str, str]
    lease_s: float
    drain_s: float
    inference_s: float
    grace_s: float
    idle_s: float
    script: Mapping[str, object] = field(default_factory=dict)

    @property
    def answer_s(self) -> float:
        """A client that has said everything hears a final, or an error, within this."""
        return self.inference_s + self.grace_s + 5.0

    @property
    def settle_s(self) -> float:
        """After the last stream Redis and the processes are as before within this: the longest of the grace, the
        life of a slot, that of a worker's record and that of a cancelled job whose worker died over it."""
        return max(self.grace_s + self.lease_s, QueueLimits().tombstone_ms / 1000 + MARGIN_S)


SCRIPT = {"base_s": 0.15, "per_audio_s": 0.03, "kind_scale": {"final": 2.0}}
"""Decodes of some tenths of a second, so that faults find some on their way."""

SHORT = Profile(
    name="short",
    environment={
        "HEARLINE_LEASE_S": "2",
        "HEARLINE_DRAIN_S": "3",
        "HEARLINE_INFERENCE_TIMEOUT_S": "15",
        "HEARLINE_IDLE_TIMEOUT_S": "10",
        "HEARLINE_HANDSHAKE_TIMEOUT_S": "5",
        "HEARLINE_SEND_TIMEOUT_S": "3",
        "HEARLINE_PING_INTERVAL_S": "2",
        "HEARLINE_RESUME_GRACE_S": "10",
        "HEARLINE_MAX_DECODE_S": "12",
    },
    lease_s=2.0,
    drain_s=3.0,
    inference_s=15.0,
    grace_s=10.0,
    idle_s=10.0,
    script=SCRIPT,
)
SLOW = Profile(
    name="slow", environment={}, lease_s=10.0, drain_s=30.0, inference_s=60.0, grace_s=30.0, idle_s=60.0, script=SCRIPT
)
PROFILES = {profile.name: profile for profile in (SHORT, SLOW)}
