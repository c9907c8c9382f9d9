"""The scheduling policies, one small file each; docs/scheduling.md compares them."""

from __future__ import annotations

from collections.abc import Mapping

from queueing.errors import UnknownPolicy
from queueing.policies.boost import Boost
from queueing.policies.edf import Edf
from queueing.policies.fcfs import Fcfs
from queueing.policies.hrrn import Hrrn
from queueing.policies.priority import Priority
from queueing.policies.sjf import Sjf
from queueing.policies.strict import Strict
from queueing.policy import Policy

DEFAULT_POLICY = "priority"

POLICIES: Mapping[str, Policy] = {
    "fcfs": Fcfs(),
    "priority": Priority(),
    "strict": Strict(),
    "sjf": Sjf(),
    "hrrn": Hrrn(),
    "boost": Boost(),
    "edf": Edf(),
}


def get_policy(name: str) -> Policy:
    """The policy of that name; raises `UnknownPolicy`, which lists the names there are."""
    try:
        return POLICIES[name]
    except KeyError:
        raise UnknownPolicy(name, tuple(POLICIES)) from None
