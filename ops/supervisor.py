"""Keeps processes running until told to stop, then stops them in order.

running --stop, a process given up--> stopping, stage by stage (SIGTERM, then SIGKILL at the deadline) --> ended
stopping --a second stop--> everything is killed at once

What a later stage runs is needed by the stage that stops: until its own turn it is started again as before.

One thread, the caller of `Supervisor.run`, owns all state; signals, ended children and the readiness watch
only put events into its mailbox.
"""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ops.child import Child
from ops.output import Output
from ops.procfile import ProcessSpec
from ops.restarts import RestartRules, Restarts
from queueing.clock import Clock

KILL_AFTER_S = 5.0
"""Seconds that a process gets beyond its own drain time."""

CHORE_S = 1.0
"""Seconds between two calls of the caller's chore (looking after Redis)."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing is left of a child."""

    child: Child


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop everything; a second one forces."""

    reason: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The service answers that it is ready."""


Event = Ended | Stop | Ready


@dataclass(frozen=True, slots=True)
class GaveUp:
    """A process that would not run; ``tail`` is the end of its output."""

    name: str
    status: int
    failures: int
    tail: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: what was given up, if anything, and whether something had to be killed."""

    gave_up: GaveUp | None
    forced: bool


@dataclass(slots=True, eq=False)
class _Slot:
    """A place in the table: the process that fills it now, or when it is started again."""

    spec: ProcessSpec
    restarts: Restarts
    child: Child | None = None
    started_s: float = 0.0
    restart_at_s: float | None = None


@dataclass(slots=True)
class _Stopping:
    """The stages still to be stopped, first the current one, and when that one is killed.

    ``at_once``: a second stop has come, nothing is waited for. ``forced``: something was killed.
    """

    stages: list[list[_Slot]] = field(default_factory=list)
    kill_at_s: float | None = None
    at_once: bool = False
    forced: bool = False

    def needs(self, slot: _Slot) -> bool:
        """Whether the stage that stops now may need what runs here."""
        return not self.at_once and any(slot in stage for stage in self.stages[1:])


class Supervisor:
    """Runs processes. ``stages`` names the kinds to stop first, in order; all others come last."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        output: Output,
        clock: Clock,
        drain_s: float,
        rules: RestartRules | None = None,
        stages: Sequence[str] = ("web",),
        chore: Callable[[], None] | None = None,
        on_ended: Callable[[int], None] | None = None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._environment = environment
        self._output = output
        self._clock = clock
        self._patience_s = drain_s + KILL_AFTER_S
        self._chore = chore
        self._on_ended = on_ended
        self._on_stop = on_stop
        self._rules = rules or RestartRules()
        self._slots: list[_Slot] = []
        self._stage_order = stages
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stopping: _Stopping | None = None
        self._gave_up: GaveUp | None = None

    def post(self, event: Event) -> None:
        """Put an event into the mailbox; from any thread, and from a signal handler."""
        self._events.put(event)

    def run(self, specs: Sequence[ProcessSpec]) -> Outcome:
        """Start everything and return when all of it has ended. Once only."""
        self._slots = [_Slot(spec, Restarts(self._rules)) for spec in specs]
        try:
            self._handle_next(0.0)  # A stop may have come before there was anything to stop.
            for slot in self._slots:
                if self._stopping is None:
                    self._start(slot)
            while self._stopping is None or self._stopping.stages:
                self._handle_next(self._time_to_next())
                self._act_on_time()
        finally:
            for slot in self._slots:
                if slot.child is not None:
                    slot.child.kill()
        return Outcome(self._gave_up, self._stopping.forced)

    def _time_to_next(self) -> float:
        now = self._clock.monotonic()
        due = [slot.restart_at_s for slot in self._slots if slot.restart_at_s is not None]
        if self._stopping is not None and self._stopping.kill_at_s is not None:
            due.append(self._stopping.kill_at_s)
        return max(0.0, min([CHORE_S, *(at - now for at in due)]))

    def _handle_next(self, timeout_s: float) -> None:
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return
        match event:
            case Ended(child):
                self._ended(child)
            case Stop(reason):
                self._stop(reason)
            case Ready():
                for slot in self._slots:
                    if slot.child is not None:
                        slot.restarts.service_is_ready()

    def _act_on_time(self) -> None:
        now = self._clock.monotonic()
        if self._stopping is None:
            if self._chore is not None:
                self._chore()
        else:
            self._go_on_stopping(self._stopping, now)
        for slot in self._slots:
            if slot.restart_at_s is not None and now >= slot.restart_at_s:
                self._start(slot)

    def _go_on_stopping(self, stopping: _Stopping, now: float) -> None:
        while stopping.stages and all(slot.child is None for slot in stopping.stages[0]):
            stopping.stages.pop(0)
            stopping.kill_at_s = None
            self._terminate_stage()
        if stopping.kill_at_s is not None and now >= stopping.kill_at_s:
            stopping.kill_at_s = None
            self._kill(stopping.stages[0], "did not stop in time")

    def _start(self, slot: _Slot) -> None:
        slot.restart_at_s = None
        slot.started_s = self._clock.monotonic()
        try:
            slot.child = Child(
                slot.spec,
                self._environment,
                self._output,
                linger_s=self._patience_s,
                on_end=lambda child: self.post(Ended(child)),
            )
        except OSError as error:
            self._failed(slot, 126, (f"cannot start: {error}",))
        else:
            self._output.say(f"{slot.spec.name} started (pid {slot.child.pid})")

    def _ended(self, child: Child) -> None:
        slot = next(slot for slot in self._slots if slot.child is child)
        slot.child = None
        if self._on_ended is not None:
            self._on_ended(child.pid)
        status = 1 if child.status is None else child.status
        if self._stopping is None or self._stopping.needs(slot):
            self._failed(slot, status, tuple(child.tail))
        else:
            self._output.say(f"{child.name} stopped")

    def _failed(self, slot: _Slot, status: int, tail: tuple[str, ...]) -> None:
        name, now = slot.spec.name, self._clock.monotonic()
        # With 0 a program ends that somebody else has asked to, such as `hearline restart`.
        ended = f"{name} has ended" if status == 0 else f"{name} ended by itself ({describe_status(status)})"
        delay_s = slot.restarts.ended(now - slot.started_s, status)
        if delay_s is not None:
            self._output.say(f"{ended}; starting it again in {delay_s:g} s")
            slot.restart_at_s = now + delay_s
            return
        self._output.say(f"{ended}; giving up")
        if self._stopping is None:
            self._gave_up = GaveUp(name, status, slot.restarts.failures, tail)
            self._stop(f"{name} does not run")

    def _stop(self, reason: str) -> None:
        if self._stopping is None:
            self._output.say(f"stopping: {reason}")
            stages = [[slot for slot in self._slots if slot.spec.kind == kind] for kind in self._stage_order]
            stages.append([slot for slot in self._slots if slot.spec.kind not in self._stage_order])
            self._stopping = _Stopping(stages)
            self._on_stop()
            self._terminate_stage()
        elif self._stopping.stages:
            self._output.say(f"{reason} again: ending everything now")
            self._stopping.at_once = True
            for slot in self._slots:
                slot.restart_at_s = None
            self._kill([slot for stage in self._stopping.stages for slot in stage], "is forced to end")

    def _terminate_stage(self) -> None:
        assert self._stopping is not None
        if not self._stopping.stages:
            return
        for slot in self._stopping.stages[0]:
            slot.restart_at_s = None
        running = [slot.child for slot in self._stopping.stages[0] if slot.child is not None]
        for child in running:
            child.terminate()
        if running:
            self._stopping.kill_at_s = self._clock.monotonic() + self._patience_s

    def _kill(self, slots: Sequence[_Slot], why: str) -> None:
        assert self._stopping is not None
        for slot in slots:
            if slot.child is not None:
                self._stopping.forced = True
                self._output.say(f"{slot.child.name} {why} (SIGKILL)")
                slot.child.kill()


def describe_status(status: int) -> str:
    """``exit status 3``, or ``killed by SIGKILL`` for the negative status of a signalled process."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
