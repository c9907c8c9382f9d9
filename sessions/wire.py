"""The streaming protocol, version 1: message types, limits, encode and decode. No I/O.

Client to server: `Start`, `Resume`, `Flush`, `Keepalive`, `End` as text, audio as binary messages.
Server to client: `Ready`, `Partial`, `Final`, `Ack`, `Status`, `Done`, `Error`, all text.
docs/protocol.md tells the rest.
Unknown fields are ignored by both sides; an unknown type is `UnknownType`, anything else wrong `BadMessage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import from_json

from sessions.codes import CODES, CloseCode, CodeInfo, ErrorCode
from sessions.errors import BadMessage, UnknownType, WireError

__all__ = [
    "BYTES_PER_SAMPLE", "BYTES_PER_SECOND", "CHANNELS", "CODES", "ENCODING", "MAX_BAD_MESSAGES", "MAX_ENDPOINT_MS",
    "MAX_HOTWORDS", "MAX_INITIAL_PROMPT", "MAX_LAST_SEQ", "MAX_TEXT_BYTES", "MIN_ENDPOINT_MS", "PROTOCOL",
    "SAMPLE_RATE", "Ack", "BadMessage", "ClientMessage", "CloseCode", "CodeInfo", "Done", "End", "Error",
    "ErrorCode", "Final", "Flush", "Keepalive", "Limits", "Partial", "Ready", "Resume", "ServerMessage", "Start",
    "Status", "Timing", "UnknownType", "WireError", "Word", "decode_client", "decode_server", "encode",
]  # fmt: skip

PROTOCOL = 1

SAMPLE_RATE = 16_000
CHANNELS = 1
ENCODING = "pcm_s16le"
BYTES_PER_SAMPLE = 2
BYTES_PER_SECOND = SAMPLE_RATE * BYTES_PER_SAMPLE

MAX_TEXT_BYTES = 16_384
"""Longest text message in UTF-8 bytes: a start message with every field is below 1 kB."""

MAX_CLIENT_REF = 128
MAX_INITIAL_PROMPT = 1_000
MAX_HOTWORDS = 500
"""Characters. A model reads a few hundred tokens at most, and every job of the stream carries them."""

MIN_ENDPOINT_MS = 100
MAX_ENDPOINT_MS = 10_000
MAX_BAD_MESSAGES = 100
"""Wrong messages of one stream until it is closed."""
MAX_LAST_SEQ = 2**31 - 1
"""Years of partials. The server counts on from what a client says, in numbers that every client can read."""

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Start(_Message):
    """Optional first message: the format of the audio and what is wanted of it."""

    type: Literal["start"] = "start"
    sample_rate: int = SAMPLE_RATE
    encoding: str = Field(ENCODING, max_length=64)
    channels: int = CHANNELS
    language: str | None = Field(None, pattern=r"^[a-z]{2,3}$")
    """ISO 639 code; None leaves it to the model."""
    task: Literal["transcribe", "translate"] = "transcribe"
    """``translate``: into English."""
    partials: bool = True
    words: bool = False
    """Finals carry word times."""
    endpoint_ms: int | Literal[False] | None = None
    """The pause that ends a segment; False: none does; None: as the server is set."""
    initial_prompt: str | None = Field(None, max_length=MAX_INITIAL_PROMPT)
    """Text that might have come before, for the style and spelling of what comes."""
    hotwords: str | None = Field(None, max_length=MAX_HOTWORDS)
    """Words to expect: names, terms."""
    client_ref: str | None = Field(None, max_length=MAX_CLIENT_REF)
    """The client's own name for this stream, for logs; never interpreted."""
    resume: bool | None = None
    """None: a stream that lost its connection waits for its client to come back; True: the client promises to; False:
    nothing waits."""

    @field_validator("endpoint_ms", mode="before")
    @classmethod
    def _pause_is_possible(cls, value: object) -> object:
        number = type(value) is int and MIN_ENDPOINT_MS <= value <= MAX_ENDPOINT_MS
        if number or value is None or value is False:
            return value
        raise ValueError(
            f"give {MIN_ENDPOINT_MS} to {MAX_ENDPOINT_MS} whole milliseconds, or false for no cuts at pauses"
        )


class Resume(_Message):
    """First message of a client that lost its connection and goes on with its stream on this one."""

    type: Literal["resume"] = "resume"
    session: str = Field(min_length=1, max_length=64)
    """Of the stream's `Ready`."""
    token: str = Field(min_length=1, max_length=128)
    """Of the newest `Ready` that arrived."""
    last_seq: int = Field(ge=0, le=MAX_LAST_SEQ)
    """Of the newest `Partial` or `Final` that arrived; 0 for none."""


class Flush(_Message):
    """A final for what is there; the stream stays open."""

    type: Literal["flush"] = "flush"


class Keepalive(_Message):
    """Nothing to say, still here."""

    type: Literal["keepalive"] = "keepalive"


class End(_Message):
    """No more audio: the last final, then `Done`."""

    type: Literal["end"] = "end"


ClientMessage = Start | Resume | Flush | Keepalive | End


class Limits(_Message):
    """What this server allows one stream; seconds and bytes."""

    max_audio_s: Seconds | None = None
    """None: as much as comes."""
    max_frame_bytes: int
    max_text_bytes: int = MAX_TEXT_BYTES
    idle_timeout_s: Seconds
    inference_timeout_s: Seconds
    partial_interval_s: Seconds
    min_partial_audio_s: Seconds
    endpoint_ms: int | Literal[False] = False
    """The pause that ends a segment of this stream; False: none does."""


class Ready(_Message):
    """The options are settled; ``session`` names the stream in the server's logs."""

    type: Literal["ready"] = "ready"
    session: str
    protocol: int = PROTOCOL
    limits: Limits
    token: str | None = None
    """The right to `Resume` the stream, once; None where it cannot be resumed."""
    resume_s: Seconds = 0.0
    """How long a lost connection may take to come back."""
    received_s: Seconds = 0.0
    """Audio that need not be sent again: of a resumed stream the client goes on at sample received_s * 16000."""
    resumed: bool = False


class Word(_Message):
    """A word of a final; times in seconds from the start of the stream."""

    text: str
    start_s: Seconds
    end_s: Seconds
    probability: float = Field(ge=0, le=1)


class Timing(_Message):
    """Where the time of a final went: waiting in the queue, decoding, for how much audio."""

    queue_ms: int = Field(ge=0)
    decode_ms: int = Field(ge=0)
    audio_s: Seconds


class Partial(_Message):
    """The current guess for audio from ``start_s`` to ``end_s``; the next partial or final replaces it.

    ``text`` begins with ``stable``, and so does the text of every later partial of the same segment.
    """

    type: Literal["partial"] = "partial"
    seq: int = Field(ge=1)
    provisional: Literal[True] = True
    start_s: Seconds
    end_s: Seconds
    stable: str = ""
    text: str


class Final(_Message):
    """The text of ``start_s`` to ``end_s``, said once and never changed; ``last``: nothing follows but `Done`.

    ``speech_start_s`` to ``speech_end_s``: the part of it that was decoded; None where nothing was.
    """

    type: Literal["final"] = "final"
    seq: int = Field(ge=1)
    provisional: Literal[False] = False
    start_s: Seconds
    end_s: Seconds
    text: str
    last: bool
    speech_start_s: Seconds | None = None
    speech_end_s: Seconds | None = None
    words: Annotated[tuple[Word, ...] | None, Field(strict=False)] = None
    timing: Timing | None = None


class Ack(_Message):
    """Audio up to here is kept safely: even if the connection is lost it need not be sent again."""

    type: Literal["ack"] = "ack"
    received_s: Seconds


class Status(_Message):
    """The service, or the client, has fallen behind, or has caught up again; not numbered, and only on change."""

    type: Literal["status"] = "status"
    lag_s: Seconds
    """How far the newest text is behind the newest accepted audio; 0 where nothing waits for its text."""
    partial_interval_s: Seconds
    """New audio between two partials as the load is now; within long segments more, as always."""


class Done(_Message):
    """The stream is complete: seconds of audio accepted and finals sent."""

    type: Literal["done"] = "done"
    audio_s: Seconds
    finals: int = Field(ge=0)


class Error(_Message):
    """Something went wrong; ``fatal``: the server closes the stream. Newer servers may know more codes."""

    type: Literal["error"] = "error"
    code: str
    message: str
    fatal: bool
    retry_after_s: Seconds | None = None


ServerMessage = Ready | Partial | Final | Ack | Status | Done | Error

_CLIENT: Mapping[str, type[_Message]] = {
    "start": Start, "resume": Resume, "flush": Flush, "keepalive": Keepalive, "end": End,
}  # fmt: skip
_SERVER: Mapping[str, type[_Message]] = {
    "ready": Ready, "partial": Partial, "final": Final, "ack": Ack, "status": Status, "done": Done, "error": Error,
}  # fmt: skip


def encode(message: ClientMessage | ServerMessage) -> str:
    """The message as JSON text; fields that are None are left out."""
    return message.model_dump_json(exclude_none=True)


def decode_client(text: str | bytes) -> ClientMessage:
    """Read a text message of a client. Raises `BadMessage` or `UnknownType`."""
    return _decode(text, _CLIENT)  # type: ignore[return-value]


def decode_server(text: str | bytes) -> ServerMessage:
    """Read a text message of a server. Raises `BadMessage` or `UnknownType` (which a client may ignore)."""
    return _decode(text, _SERVER, limit=None)  # type: ignore[return-value]


def _decode(text: str | bytes, types: Mapping[str, type[_Message]], *, limit: int | None = MAX_TEXT_BYTES) -> _Message:
    try:
        raw = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise BadMessage(f"the text is not valid Unicode: {error.reason}") from None
    if limit is not None and len(raw) > limit:
        raise BadMessage(f"a text message of {len(raw)} bytes; at most {limit} are allowed")
    try:
        data: Any = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise BadMessage(f"not JSON: {error}; send one JSON object per text message") from None
    if not isinstance(data, dict):
        raise BadMessage(f'a JSON {type(data).__name__} instead of an object like {{"type":"end"}}')
    kind = data.get("type")
    if not isinstance(kind, str):
        raise BadMessage(f"no field 'type' with a text; known types are {', '.join(types)}")
    if kind not in types:
        raise UnknownType(kind[:64], tuple(types))
    try:
        return types[kind].model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        shown = repr(first["input"])[:80]
        problem = first["msg"].removeprefix("Value error, ")
        raise BadMessage(f"{kind}.{where} is {shown}: {problem[:1].lower()}{problem[1:]}") from None
