"""Error codes and close codes of the protocol, each with its meaning; docs/protocol.md holds the same table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum


class CloseCode(IntEnum):
    """WebSocket close codes that the server uses (RFC 6455, section 7.4)."""

    NORMAL = 1000
    UNSUPPORTED = 1003
    POLICY = 1008
    TOO_BIG = 1009
    INTERNAL = 1011
    SERVICE_RESTART = 1012
    TRY_AGAIN = 1013


class ErrorCode(StrEnum):
    """What an error message or a refusal before the upgrade says."""

    BAD_MESSAGE = "bad_message"
    UNKNOWN_TYPE = "unknown_type"
    BAD_STATE = "bad_state"
    TOO_MANY_ERRORS = "too_many_errors"
    UNSUPPORTED_FORMAT = "unsupported_format"
    NOT_PCM16 = "not_pcm16"
    UNSUPPORTED_LANGUAGE = "unsupported_language"
    FRAME_TOO_BIG = "frame_too_big"
    AUDIO_LIMIT = "audio_limit"
    IDLE_TIMEOUT = "idle_timeout"
    SLOW_CLIENT = "slow_client"
    OVERLOADED = "overloaded"
    RATE_LIMITED = "rate_limited"
    NO_WORKER = "no_worker"
    INFERENCE_TIMEOUT = "inference_timeout"
    DECODE_FAILED = "decode_failed"
    STATE_LOST = "state_lost"
    UNAVAILABLE = "unavailable"
    SHUTTING_DOWN = "shutting_down"
    RESUME_REFUSED = "resume_refused"
    TAKEN_OVER = "taken_over"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """``fatal``: the stream ends, with ``close``. A code that is not fatal but has ``close`` ends the stream
    after the last final. ``retry``: it carries ``retry_after_s``."""

    fatal: bool
    close: CloseCode | None
    retry: bool
    meaning: str
    remedy: str


CODES: dict[ErrorCode, CodeInfo] = {
    ErrorCode.BAD_MESSAGE: CodeInfo(
        False, None, False, "A text message is not JSON, not an object, or has a wrong field.", "Correct the message."
    ),
    ErrorCode.UNKNOWN_TYPE: CodeInfo(
        False, None, False, "The message's type is not part of this protocol version.", "Ignore, or correct the type."
    ),
    ErrorCode.BAD_STATE: CodeInfo(
        False, None, False, "A message that does not fit here: a second start, start after audio, audio after end.",
        "Send start first and once; send nothing after end.",
    ),
    ErrorCode.TOO_MANY_ERRORS: CodeInfo(
        True, CloseCode.POLICY, False, "100 messages of this stream were wrong.", "Correct the client."
    ),
    ErrorCode.UNSUPPORTED_FORMAT: CodeInfo(
        True, CloseCode.UNSUPPORTED, False, "start or a WAV header announces another sample format.",
        "Send 16 kHz mono 16-bit little-endian PCM.",
    ),
    ErrorCode.NOT_PCM16: CodeInfo(
        True, CloseCode.UNSUPPORTED, False, "The binary data is not PCM16; the message names the likely cause.",
        "Decode or convert to 16 kHz mono 16-bit little-endian PCM.",
    ),
    ErrorCode.UNSUPPORTED_LANGUAGE: CodeInfo(
        True, CloseCode.UNSUPPORTED, False,
        "The server's model does not know the language that start named, or cannot translate.",
        "Leave language or task out, or name a language that the message lists.",
    ),
    ErrorCode.FRAME_TOO_BIG: CodeInfo(
        True, CloseCode.TOO_BIG, False, "One WebSocket message is larger than limits.max_frame_bytes.",
        "Send smaller messages; 100 ms (3,200 bytes) each is usual.",
    ),
    ErrorCode.AUDIO_LIMIT: CodeInfo(
        False, CloseCode.TOO_BIG, False, "The stream reached limits.max_audio_s; the rest is discarded.",
        "Open a new stream for the rest.",
    ),
    ErrorCode.IDLE_TIMEOUT: CodeInfo(
        True, CloseCode.POLICY, False, "No message came for limits.idle_timeout_s; what was received has its final.",
        "Send audio or keepalive, or end the stream.",
    ),
    ErrorCode.SLOW_CLIENT: CodeInfo(
        True, CloseCode.POLICY, False, "The client did not read its messages within the send timeout.",
        "Read while sending.",
    ),
    ErrorCode.OVERLOADED: CodeInfo(
        True, CloseCode.TRY_AGAIN, True,
        "There is no room: all streams are in use, finals would wait too long, or the queue or Redis's memory is full.",
        "Try again after retry_after_s.",
    ),
    ErrorCode.RATE_LIMITED: CodeInfo(
        True, CloseCode.POLICY, True, "This address, or this API key, has all it may; the message names the limit.",
        "Try again after retry_after_s, with fewer streams.",
    ),
    ErrorCode.NO_WORKER: CodeInfo(
        False, None, True, "No worker with a loaded model is alive; the stream waits for one.",
        "Wait, or try again after retry_after_s.",
    ),
    ErrorCode.INFERENCE_TIMEOUT: CodeInfo(
        True, CloseCode.INTERNAL, True, "A final was not decoded within limits.inference_timeout_s.",
        "Try again after retry_after_s.",
    ),
    ErrorCode.DECODE_FAILED: CodeInfo(
        True, CloseCode.INTERNAL, False, "A final could not be decoded in any attempt.", "Send the audio again, once."
    ),
    ErrorCode.STATE_LOST: CodeInfo(
        True, CloseCode.INTERNAL, True, "The accepted audio is gone from Redis.", "Send the audio again."
    ),
    ErrorCode.UNAVAILABLE: CodeInfo(
        True, CloseCode.INTERNAL, True, "Redis cannot be reached.",
        "Resume the stream, or try again, after retry_after_s.",
    ),
    ErrorCode.SHUTTING_DOWN: CodeInfo(
        True, CloseCode.SERVICE_RESTART, True, "This server process ends.",
        "Resume the stream, or reconnect after retry_after_s.",
    ),
    ErrorCode.RESUME_REFUSED: CodeInfo(
        True, CloseCode.POLICY, False, "There is no such stream to resume, not any more, or not with this token.",
        "Open a new stream.",
    ),
    ErrorCode.TAKEN_OVER: CodeInfo(
        True, CloseCode.POLICY, False, "Another connection has resumed this stream.", "Leave it to that one."
    ),
    ErrorCode.INTERNAL: CodeInfo(
        True, CloseCode.INTERNAL, True, "A fault of the server.", "Try again; report it if it stays."
    ),
}  # fmt: skip
"""One entry for every `ErrorCode`."""

NOT_THE_STREAMS = frozenset({ErrorCode.SHUTTING_DOWN, ErrorCode.UNAVAILABLE})
"""Errors that end the connection and say nothing about the stream: one that can be resumed waits for its client."""


def code_of_failure(reason: object) -> ErrorCode:
    """What a client is told of a final whose job died of ``reason`` (the code in the job's `Delivery`)."""
    if reason == "audio_missing":
        return ErrorCode.STATE_LOST
    return ErrorCode.UNSUPPORTED_LANGUAGE if reason == "unsupported_language" else ErrorCode.DECODE_FAILED
