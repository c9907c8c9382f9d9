"""Every error of a session.

SessionError
+-- WireError             a text message that is not of the protocol (carries the code the client gets)
|   +-- BadMessage        not JSON, not an object, a field of the wrong type or beyond its limit
|   +-- UnknownType       a well-formed message of a type this version does not know
+-- WrongAudio            the bytes are not 16 kHz mono PCM16 (carries code, likely cause and the fix)
+-- AudioLost             Redis no longer holds what was accepted
+-- TakenOver             a newer connection of the session has it: this one may write no more
+-- ResumeRefused         there is no such session, or it is not this client's
"""

from __future__ import annotations

from sessions.codes import ErrorCode


class SessionError(Exception):
    """Base of everything a session raises on purpose."""


class WireError(SessionError):
    """A text message that cannot be understood; the stream goes on."""

    code = ErrorCode.BAD_MESSAGE


class BadMessage(WireError):
    """Not JSON, not an object, or a field of the wrong type or beyond its limit."""


class UnknownType(WireError):
    """A message of a type that this version of the protocol does not have."""

    code = ErrorCode.UNKNOWN_TYPE

    def __init__(self, kind: str, known: tuple[str, ...]) -> None:
        self.kind = kind
        super().__init__(f"unknown message type {kind!r}; this side understands {', '.join(known)}")


class WrongAudio(SessionError):
    """The client's bytes are not 16 kHz mono PCM16; ``cause`` says what they seem to be."""

    def __init__(self, code: ErrorCode, cause: str, fix: str) -> None:
        self.code = code
        self.cause = cause
        self.fix = fix
        super().__init__(f"{cause}; {fix}")


class AudioLost(SessionError):
    """Redis holds less audio of a session than was accepted (restarted, expired or deleted)."""

    def __init__(self, session: str, held: int, needed: int) -> None:
        self.session = session
        self.held = held
        self.needed = needed
        super().__init__(
            f"session {session}: {needed} bytes of audio are needed, Redis holds {held}; it was emptied, or started"
            " again without its data"
        )


class TakenOver(SessionError):
    """A newer connection resumed the session: nothing of it belongs to this one any more."""

    def __init__(self, session: str) -> None:
        self.session = session
        super().__init__(f"session {session}: a newer connection has resumed it")


class ResumeRefused(SessionError):
    """There is no such session to resume, not any more, or its token is another. Which of it is nobody's business."""
