"""What one stream was like, for its log line and for metrics. No transcript text."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

_KEPT = 100


@dataclass(slots=True)
class StreamSummary:
    """Filled in by the session as it goes; complete once the session is closed. Seconds, bytes and counts.

    ``outcome`` is ``done``, ``disconnected``, ``open`` or the error code that ended the stream.
    """

    session: str
    client_ref: str | None = None
    language: str | None = None
    outcome: str = "open"
    close_code: int | None = None
    duration_s: float = 0.0
    audio_bytes: int = 0
    """Accepted PCM16 bytes: every one is in a final, or the outcome is an error."""
    discarded_bytes: int = 0
    """Received but not accepted: headers, a lone last byte, beyond the audio limit."""
    frames: int = 0
    bad_messages: int = 0
    partials_requested: int = 0
    partials_superseded: int = 0
    """Requests that replaced a partial which still waited."""
    partials_refused: int = 0
    """Requests answered busy, full or obsolete."""
    partials_sent: int = 0
    partials_dropped: int = 0
    """Results that came too late to be sent, or failed."""
    finals_requested: int = 0
    finals_sent: int = 0
    flushes: int = 0
    gap_repairs: int = 0
    """Finals that arrived through the durable events, not by pub/sub."""
    duplicates: int = 0
    decoded_s: float = 0.0
    """Seconds of audio decoded for this stream, partials and finals."""
    final_latencies_s: list[float] = field(default_factory=list)
    """From the flush, end, limit or pause that asked for a final to its sending; newest 100."""
    first_partial_s: float | None = None
    """From the first audio received to the first partial sent."""
    partial_staleness_s: list[float] = field(default_factory=list)
    """Age of the newest audio in each partial when it was sent; newest 100."""

    def note_final(self, latency_s: float, decoded_s: float) -> None:
        """A final was sent, this long after it was asked for; seconds that were decoded for it."""
        self.finals_sent += 1
        self.final_latencies_s = [*self.final_latencies_s[1 - _KEPT :], latency_s]
        self.decoded_s += decoded_s

    def note_partial(self, since_first_audio_s: float | None, age_s: float | None) -> None:
        """A partial was sent, this long after the first audio came; ``age_s``: of its newest audio."""
        self.partials_sent += 1
        if self.first_partial_s is None:
            self.first_partial_s = since_first_audio_s
        if age_s is not None:
            self.partial_staleness_s = [*self.partial_staleness_s[1 - _KEPT :], age_s]

    @property
    def audio_s(self) -> float:
        return self.audio_bytes / 32_000

    @property
    def amplification(self) -> float:
        """Seconds decoded per second of audio; 0 without audio."""
        return self.decoded_s / self.audio_s if self.audio_bytes else 0.0

    def log_fields(self) -> dict[str, Any]:
        """Flat values for a ``stream_summary`` log line; the lists as their count, mean and maximum."""
        fields = asdict(self)
        for name in ("final_latencies_s", "partial_staleness_s"):
            values: list[float] = fields.pop(name)
            stem = name.removesuffix("_s").replace("latencies", "latency")
            fields[f"{stem}_mean_s"] = round(sum(values) / len(values), 4) if values else None
            fields[f"{stem}_max_s"] = round(max(values), 4) if values else None
        fields["audio_s"] = round(self.audio_s, 3)
        fields["amplification"] = round(self.amplification, 3)
        fields["decoded_s"] = round(self.decoded_s, 3)
        fields["duration_s"] = round(self.duration_s, 3)
        return fields
