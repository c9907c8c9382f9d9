"""Where a stream is on its way, what is wrong with it, and how it ends."""

from __future__ import annotations

from enum import StrEnum

from sessions.codes import CODES, NOT_THE_STREAMS, CloseCode, ErrorCode
from sessions.effects import CancelJobs, CancelSession, Close, Effect, Park, Send
from sessions.ledger import Ledger, ResumeTerms, failed
from sessions.limits import SessionLimits
from sessions.outgoing import Outgoing
from sessions.summary import StreamSummary
from sessions.wire import MAX_BAD_MESSAGES


class Phase(StrEnum):
    """Where a stream is."""

    WAITING = "waiting"
    """For its options."""
    OPEN = "open"
    ENDING = "ending"
    """No more audio is taken; finals are due."""
    CLOSED = "closed"


class Ending(StrEnum):
    """Why no more audio is taken; the value is the stream's outcome."""

    CLIENT = "done"
    AUDIO_LIMIT = "audio_limit"
    IDLE = "idle_timeout"
    DRAIN = "shutting_down"


class Course:
    """The phase of one stream, its errors and its end; `sessions.lifecycle` knows what it does on the way."""

    def __init__(self, session: str, limits: SessionLimits, terms: ResumeTerms | None, *, now: float) -> None:
        self.session = session
        self.limits = limits
        self.phase = Phase.WAITING
        self.ending = Ending.CLIENT
        self.out = Outgoing(retry_after_s=limits.retry_after_s, event_timing=limits.event_timing)
        self.summary = StreamSummary(session)
        self.ledger = Ledger(terms)
        self.keeps_slot = False
        """The session's slot is not this connection's any more."""
        self._connected_at = now
        self._settled = False
        """What becomes of the session in Redis is said."""
        self._error: tuple[ErrorCode, str] | None = None

    @property
    def unheard(self) -> bool:
        """The end is said, and it is open whether the client has heard of it."""
        return self.phase is Phase.CLOSED and self.ledger.held and not self._settled

    def bad(self, now: float, code: ErrorCode, problem: str) -> list[Effect]:
        """A wrong message: the stream goes on, unless there were too many."""
        self.summary.bad_messages += 1
        if self.summary.bad_messages >= MAX_BAD_MESSAGES:
            problem = f"{MAX_BAD_MESSAGES} messages were wrong, the latest: {problem}"
            return self.fatal(now, ErrorCode.TOO_MANY_ERRORS, problem)
        return [Send(self.out.error(code, problem))]

    def fatal(self, now: float, code: ErrorCode, problem: str) -> list[Effect]:
        """The stream ends here, with this error; or the connection alone, where the stream can go on on another."""
        if self.phase is Phase.CLOSED:
            return []
        close = CODES[code].close or CloseCode.INTERNAL
        told = Send(self.out.error(code, problem))
        if code in NOT_THE_STREAMS and self.ledger.held:
            self._note_end(now, code.value, close)
            return [told, *self._park(), Close(close, code.value)]
        self._error = (code, problem)
        return [told, *self._close(now, close, code.value)]

    def taken_over(self, now: float) -> list[Effect]:
        """A newer connection has the session. Nothing of it is ours to remove, unless that one has ended it already:
        what this one wrote since is nobody's then."""
        self._settled = self.keeps_slot = True
        told = self.fatal(now, ErrorCode.TAKEN_OVER, "another connection has resumed this stream")
        return [*told, CancelSession()]

    def limit_error(self) -> Send:
        """The client sent more than ``max_audio_s``; the stream is ended after this."""
        limit = f"{self.limits.max_audio_s or 0:g} s"
        return Send(
            self.out.error(
                ErrorCode.AUDIO_LIMIT, f"the stream has reached its limit of {limit} of audio; the rest is discarded"
            )
        )

    def finish(self, now: float, audio_bytes: int) -> list[Effect]:
        """The last final is said: what follows it depends on why the stream ends."""
        if self.ending is Ending.IDLE:
            limit = f"{self.limits.idle_timeout_s:g} s"
            return self.fatal(
                now, ErrorCode.IDLE_TIMEOUT, f"no message for {limit}; send audio or keepalive, or end the stream"
            )
        if self.ending is Ending.DRAIN:
            return self.fatal(now, ErrorCode.SHUTTING_DOWN, "this server process ends; reconnect")
        code = CloseCode.NORMAL if self.ending is Ending.CLIENT else CloseCode.TOO_BIG
        return [Send(self.out.done(audio_bytes)), *self._close(now, code, self.ending.value)]

    def disconnect(self, now: float, outcome: str, *, left: bool) -> list[Effect]:
        """The client is gone; ``left``: it said so."""
        if self.phase is Phase.CLOSED:
            # Where the end was said already it depends on whether the client heard of it: see `closed`.
            return [] if self.ledger.held else self._cancel()
        self._note_end(now, outcome, None)
        return self._park() if self.ledger.held and not left else self._cancel()

    def closed(self, *, answered: bool) -> list[Effect]:
        """The connection is closed; ``answered``: the client has closed it too, so it has the end of the stream."""
        if answered or not self.ledger.held or self._settled:
            return self._cancel()
        self._settled = True
        return [Park(keep_slot=False, fields=self._failed)]

    def _close(self, now: float, code: CloseCode, outcome: str) -> list[Effect]:
        self._note_end(now, outcome, code)
        if not self.ledger.held:
            return [Close(code, outcome), *self._cancel()]
        failed_now = self._error is not None and not self._settled
        return [Close(code, outcome), *([CancelJobs(self._failed)] if failed_now else [])]

    @property
    def _failed(self) -> dict[str, str]:
        return {} if self._error is None else failed(*self._error)

    def _park(self) -> list[Effect]:
        if self._settled:
            return []
        self._settled = self.keeps_slot = True
        return [Park(keep_slot=True)]

    def _cancel(self) -> list[Effect]:
        first, self._settled = not self._settled, True
        return [CancelSession()] if first else []

    def _note_end(self, now: float, outcome: str, code: CloseCode | None) -> None:
        self.phase = Phase.CLOSED
        self.summary.outcome = outcome
        self.summary.close_code = None if code is None else int(code)
        self.summary.duration_s = now - self._connected_at
