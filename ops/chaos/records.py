"""What the harness plans and what it saw: plain values, made by the clients, read by the books."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sessions.wire import Done, Error, Final, Partial


class Leave(StrEnum):
    """How a client behaves at the end of its plan."""

    END = "end"
    """Sends everything, says end, waits for done."""
    CLOSE = "close"
    """Closes its connection in the middle (1000) and is gone."""
    VANISH = "vanish"
    """Its connection breaks in the middle and it never comes back."""


@dataclass(frozen=True, slots=True)
class Variant:
    """What a stream sends: a clip, the pause that ends a segment (None: as the server is set), and at which samples
    it says flush. Streams of one variant must all get the same finals."""

    clip: str
    endpoint_ms: int | None = None
    flushes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """One client: when it begins (seconds of the run), what it sends, how fast (1: as somebody speaks), how it ends.

    ``leave_at``: the sample after which it leaves. ``steals_at``: the sample after which a second connection of the
    same client takes its stream over. ``promises``: `start.resume` is true.
    """

    name: str
    begin_s: float
    variant: Variant
    web: int
    speed: float = 1.0
    leave: Leave = Leave.END
    leave_at: int = 0
    steals_at: int | None = None
    promises: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that arrived: when (seconds of the run), on which connection of the stream (from 1)."""

    at_s: float
    connection: int
    message: Partial | Final | Done | Error


@dataclass(frozen=True, slots=True)
class Joined:
    """A connection of a stream that got `ready`: where the audio went on, what was acknowledged and sent before."""

    at_s: float
    connection: int
    resumed: bool
    received: int
    acknowledged: int
    sent: int
    resumable: bool


@dataclass(slots=True)
class Record:
    """The life of one stream as its client saw it; sample counts, seconds of the run.

    ``outcome``: ``done``, ``error`` (``code``), ``left``, ``refused`` (``code``: before any stream was), ``lost`` (the
    connection, and no way back), ``hung`` (gave no sign within its bound), or empty while it runs.
    """

    plan: StreamPlan
    total: int
    session: str = ""
    begun_s: float = 0.0
    speaks_since_s: float = 0.0
    ended_s: float = 0.0
    sent: int = 0
    acknowledged: int = 0
    outcome: str = ""
    code: str = ""
    detail: str = ""
    close_code: int | None = None
    joined: list[Joined] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    """What must not happen and was seen by the client itself."""
    older_told: list[str] = field(default_factory=list)
    """Codes with which connections ended that were left behind for a newer one."""
    away_s: float = 0.0
    """Longest time without a connection, until it was back or gave up."""
    lost_since_s: float | None = None

    @property
    def resumable(self) -> bool:
        """Whether the service ever promised that this stream can be resumed."""
        return any(joined.resumable for joined in self.joined)

    @property
    def finals(self) -> list[Final]:
        return [seen.message for seen in self.seen if isinstance(seen.message, Final)]

    @property
    def done(self) -> Done | None:
        return next((seen.message for seen in self.seen if isinstance(seen.message, Done)), None)


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that was put in: when, for how long (seconds of the run), on whom."""

    kind: str
    target: str
    at_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: which, of which stream, with what to show for it."""

    what: str
    stream: str
    evidence: str
