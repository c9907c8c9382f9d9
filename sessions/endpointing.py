"""Where a stream of speech may be cut: segments that end where speech ends. No I/O, no clock.

A segment is a function of the samples alone: frames of the wire, load and time change nothing, because the detector
sees the stream in frames of its own grid (`voice.FRAME_SAMPLES`) and every decision stands at the end of one.

    quiet --(onset: a few voiced frames)--> speaking --(silence of endpoint_s)--> quiet       Segment "pause"
                                            speaking --(start..now is max_segment_s)--> cut   Segment "length"

Two thresholds, so that a score between them changes nothing: a frame is voiced from `ONSET` up, silent below
`RELEASE`. Segments cover the stream without gaps: each begins where the one before ended, and silence belongs to the
segment after it. All positions are bytes from the start of the stream, and whole samples.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Self

import numpy as np

from sessions.anchor import Anchor
from sessions.gaps import GAP_SEARCH_S, best_gap
from sessions.segments import ONSET, RELEASE, OpenSegment, Reason, Segment, Speech
from sessions.voice import FRAME_S, FRAME_SAMPLES, EarshotDetector, VoiceDetector

BYTES_PER_SAMPLE = 2
BYTES_PER_S = 32_000
FRAME_BYTES = FRAME_SAMPLES * BYTES_PER_SAMPLE

MAX_SEGMENT_S = 28.0
"""A decode holds 30 s, and needs 2 s of room after the speech."""

ONSET_FRAMES = 3
"""Voiced frames on end that begin speech: a click is shorter."""

MIN_SPEECH_S = 0.1
"""What is voiced for less is dropped at the pause after it."""

MARGIN_S = 0.3
"""Kept before the onset and after the end: weak consonants score low."""

ANCHOR_S = 3.0
"""In silence the detector begins anew this often, so that no long silence need be heard again."""

_ANCHOR_BYTES = round(ANCHOR_S / FRAME_S) * FRAME_BYTES


class Endpointer:
    """Cuts one stream. ``endpoint_s``: the pause that ends a segment, in seconds.

    None: no pause ends one, and the detector is not trusted with what is speech: everything is decoded; a segment is
    still cut before it holds ``max_segment_s``, in the best gap there is.
    """

    def __init__(
        self, endpoint_s: float | None, max_segment_s: float = MAX_SEGMENT_S, vad: VoiceDetector | None = None
    ) -> None:
        self._pause = None if endpoint_s is None else max(1, round(endpoint_s / FRAME_S))
        self._max_bytes = int(max_segment_s * BYTES_PER_S)
        self._vad: VoiceDetector = EarshotDetector() if vad is None else vad
        self._margin = int(MARGIN_S * BYTES_PER_S)
        self._rest = bytearray()
        self.anchor = Anchor()
        """The newest place from which the stream can be heard anew."""
        self._fed = 0
        self._frames = 0
        self._covered = 0
        self._onset = 0
        self._speech: Speech | None = None
        self._cut_at = self._full(0)
        """The frame after which a segment must be cut; it means something while there is one."""
        search = int(min(GAP_SEARCH_S, max_segment_s / 2) / FRAME_S)
        self._past: deque[tuple[float, float]] = deque(maxlen=search)
        """(score, energy) of the newest frames, for the gap of a cut."""

    @classmethod
    def anchored(
        cls,
        endpoint_s: float | None,
        anchor: Anchor,
        covered: int,
        max_segment_s: float = MAX_SEGMENT_S,
        vad: VoiceDetector | None = None,
    ) -> Self:
        """One that goes on from an anchor of another, when it is fed the stream from ``anchor.hear_from`` on.

        ``covered``: where the newest segment of that one ended. ``vad``: new, with the anchor's loudness.
        """
        cutter = cls(endpoint_s, max_segment_s, EarshotDetector(anchor.loudness) if vad is None else vad)
        cutter.anchor = anchor
        cutter._fed = anchor.hear_from
        cutter._frames = anchor.hear_from // FRAME_BYTES
        cutter._covered = covered
        cutter._cut_at = cutter._full(covered)
        cutter._onset = anchor.onset
        if anchor.speech is not None:
            start, spoken, silence = anchor.speech
            speech = cutter._take_up(start)
            speech.spoken, speech.silence = spoken, silence
        return cutter

    @property
    def covered(self) -> int:
        """Where the newest segment's cover ends, and the next one's begins."""
        return self._covered

    @property
    def open(self) -> OpenSegment | None:
        """None while nobody speaks. Once open, a segment stays so until it is returned."""
        if self._pause is None:
            if self._position <= self._covered:
                return None
            return OpenSegment(self._covered, (self._position - self._covered) / BYTES_PER_S)
        speech = self._speech
        if speech is None or speech.speech_s < MIN_SPEECH_S:
            return None
        return OpenSegment(speech.start, speech.speech_s)

    @property
    def keep_from(self) -> int:
        """What lies before is in no later segment's decode. Never falls. (The anchor may lie before.)"""
        if self._pause is None:
            return self._covered
        if self._speech is not None:
            return self._speech.start
        return max(self._covered, (self._frames - self._onset) * FRAME_BYTES - self._margin)

    def feed(self, data: bytes) -> list[Segment]:
        """Take the next bytes of the stream; the segments that ended inside them, oldest first."""
        self._fed += len(data)
        self._rest += data
        count = len(self._rest) // FRAME_BYTES
        if not count:
            return []
        size = count * FRAME_BYTES
        frames = np.frombuffer(bytes(self._rest[:size]), dtype="<i2").reshape(count, FRAME_SAMPLES)
        del self._rest[:size]
        ended = []
        for score, energy in self._vad.listen(frames):
            self._frames += 1
            if self._frames * FRAME_BYTES <= self.anchor.at:
                continue  # the detector settles; what follows from these frames is known
            self._past.append((score, energy))
            segment = self._step(score)
            if segment is not None:
                ended.append(segment)
            if segment is not None or self._long_quiet:
                self._drop_anchor()
        return ended

    def finish(self) -> Segment | None:
        """End the open segment here; None when nothing was said since the last one. The stream may go on."""
        segment = self._finish()
        if segment is not None:
            self._drop_anchor()
        return segment

    def _finish(self) -> Segment | None:
        position = self._position
        speech = self._speech
        if self._pause is None:
            if position <= self._covered:
                return None
            return self._close(self._covered, position, position, (position - self._covered) / BYTES_PER_S, "finish")
        if speech is None and self._onset:
            speech = self._begin()
        if speech is None or not speech.spoken or (speech.silence and speech.speech_s < MIN_SPEECH_S):
            return None
        end = min(position, self._spoken_to(speech) + self._margin) if speech.silence else position
        segment = self._close(speech.start, end, position, speech.speech_s, "finish")
        if not speech.silence:
            self._take_up(position)
        return segment

    @property
    def _long_quiet(self) -> bool:
        """Without `_pause` there may be a cut soon, for which the frames before it count."""
        quiet = self._speech is None and not self._onset and self._pause is not None
        return quiet and self._now - self.anchor.at >= _ANCHOR_BYTES

    def _drop_anchor(self) -> None:
        heard, loudness = self._vad.settle()
        speech = self._speech
        self.anchor = Anchor(
            hear_from=self._now - heard * FRAME_BYTES,
            at=self._now,
            onset=self._onset,
            speech=None if speech is None else (speech.start, speech.spoken, speech.silence),
            loudness=loudness,
        )

    @property
    def _position(self) -> int:
        return self._fed // BYTES_PER_SAMPLE * BYTES_PER_SAMPLE

    @property
    def _now(self) -> int:
        return self._frames * FRAME_BYTES

    def _spoken_to(self, speech: Speech) -> int:
        return max(speech.start, self._now - speech.silence * FRAME_BYTES)

    def _begin(self) -> Speech:
        start = max(self._covered, self._now - self._onset * FRAME_BYTES - self._margin)
        speech = self._take_up(start)
        speech.spoken = self._onset
        self._onset = 0
        return speech

    def _take_up(self, start: int) -> Speech:
        self._speech = speech = Speech(start)
        if self._pause is not None:
            self._cut_at = self._full(start)
        return speech

    def _full(self, start: int) -> int:
        """The frame at whose end a segment from ``start`` is as long as it may be."""
        return -(-(start + self._max_bytes) // FRAME_BYTES)

    def _close(self, start: int, end: int, covers_to: int, speech_s: float, reason: Reason) -> Segment:
        segment = Segment(
            covers_from=self._covered,
            covers_to=covers_to,
            start_byte=start,
            end_byte=end,
            speech_s=min(speech_s, (end - start) / BYTES_PER_S),
            reason=reason,
        )
        self._covered = covers_to
        self._cut_at = self._full(covers_to)
        self._onset = 0
        self._speech = None
        return segment

    def _step(self, score: float) -> Segment | None:
        """Take the score of the newest frame. Runs 60 times for each second of every stream: no detours."""
        speech = self._speech
        if speech is None:
            self._listen(score)
            if self._pause is None and self._frames >= self._cut_at:
                return self._cut(self._covered)
            return None
        speech.follow(score)
        if self._pause is not None and speech.silence >= self._pause:
            if speech.speech_s < MIN_SPEECH_S:
                self._speech = None
                return None
            end = min(self._now, self._spoken_to(speech) + self._margin)
            return self._close(speech.start, end, end, speech.speech_s, "pause")
        if self._frames >= self._cut_at:
            return self._cut(self._covered if self._pause is None else speech.start)
        return None

    def _listen(self, score: float) -> None:
        if score < ONSET:
            self._onset = 0
            return
        self._onset += 1
        if self._onset >= ONSET_FRAMES:
            self._begin()

    def _cut(self, start: int) -> Segment:
        """End the segment in the best gap of the newest frames and take up again what came after it."""
        past = list(self._past)
        first, length = best_gap(past, RELEASE)
        base = self._now - len(past) * FRAME_BYTES
        gap = base + first * FRAME_BYTES
        end = gap + min(self._margin, length * FRAME_BYTES // 2 // BYTES_PER_SAMPLE * BYTES_PER_SAMPLE)
        end = max(start + FRAME_BYTES, end)
        after = past[(end - base) // FRAME_BYTES :]
        spoken = self._spoken_before(start, end, after)
        segment = self._close(start, end, end, spoken, "length")
        self._resume(after, end)
        return segment

    def _spoken_before(self, start: int, end: int, after: Sequence[tuple[float, float]]) -> float:
        """Seconds of speech up to a cut; what the frames after it added, they add no more."""
        speech = self._speech
        if self._pause is None or speech is None:
            return (end - start) / BYTES_PER_S
        later = Speech(end)
        for score, _ in after:
            later.follow(score)
        return max(0.0, speech.speech_s - later.speech_s)

    def _resume(self, frames: list[tuple[float, float]], start: int) -> None:
        """The frames after a cut, as if the stream had begun there; speech cut in the middle goes on at once."""
        if frames and frames[0][0] >= RELEASE:
            self._take_up(start)
        now = self._frames
        for self._frames, (score, _) in enumerate(frames, now - len(frames) + 1):
            if self._speech is None:
                self._listen(score)
            else:
                self._speech.follow(score)
        self._frames = now
