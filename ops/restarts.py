"""When a process that ended is started again, and when it is given up. Pure: no clock, no process.

A process that never ran steadily and keeps ending is a mistake of the set-up (a wrong setting, no model):
trying for ever would hide it. One that did run steadily met trouble (a hung decode, a poison job, a driver
fault): it comes back, more slowly each time.
"""

from __future__ import annotations

from dataclasses import dataclass

SETTINGS_STATUSES = frozenset({2, 78})
"""Exit statuses that mean "wrong arguments or settings" (argparse and this project's programs; EX_CONFIG)."""


@dataclass(frozen=True, slots=True)
class RestartRules:
    """Delays in seconds. A run of at least ``steady_s`` counts as steady and clears the count of failures."""

    first_delay_s: float = 0.5
    longest_delay_s: float = 15.0
    steady_s: float = 10.0
    start_failures: int = 3
    """Short runs in a row after which a process that was never steady is given up."""
    running_failures: int = 50
    """Short runs in a row after which one that was steady before is given up (minutes, at the longest delay)."""


class Restarts:
    """The history of one process."""

    def __init__(self, rules: RestartRules) -> None:
        self._rules = rules
        self._proven = False
        self.failures = 0

    def service_is_ready(self) -> None:
        """The whole answers that it is ready while this process runs: its set-up is right, if it never failed yet."""
        self._proven = self._proven or self.failures == 0

    def ended(self, ran_s: float, status: int) -> float | None:
        """It ended by itself after ``ran_s`` seconds: the delay until its restart in seconds, None to give up.

        The delay doubles from ``first_delay_s`` to ``longest_delay_s`` with every short run.
        """
        if ran_s >= self._rules.steady_s:
            self._proven = True
            self.failures = 0
        self.failures += 1
        limit = self._rules.running_failures if self._proven else self._rules.start_failures
        if self.failures >= limit or (not self._proven and status in SETTINGS_STATUSES):
            return None
        doubled: float = self._rules.first_delay_s * 2.0 ** min(self.failures - 1, 30)
        return min(doubled, self._rules.longest_delay_s)
