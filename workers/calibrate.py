"""Which window does a model need? Each sizing is measured against the full window: word errors, and CPU seconds.

A sizing pays when its word error rate is at most `TOLERANCE` above the full window's and it takes at most `WORTH` of
its CPU time. Of those that pay the cheapest within a tenth of the best word error rates is taken; when none pays, the
model keeps the full window.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from queueing.lane import MAX_JOB_AUDIO_S, Kind
from workers.bench_corpus import BenchError, Recording
from workers.bench_text import word_error_rate
from workers.calibration import FULL, Calibration
from workers.encoder import Sizing
from workers.transcriber import DecodeError, DecodeRequest
from workers.whisper import WhisperTranscriber

TOLERANCE = 0.002
"""Word error rate that a sizing may cost: 0.2 points."""

WORTH = 0.8
"""Part of the full window's CPU time that a sizing may take and still be worth it."""

CLOSE = 0.001
"""Word error rates this near to the best of the candidates are as good."""

PADDINGS_S = (1.0, 1.5, 2.0, 3.0, 4.0)
SILENCES_S = (0.0, 4.0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One sizing's figures at one beam. ``sizing`` None: the full window. ``word_error_rate`` is a ratio of words,
    ``cpu_per_audio_s`` CPU seconds for each second of audio, ``fallbacks`` what was decoded again, by reason."""

    sizing: Sizing | None
    word_error_rate: float
    cpu_per_audio_s: float
    fallbacks: dict[str, int]


@dataclass(frozen=True, slots=True)
class Measured:
    """All candidates of one kind of decode, the full window first, and the sizing that was chosen of them."""

    kind: Kind
    beam: int
    candidates: tuple[Candidate, ...]

    @property
    def chosen(self) -> Sizing | None:
        """The sizing to use; None when right-sizing does not pay."""
        return choose(self.candidates)

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "beam": self.beam,
            "pays": self.chosen is not None,
            "chosen": asdict(self.chosen) if self.chosen else None,
            "candidates": [asdict(candidate) for candidate in self.candidates],
        }


def choose(candidates: Sequence[Candidate]) -> Sizing | None:
    """The sizing to use of candidates whose first is the full window; None when none of the others pays."""
    full = candidates[0]
    paying = [
        candidate
        for candidate in candidates[1:]
        if candidate.word_error_rate <= full.word_error_rate + TOLERANCE
        and candidate.cpu_per_audio_s <= full.cpu_per_audio_s * WORTH
    ]
    if not paying:
        return None
    best = min(candidate.word_error_rate for candidate in paying)
    good = [candidate for candidate in paying if candidate.word_error_rate <= best + CLOSE]
    return min(good, key=lambda candidate: candidate.cpu_per_audio_s).sizing


def sizings() -> list[Sizing | None]:
    """What is tried, the full window first."""
    return [None, *(Sizing(padding_s, silence_s) for silence_s in SILENCES_S for padding_s in PADDINGS_S)]


def measure(
    whisper: WhisperTranscriber,
    recordings: Sequence[Recording],
    kind: Kind,
    beam: int,
    *,
    cpu_s: Callable[[], float],
    progress: Callable[[str], object],
) -> Measured:
    """Decode all recordings (shorter ones than a job's limit count) with every sizing.

    ``cpu_s`` reads the CPU time of this process in seconds; ``progress`` gets a line before each pass. Raises
    `BenchError` when nothing is left to decode, a decode fails, or the packages for word errors are missing.
    """
    usable = [recording for recording in recordings if recording.audio_s <= MAX_JOB_AUDIO_S and recording.reference]
    if not usable:
        raise BenchError(f"no recording with a text is within {MAX_JOB_AUDIO_S:.0f} s")
    audio_s = sum(recording.audio_s for recording in usable)
    tried = sizings()
    found = []
    for place, sizing in enumerate(tried):
        progress(f"{kind}, beam {beam}: {describe(sizing)} ({place + 1} of {len(tried)}, {len(usable)} recordings)")
        whisper.calibration = Calibration(sizing, sizing)
        before = Counter(whisper.counters)
        began_s = cpu_s()
        texts = [_text(whisper, recording, kind) for recording in usable]
        spent_s = cpu_s() - began_s
        rate, _ = word_error_rate(zip((recording.reference or "" for recording in usable), texts, strict=True))
        found.append(Candidate(sizing, rate, spent_s / audio_s, dict(whisper.counters - before)))
    whisper.calibration = replace(FULL)
    return Measured(kind, beam, tuple(found))


def describe(sizing: Sizing | None) -> str:
    """A sizing in words."""
    if sizing is None:
        return "full window"
    return f"padding {sizing.padding_s:g} s, states of silence {sizing.silence_s:g} s"


def _text(whisper: WhisperTranscriber, recording: Recording, kind: Kind) -> str:
    (answer,) = whisper.decode([DecodeRequest(recording.samples, kind)])
    if isinstance(answer, DecodeError):
        raise BenchError(f"{recording.id}: {answer}")
    return answer.text
