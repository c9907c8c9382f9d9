"""What one stream wants: its start message, or doing without, on top of how the server is set."""

from __future__ import annotations

from dataclasses import dataclass, field

from sessions.limits import SessionLimits
from sessions.results import DecodeOptions
from sessions.wire import CHANNELS, ENCODING, SAMPLE_RATE, Start


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of one stream. ``chosen``: its client sent a start message."""

    message: Start = field(default_factory=Start)
    chosen: bool = False

    def wrong_format(self) -> str | None:
        """Which other sample format it announces, in words; None for the right one."""
        message = self.message
        if (message.encoding, message.sample_rate, message.channels) == (ENCODING, SAMPLE_RATE, CHANNELS):
            return None
        return f"{message.encoding}, {message.sample_rate} Hz, {message.channels} channel(s)"

    def endpoint_s(self, limits: SessionLimits) -> float | None:
        """The pause that ends a segment, in seconds; None: none does."""
        wanted = self.message.endpoint_ms
        if wanted is None:
            return limits.endpoint_s
        return None if wanted is False else wanted / 1000

    def decode(self) -> DecodeOptions:
        """What the workers need to know."""
        message = self.message
        return DecodeOptions(
            language=message.language,
            words=message.words,
            translate=message.task == "translate",
            initial_prompt=message.initial_prompt or None,
            hotwords=message.hotwords or None,
        )

    def described(self, endpoint_s: float | None) -> dict[str, str]:
        """For the session's description in Redis; without the texts, which may hold names."""
        message = self.message
        return {
            "client_ref": message.client_ref or "",
            "language": message.language or "",
            "task": message.task,
            "partials": str(int(message.partials)),
            "words": str(int(message.words)),
            "endpoint_ms": "off" if endpoint_s is None else str(round(endpoint_s * 1000)),
        }
