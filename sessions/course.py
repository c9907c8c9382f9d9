"""Where a stream is on its way, what is wrong with it, and how it ends."""

from __future__ import annotations

from enum import StrEnum

from sessions.codes import CODES, CloseCode, ErrorCode
from sessions.effects import CancelSession, Close, Effect, Send
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

    def __init__(self, session: str, limits: SessionLimits, *, now: float) -> None:
        self.session = session
        self.limits = limits
        self.phase = Phase.WAITING
        self.ending = Ending.CLIENT
        self.out = Outgoing(retry_after_s=limits.retry_after_s, event_timing=limits.event_timing)
        self.summary = StreamSummary(session)
        self._connected_at = now
        self._cancelled = False

    def bad(self, now: float, code: ErrorCode, problem: str) -> list[Effect]:
        """A wrong message: the stream goes on, unless there were too many."""
        self.summary.bad_messages += 1
        if self.summary.bad_messages >= MAX_BAD_MESSAGES:
            problem = f"{MAX_BAD_MESSAGES} messages were wrong, the latest: {problem}"
            return self.fatal(now, ErrorCode.TOO_MANY_ERRORS, problem)
        return [Send(self.out.error(code, problem))]

    def fatal(self, now: float, code: ErrorCode, problem: str) -> list[Effect]:
        """The stream ends here, with this error."""
        if self.phase is Phase.CLOSED:
            return []
        close = CODES[code].close or CloseCode.INTERNAL
        return [Send(self.out.error(code, problem)), *self._close(now, close, code.value)]

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

    def disconnect(self, now: float, outcome: str) -> list[Effect]:
        """The client is gone."""
        if self.phase is not Phase.CLOSED:
            self._note_end(now, outcome, None)
        return self._cancel()

    def _close(self, now: float, code: CloseCode, outcome: str) -> list[Effect]:
        self._note_end(now, outcome, code)
        return [Close(code, outcome), *self._cancel()]

    def _cancel(self) -> list[Effect]:
        first, self._cancelled = not self._cancelled, True
        return [CancelSession()] if first else []

    def _note_end(self, now: float, outcome: str, code: CloseCode | None) -> None:
        self.phase = Phase.CLOSED
        self.summary.outcome = outcome
        self.summary.close_code = None if code is None else int(code)
        self.summary.duration_s = now - self._connected_at
