"""What a whole live stream costs, all its partials and finals, at every length; and how stable its stable words are.

The segments are those of `sessions.endpointing`, the ranges and the pace of partials those of a front end that never
has to wait: one after `min_partial_audio_s` of an open segment, then one for every `partial_interval_s`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from queueing.lane import Kind
from sessions.assembler import Assembler
from sessions.endpointing import Endpointer
from sessions.limits import SessionLimits
from sessions.segments import Segment
from workers.bench_corpus import Recording, Samples, part, stream_of
from workers.bench_engines import Engine, Stopwatch
from workers.bench_text import changed_words, words_of
from workers.bench_whole import MOST_S, Progress
from workers.transcriber import SAMPLE_RATE, samples_of

PAUSE_S = 0.8
"""The front end's default."""

FRAME_BYTES = 3_200
BYTES_PER_S = 32_000

STREAMS = {5: 8, 15: 4, 30: 3, 120: 1, 3600: 1}
"""Seconds of a stream -> how many different ones are measured."""

MOST_DECODED_S = 300.0
"""Of a longer stream, every n-th segment is decoded, with all its partials, so that about so much is."""


@dataclass(frozen=True, slots=True)
class Decode:
    """One decode that a live stream asks for: its segment's number, the kind, the audio."""

    segment: int
    kind: Kind
    pcm: bytes
    covers_s: float = 0.0
    """Of a final: the seconds of stream that it answers for."""


class Buffer:
    """The part of a stream that is not final yet, as the session's buffer holds it."""

    def __init__(self) -> None:
        self._start = 0
        self._data = bytearray()
        self.most = 0
        """The most bytes it ever held."""

    def append(self, data: bytes) -> None:
        self._data += data
        self.most = max(self.most, len(self._data))

    def read(self, start: int, end: int) -> bytes:
        assert self._start <= start <= end <= self._start + len(self._data), "audio was dropped that is still needed"
        return bytes(self._data[start - self._start : end - self._start])

    def trim(self, before: int) -> None:
        if before > self._start:
            del self._data[: before - self._start]
            self._start = before


def live_decodes(stream: Iterable[bytes], buffer: Buffer, pause_s: float | None = PAUSE_S) -> Iterator[Decode]:
    """Every decode of a stream in its order, none superseded; ``buffer`` is trimmed as the stream goes on."""
    limits = SessionLimits()
    minimum, interval = (int(s * BYTES_PER_S) for s in (limits.min_partial_audio_s, limits.partial_interval_s))
    endpointer = Endpointer(pause_s)
    received = number = 0
    covered: int | None = None
    for frame in _frames(stream):
        buffer.append(frame)
        received += len(frame)
        for segment in endpointer.feed(frame):
            yield _final(segment, number, buffer)
            number, covered = number + 1, None
        if (opened := endpointer.open) is not None:
            due = received - covered >= interval if covered is not None else received - opened.start_byte >= minimum
            if due:
                covered = received
                yield Decode(number, Kind.PARTIAL, buffer.read(opened.start_byte, received))
        buffer.trim(endpointer.keep_from)
    if (last := endpointer.finish()) is not None:
        yield _final(last, number, buffer)


def _final(segment: Segment, number: int, buffer: Buffer) -> Decode:
    covers_s = (segment.covers_to - segment.covers_from) / BYTES_PER_S
    return Decode(number, Kind.FINAL, buffer.read(segment.start_byte, segment.end_byte), covers_s)


def _frames(stream: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in stream:
        rest += piece
        whole = len(rest) - len(rest) % FRAME_BYTES
        yield from (rest[at : at + FRAME_BYTES] for at in range(0, whole, FRAME_BYTES))
        rest = rest[whole:]
    if rest:
        yield rest


def measure_live(
    engine: Engine,
    recordings: Sequence[Recording],
    seed: int,
    watch: Stopwatch,
    progress: Progress,
    lengths: Sequence[int] = tuple(STREAMS),
) -> dict[str, Any]:
    """``live_cost`` by seconds of stream, and ``live`` with what it is made of."""
    cost: dict[str, float] = {}
    detail: dict[str, Any] = {"made_of": "recordings in random order, with pauses of 0.9 to 1.6 s of faint noise"}
    for seconds in lengths:
        parts = [
            _one_stream(engine, stream_of(recordings, seconds, random.Random(seed + number)), seconds, watch)
            for number in range(STREAMS.get(seconds, 1))
        ]
        audio_s, decode_s, decoded_of_s = (sum(part[key] for part in parts) for key in ("audio_s", "decode_s", "of_s"))
        front_s = sum(part["front_s"] for part in parts) / audio_s
        cost[str(seconds)] = round(decode_s / decoded_of_s + front_s, 5)
        detail[str(seconds)] = {
            "streams": len(parts),
            "decoded_of_s": round(decoded_of_s, 1),
            "every_nth_segment": parts[0]["every"],
            "segments": sum(part["segments"] for part in parts),
            "partials": sum(part["partials"] for part in parts),
            "endpointing_cpu_per_audio_s": round(front_s, 6),
            "most_buffered_s": round(max(part["buffered_s"] for part in parts), 2),
        }
        progress(f"live streams of {seconds} s: {cost[str(seconds)]:.4f} s per audio second")
    return {"live_cost": cost, "live": detail}


def _one_stream(engine: Engine, stream: Iterable[bytes], seconds: float, watch: Stopwatch) -> dict[str, Any]:
    every = max(1, round(seconds / MOST_DECODED_S))
    buffer = Buffer()
    decode_s = of_s = 0.0
    partials = segments = 0

    def run() -> None:
        nonlocal decode_s, of_s, partials, segments
        for decode in live_decodes(stream, buffer):
            segments += decode.kind is Kind.FINAL
            partials += decode.kind is Kind.PARTIAL
            if decode.segment % every == 0:
                decode_s += watch.time(engine.texts, [samples_of(decode.pcm)], decode.kind)[0]
                of_s += decode.covers_s

    whole_s, _ = watch.time(run)
    return {
        "audio_s": seconds,
        "decode_s": decode_s,
        # A stream that is decoded in full is paid in full: also its trailing silence, which nothing decodes.
        "of_s": seconds if every == 1 else of_s,
        "front_s": whole_s - decode_s,
        "every": every,
        "segments": segments,
        "partials": partials,
        "buffered_s": buffer.most / BYTES_PER_S,
    }


def measure_stable(engine: Engine, recordings: Sequence[Recording], most: int, progress: Progress) -> dict[str, Any]:
    """How many words, once called stable, are not so in the final; a partial every second of each recording."""
    short = [recording for recording in recordings if 1.0 < recording.audio_s <= MOST_S]
    chosen = short[:: max(1, len(short) // most)][:most]
    words = changed = changed_letters = early = all_words = 0
    broken: list[str] = []
    for recording in chosen:
        assembler = Assembler()
        stable = ""
        for samples in _prefixes(recording):
            shown = assembler.partial(engine.texts([samples], Kind.PARTIAL)[0], len(samples) / SAMPLE_RATE)
            if not shown.stable.startswith(stable) or not shown.text.startswith(shown.stable):
                broken.append(f"{recording.id}: {stable!r}, then {shown.stable!r} of {shown.text!r}")
            stable = shown.stable
        final = engine.texts([recording.samples], Kind.FINAL)[0]
        words += len(words_of(stable))
        changed += changed_words(words_of(stable), words_of(final))
        changed_letters += changed_words(stable.split(), final.split())
        early += len(stable.split())
        all_words += len(final.split())
    progress(f"stable words: {changed} of {words} differ from their final")
    return {
        "rate": round(changed / words, 5) if words else None,
        "rate_with_case_and_punctuation": round(changed_letters / early, 5) if early else None,
        "words": words,
        "changed": changed,
        "share_stable_before_final": round(early / all_words, 3) if all_words else None,
        "recordings": len(chosen),
        "changed_within_segment": broken,
    }


def _prefixes(recording: Recording) -> Iterator[Samples]:
    limits = SessionLimits()
    seconds = limits.min_partial_audio_s
    while seconds < recording.audio_s:
        yield part(recording, seconds)
        seconds += limits.partial_interval_s
