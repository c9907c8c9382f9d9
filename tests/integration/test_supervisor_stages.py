"""The supervisor while it stops, stage by stage: what a later stage runs can no longer hold it up or fail it."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable

from ops.procfile import expand
from ops.restarts import RestartRules
from ops.supervisor import Outcome, Stop, Supervisor
from queueing.clock import SystemClock
from tests.support.up_process import STAND_IN, clean_environment


class Scene:
    """A supervised web and worker process. At a line of either or of the supervisor something is done, once."""

    def __init__(self, *, web: str, rules: RestartRules) -> None:
        """``web``: the stand-in's role."""
        self.on_broken: Callable[[OSError], None] | None = None
        self.lines: list[str] = []
        self._at: dict[str, Callable[[], None]] = {}
        self._pids: dict[str, int] = {}
        table = {"web": f"python {STAND_IN} {web}", "worker": f"python {STAND_IN} worker"}
        self._specs = expand(table, {"web": 1, "worker": 1}, environment={}, web_ports=[1], folder=None)
        self._supervisor = Supervisor(
            clean_environment(), output=self, clock=SystemClock(), drain_s=600.0, rules=rules, stages=("web",)
        )

    def at(self, pattern: str, act: Callable[[], None]) -> None:
        self._at[pattern] = act

    def stop(self) -> None:
        self._supervisor.post(Stop("asked to"))

    def kill(self, name: str) -> None:
        os.kill(self._pids[name], signal.SIGKILL)

    def run(self) -> Outcome:
        return self._supervisor.run(self._specs)

    def line(self, name: str, data: bytes) -> None:
        if match := re.search(rb"is up, pid (\d+)", data):
            self._pids[name] = int(match[1])
            if len(self._pids) == 2:
                self.say("both are up")

    def say(self, text: str, **facts: object) -> None:
        self.lines.append(text)
        for pattern in [pattern for pattern in self._at if re.search(pattern, text)]:
            self._at.pop(pattern)()

    def close(self) -> None:
        """Nothing to close."""


def test_a_restart_that_still_waits_is_dropped_when_its_stage_comes() -> None:
    scene = Scene(web="worker", rules=RestartRules(first_delay_s=3600.0, longest_delay_s=3600.0))
    scene.at("both are up", lambda: scene.kill("worker.1"))
    scene.at("worker.1 ended by itself .*; starting it again in 3600 s", scene.stop)
    assert scene.run() == Outcome(None, forced=False)
    assert sum(line.startswith("worker.1 started") for line in scene.lines) == 1
    assert scene.lines[-1] == "web.1 stopped"


def test_a_later_process_that_does_not_run_any_more_is_no_failure_of_the_stop() -> None:
    scene = Scene(web="stubborn", rules=RestartRules(start_failures=1))
    scene.at("both are up", scene.stop)
    scene.at("stopping: asked to", lambda: scene.kill("worker.1"))
    scene.at("worker.1 ended by itself .*; giving up", lambda: scene.kill("web.1"))
    assert scene.run() == Outcome(None, forced=False)
    assert scene.lines[-1] == "web.1 stopped"
