"""What time does to a session, and the end of the process that serves it."""

from __future__ import annotations

from sessions.codes import ErrorCode
from sessions.course import Ending, Phase
from sessions.effects import Effect, ReadEvents
from sessions.lifecycle import Lifecycle
from sessions.limits import SessionLimits
from sessions.outcomes import Outcomes
from sessions.resumption import Resumption


class Timers(Outcomes):
    """The part of `sessions.session.Session` that waits for something."""

    def __init__(self, stream: Lifecycle, limits: SessionLimits, *, now: float, only_resume: bool) -> None:
        super().__init__(stream)
        self._limits = limits
        self._only_resume = only_resume
        self._past: Resumption | None = None
        """What the session goes on from, until its events are read."""
        self._connected_at = self._heard_at = self._read_at = now
        self._drain_deadline: float | None = None
        self._leave_at: float | None = None
        self._read_until: str | None = None

    @property
    def closed(self) -> bool:
        """Nothing more will be sent; every further input returns no effects."""
        return self._stream.phase is Phase.CLOSED

    @property
    def accepts(self) -> bool:
        """Whether the client's next message may be handed in. Else it is held back, unread, until a final is said:
        what is handed in all the same is taken, but beyond the bounds of `sessions.limits`."""
        return self._stream.phase is Phase.ENDING or not self._stream.full

    def next_tick(self) -> float | None:
        """When `on_tick` is due, None when no timer runs."""
        return min(self._timers().values(), default=None)

    def on_tick(self, now: float) -> list[Effect]:
        """Time has passed; harmless when nothing is due."""
        due = {name for name, at in self._timers().items() if at <= now}
        if "drain" in due:
            problem = "this server process ends before a final was decoded"
            return self._stream.fatal(now, ErrorCode.SHUTTING_DOWN, problem)
        if "inference" in due:
            limit = f"{self._limits.inference_timeout_s:g} s"
            return self._stream.fatal(now, ErrorCode.INFERENCE_TIMEOUT, f"a final was not decoded within {limit}")
        if "leave" in due:
            return self._stream.fatal(now, ErrorCode.SHUTTING_DOWN, "this server process ends; resume the stream")
        if "handshake" in due and self._only_resume:
            return self._no_room(now)
        effects = self._stream.open() if "handshake" in due else []
        if "ack" in due:
            effects += self._stream.acknowledge(now)
        if "idle" in due:
            effects += self._stream.end(now, Ending.IDLE)
        elif "repair" in due:
            effects.append(self._read(now))
        return effects

    def on_drain(
        self, now: float, deadline: float, leave_at: float | None = None, *, for_good: bool = False
    ) -> list[Effect]:
        """This process ends at ``deadline``: no more audio is taken, what was received gets its final, then the
        client is told `shutting_down` (a stream that has ended itself finishes as usual). One that has promised to
        come back goes on until ``leave_at`` and is told then: it loses nothing. ``for_good``: nobody may be there
        when it comes back, so it gets its final as well; where somebody is, it goes on from there."""
        if self.closed:
            return []
        self._drain_deadline = deadline
        if self._stream.comes_back and not for_good:
            self._leave_at = min(deadline, now if leave_at is None else leave_at)
            return []
        return [] if self._stream.phase is Phase.ENDING else self._stream.end(now, Ending.DRAIN)

    def on_fault(self, now: float, detail: str) -> list[Effect]:
        """The stream met a fault of its own: the client is told `internal`."""
        return self._stream.fatal(now, ErrorCode.INTERNAL, detail)

    def _timers(self) -> dict[str, float]:
        timers: dict[str, float] = {}
        phase, limits = self._stream.phase, self._limits
        if phase is Phase.CLOSED:
            return timers
        if phase is Phase.WAITING:
            timers["handshake"] = self._connected_at + limits.handshake_timeout_s
        if phase is not Phase.ENDING and self.accepts:
            timers["idle"] = self._heard_at + limits.idle_timeout_s
        since = self._stream.decodes.outbox.waiting_since()
        if since is not None:
            timers["inference"] = since + limits.inference_timeout_s
            # Several looks before the client is told that it took too long.
            pause = min(limits.repair_after_s, limits.inference_timeout_s / 4)
            timers["repair"] = max(since, self._read_at) + pause
        elif self._past is not None:  # its events are not read yet
            timers["repair"] = self._read_at + limits.repair_after_s
        ack_at = self._stream.ack_at
        if ack_at is not None:
            timers["ack"] = ack_at
        if self._leave_at is not None:
            timers["leave"] = self._leave_at
        if self._drain_deadline is not None:
            timers["drain"] = self._drain_deadline
        return timers

    def _no_room(self, now: float) -> list[Effect]:
        problem = "this connection may only resume a stream: it came with ?resume=1, or all streams are in use"
        return self._stream.fatal(now, ErrorCode.OVERLOADED, f"{problem}; send resume first, or try again later")

    def _read(self, now: float) -> ReadEvents:
        self._read_at = now
        return ReadEvents(self._read_until)
