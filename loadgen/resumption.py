"""What a client knows of a stream over all its connections, and what it decides when one is lost.

    new ----ready----> streaming ----connection lost----> away ----ready----> streaming ... done
     |                                                     |
     '-- lost before `ready`: begin again                  '-- refused, or no way back within `resume_s` + `extra_s`:
                                                                the error that says so

Pure: no sockets, no threads; the time is an argument, chance a `random.Random`. The clients (threads and coroutines)
tell it what happened and do what it says. What holds, whatever is lost when: each sample is sent until the server has
it, a message that was handed on is not handed on again, and every loss ends in `streaming` or in an error.

The delay before attempt n is uniform between 0 and min(cap, base * 2^n) ("full jitter": M. Brooker, "Exponential
Backoff And Jitter", AWS Architecture Blog, 2015). So clients that lost their connections together come back one by one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.errors import CannotConnect, CannotResume, ClientError, NoAnswer, ProtocolBroken, Refused, ServerFailed
from sessions.codes import NOT_THE_STREAMS
from sessions.wire import (
    BYTES_PER_SAMPLE,
    BYTES_PER_SECOND,
    SAMPLE_RATE,
    Ack,
    Done,
    Error,
    ErrorCode,
    Final,
    Partial,
    Ready,
    Resume,
    ServerMessage,
    Start,
)

CLOSES_THAT_MEAN_LATER = frozenset({None, 1001, 1006, 1012, 1013, 1014})
"""Closes that say nothing about the stream: none at all, an end or proxy that goes away, restarts, is overloaded."""

NOT_NOW = NOT_THE_STREAMS | {ErrorCode.OVERLOADED, ErrorCode.INTERNAL}
"""Errors that may meet a `resume` although the stream still waits: another attempt, or front end, may succeed."""

FRUITLESS_LIMIT = 10
"""Connections in a row that were lost without any news; the next one would not be better."""


@dataclass(frozen=True, slots=True)
class Resuming:
    """How a client comes back; seconds."""

    enabled: bool = True
    base_s: float = 0.1
    cap_s: float = 5.0
    """The longest delay between two attempts; and a connection that stood so long was a good one."""
    extra_s: float = 10.0
    """Tried for so much longer than the server's ``resume_s``: it may have seen the loss later than the client."""
    catch_up: float = 4.0
    """Audio that is late because of a loss goes at most so many times as fast as its usual pace."""
    max_held_s: float = 120.0
    """Audio kept until it is acknowledged; when there is more, the source is not read on."""

    @property
    def max_held_bytes(self) -> int:
        return int(self.max_held_s * BYTES_PER_SECOND)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Connect to ``url`` after ``delay_s``."""

    url: str
    delay_s: float


class Resumption:
    """The course of one stream. A client calls `attempt`, connects, sends `opening`, then passes what it receives to
    `take`; whatever fails goes to `failed`, which raises where that is the end."""

    def __init__(self, start: Start, urls: Sequence[str], options: Resuming, rng: random.Random) -> None:
        """``urls``: front ends of one service, tried in turn. Raises ValueError without any."""
        if not urls:
            raise ValueError("no URL: name at least one front end of the service")
        self.enabled = options.enabled and start.resume is not False
        self._start = start.model_copy(update={"resume": self.enabled})
        self._options = options
        self._rng = rng
        self._urls = list(urls)
        self._next = 0
        self._url = self._urls[0]
        self._not_before = dict.fromkeys(urls, 0.0)
        self._refusals: list[ClientError] = []
        self.session = ""
        self._token: str | None = None
        self._resume_s = 0.0
        self._last_seq = self._known_seq = 0
        self.streaming = False
        """Whether this connection has had its `ready`."""
        self.fatal: Error | None = None
        """The fatal error of this connection."""
        self.done = False
        self.ended = False
        """`end` was sent on some connection; set by the client."""
        self.sent = 0
        """The highest position ever handed to a connection, in bytes; set by the client, before it sends."""
        self.acked = 0
        """What lies before is the server's: bytes."""
        self._deadline: float | None = None
        self._lost_at = self._ready_at = 0.0
        self._tries = self._attempts = self._fruitless = self._stalls = 0

    @property
    def away(self) -> bool:
        """The stream waits at the server, and no connection has it."""
        return bool(self.session) and not self.streaming

    @property
    def keeps(self) -> bool:
        """Whether audio must be kept until it is acknowledged."""
        return self.enabled and (not self.session or self._token is not None)

    @property
    def opening(self) -> Start | Resume:
        """The first message of the next connection."""
        if self._token is None:
            return self._start
        return Resume(session=self.session, token=self._token, last_seq=self._last_seq)

    # Messages

    def take(self, now: float, message: ServerMessage) -> bool:
        """Learn from a message; whether the caller is to be told. Raises `ProtocolBroken`.

        After a `ready`, audio goes on at `acked`.
        """
        match message:
            case Ready():
                self._ready(now, message)
            case Ack():
                self._acknowledge(position_of(message.received_s))
                return False
            case Partial() | Final():
                if message.seq <= self._known_seq:
                    return False
                self._last_seq = max(self._last_seq, message.seq)
                self._news()
            case Done():
                self.done = True
            case Error():
                return self._error(message)
        return True

    def _ready(self, now: float, message: Ready) -> None:
        if self.away:
            if not message.resumed or message.session != self.session:
                raise ProtocolBroken("the server answered `resume` with another stream")
            position = position_of(message.received_s)
            if not self.acked <= position <= self.sent:
                raise ProtocolBroken(
                    f"the server goes on at byte {position} of the audio; {self.acked} bytes were acknowledged and "
                    f"{self.sent} sent"
                )
            self._acknowledge(position)
            self._known_seq = self._last_seq
        self.session = message.session
        self._token = message.token if self.enabled else None
        self._resume_s = message.resume_s
        self._ready_at = now
        self._deadline = None
        self.streaming = True

    def _acknowledge(self, position: int) -> None:
        if position > self.sent:
            raise ProtocolBroken(f"the server acknowledges {position} bytes of audio, of {self.sent} that were sent")
        if position > self.acked:
            self.acked = position
            self._news()

    def _error(self, error: Error) -> bool:
        if not error.fatal:
            if self.away and error.code in {ErrorCode.UNKNOWN_TYPE, ErrorCode.BAD_MESSAGE, ErrorCode.BAD_STATE}:
                raise ProtocolBroken(f"the server cannot resume: {error.message}")
            return True
        self.fatal = error
        return not self.session or not self._may_come_back(ServerFailed(error.code, error.message, None))

    def _news(self) -> None:
        self._tries = self._fruitless = self._stalls = 0

    # Losses

    def attempt(self, now: float) -> Attempt:
        """The next connection to try."""
        self.streaming = False
        self.fatal = None
        order = self._urls[self._next :] + self._urls[: self._next]
        url = min(order, key=lambda each: max(0.0, self._not_before[each] - now))
        self._url = url
        self._next = (self._urls.index(url) + 1) % len(self._urls)
        self._attempts += 1
        if self._deadline is None:
            return Attempt(url, 0.0)
        jitter = self._rng.uniform(0.0, min(self._options.cap_s, self._options.base_s * 2.0 ** min(self._tries, 30)))
        self._tries += 1
        delay = max(0.0, self._not_before[url] - now) + jitter
        return Attempt(url, max(0.0, min(delay, self._deadline - now)))

    def failed(self, now: float, failure: ClientError) -> bool:
        """An attempt failed, or the connection is lost; True when it is a stream that had one until now.

        Raises ``failure`` where no other attempt can help, `CannotResume` when it has taken too long.
        """
        if self.done:
            raise failure
        lost = self.streaming
        if lost:
            self._begin_trouble(now, failure)
        elif self._deadline is None:
            self._not_even_begun(now, failure)
        elif not self._may_come_back(failure):
            raise failure
        assert self._deadline is not None or not self.session
        if self._deadline is not None:
            self._heed(now, failure)
            if now >= self._deadline:
                raise CannotResume(failure, now - self._lost_at, self._attempts) from failure
        self.streaming = False
        return lost

    def _begin_trouble(self, now: float, failure: ClientError) -> None:
        if not self._may_come_back(failure):
            raise failure
        if isinstance(failure, NoAnswer):
            self._stalls += 1
            if self._stalls > 1:
                raise failure
        elif now - self._ready_at >= self._options.cap_s:
            self._tries = 0
            if not self.ended:  # when all is sent, only an answer is a reason to go on
                self._fruitless = 0
        self._fruitless += 1
        if self._fruitless > FRUITLESS_LIMIT:
            raise CannotResume(failure, 0.0, self._fruitless) from failure
        self._lost_at, self._attempts = now, 0
        self._deadline = now + self._resume_s + self._options.extra_s

    def _not_even_begun(self, now: float, failure: ClientError) -> None:
        """No `ready` ever: each front end is asked once; only one that breaks off is asked again."""
        if isinstance(failure, CannotConnect | Refused):
            self._refusals.append(failure)
            if len(self._refusals) < len(self._urls):
                return
            refused = [each for each in self._refusals if isinstance(each, Refused)]
            raise (refused or self._refusals)[0]
        if not (self.enabled and isinstance(failure, ServerFailed) and closed_for_later(failure)):
            raise failure
        self._lost_at, self._attempts = now, 0
        self._deadline = now + self._options.extra_s

    def _may_come_back(self, failure: ClientError) -> bool:
        if not self.enabled or (self.session and self._token is None):
            return False
        trying = not self.streaming
        match failure:
            case ServerFailed(code=code, close_code=close):
                unsaid = not code and close == 1011
                return closed_for_later(failure) or code in NOT_THE_STREAMS or (trying and (unsaid or code in NOT_NOW))
            case Refused(status=status):
                return trying and status in {429, 503}
            case CannotConnect():
                return trying
            case NoAnswer(what=what):
                return what in {"a pong", "taking more audio"} or (trying and what == "ready")
            case _:
                return False

    def _heed(self, now: float, failure: ClientError) -> None:
        """Leave the front end alone for as long as it asks, but never for the whole time that is left.

        The time in `shutting_down` is for new streams: behind the same address a successor may be there already.
        """
        if isinstance(failure, ServerFailed) and failure.code == ErrorCode.SHUTTING_DOWN:
            return
        retry_after_s = getattr(failure, "retry_after_s", None)
        if retry_after_s is not None and self._deadline is not None and retry_after_s > 0:
            self._not_before[self._url] = now + min(retry_after_s, max(0.0, self._deadline - now) / 2)


def closed_for_later(failure: ServerFailed) -> bool:
    """Whether a connection closed for reasons that are not the stream's."""
    if failure.code:
        return failure.code == ErrorCode.SHUTTING_DOWN
    return failure.close_code in CLOSES_THAT_MEAN_LATER


def position_of(received_s: float) -> int:
    """Bytes of the sample that the server goes on with."""
    return round(received_s * SAMPLE_RATE) * BYTES_PER_SAMPLE
