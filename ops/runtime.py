"""What the composition root hands to every command: the environment and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queueing.clock import Clock


@dataclass(frozen=True, slots=True)
class Runtime:
    """``environment`` is the process's environment (a test passes its own); ``clock`` paces loops."""

    environment: Mapping[str, str]
    clock: Clock
