"""A stand-in for the model: text made from the audio's bytes, in a simulated time, with faults on request.

Every whole or begun half second of audio that is not digital silence becomes one word, spelled from a digest of its
samples. So the text tells exactly which bytes were decoded, audio that grows keeps the words it had, and anybody can
compute with `scripted_text` what must come back.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from queueing.errors import SettingProblem, SettingsError
from queueing.lane import Kind
from workers.transcriber import SAMPLE_RATE, DecodeError, DecodeRequest, Transcript, Word, samples_of

BLOCK_SAMPLES = SAMPLE_RATE // 2
SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
SYLLABLES_PER_WORD = 4
HANG_S = 3600.0


class Fault(BaseModel):
    """What happens instead of, or before, a decode.

    ``slow``: takes ``seconds`` longer. ``hang``: does not return. ``crash``: the process ends at once. ``error``:
    this request fails for good. ``raise``: the whole call fails, as a broken library would.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    do: Literal["slow", "hang", "crash", "error", "raise"]
    seconds: float = Field(1.0, ge=0, le=600)


class Script(BaseModel):
    """The table: a call takes ``base_s``, ``per_job_s`` for every request, ``per_audio_s`` for every second of audio.

    Without ``batches_finals`` only partials share a call's ``base_s``. ``kind_scale`` stretches the time by kind
    (``partial``, ``final``, ``file``). ``texts``: SHA-256 of a request's PCM16 in hexadecimal, or a prefix of 8 or
    more digits -> text. ``faults``: first sample (-32768..32767) -> `Fault`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_s: float = Field(0.05, ge=0, le=600)
    per_job_s: float = Field(0.0, ge=0, le=600)
    per_audio_s: float = Field(0.02, ge=0, le=600)
    batches_finals: bool = True
    kind_scale: Mapping[Kind, float] = Field(default_factory=dict)
    texts: Mapping[str, str] = Field(default_factory=dict)
    faults: Mapping[int, Fault] = Field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> Script:
        """Read a JSON file; raises `SettingsError` saying what is wrong with it."""
        try:
            return Script.model_validate_json(path.read_bytes())
        except OSError as error:
            raise _wrong(path, f"cannot be read: {error.strerror}") from error
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "the file"
            raise _wrong(path, f"{place}: {first['msg']}") from error

    def decode_s(self, requests: Sequence[DecodeRequest]) -> float:
        """Simulated seconds for a batch."""
        scale = max((self.kind_scale.get(request.kind, 1.0) for request in requests), default=1.0)
        alone = 0 if self.batches_finals else sum(request.kind is not Kind.PARTIAL for request in requests)
        bases = max(1, alone + (alone < len(requests)))
        audio_s = sum(request.audio_s for request in requests)
        return scale * (bases * self.base_s + len(requests) * self.per_job_s + audio_s * self.per_audio_s)


class ScriptedTranscriber:
    """A `Transcriber` without a model. ``pause`` waits for seconds, ``crash`` ends the process with a status."""

    name = "scripted"

    def __init__(self, script: Script, *, pause: Callable[[float], object], crash: Callable[[int], object]) -> None:
        self._script = script
        self._pause = pause
        self._crash = crash
        self.counters: dict[str, int] = {}

    @property
    def batches_finals(self) -> bool:
        """As the table says."""
        return self._script.batches_finals

    @property
    def lifts_partials(self) -> bool:
        """It does: here a call's time does not depend on windows."""
        return True

    def decode(self, requests: Sequence[DecodeRequest]) -> Sequence[Transcript | DecodeError]:
        """One answer per request, in order, after the simulated time. Raises RuntimeError for the fault ``raise``."""
        faults = [self._fault(request) for request in requests]
        self._pause(self._script.decode_s(requests))
        for fault in faults:
            self._suffer(fault)
        return [
            DecodeError("scripted fault: this audio cannot be decoded")
            if fault is not None and fault.do == "error"
            else self._answer(request)
            for request, fault in zip(requests, faults, strict=True)
        ]

    def _fault(self, request: DecodeRequest) -> Fault | None:
        return self._script.faults.get(int(_pcm(request.samples[:1])[0])) if len(request.samples) else None

    def _suffer(self, fault: Fault | None) -> None:
        if fault is None:
            return
        if fault.do == "slow":
            self._pause(fault.seconds)
        elif fault.do == "hang":
            self._pause(HANG_S)
        elif fault.do == "crash":
            self._crash(70)
        elif fault.do == "raise":
            raise RuntimeError("scripted fault: the library is broken")

    def _answer(self, request: DecodeRequest) -> Transcript:
        language = request.language or "en"
        digest = hashlib.sha256(_pcm(request.samples).tobytes()).hexdigest()
        for start, text in self._script.texts.items():
            if len(start) >= 8 and digest.startswith(start.lower()):
                return Transcript(text, language, language_probability=1.0)
        words = scripted_words(request.samples)
        text = " ".join(word.text for word in words)
        spoken = bool(words)
        return Transcript(
            text,
            language,
            words if request.words else (),
            decoded=spoken,
            language_probability=1.0 if spoken else None,
        )


def scripted_text(pcm: bytes) -> str:
    """What the stand-in answers to this PCM16 (little-endian, 16 kHz, mono) when the table has no text for it."""
    return " ".join(word.text for word in scripted_words(samples_of(pcm)))


def scripted_words(samples: npt.NDArray[np.float32]) -> tuple[Word, ...]:
    """The words for float32 samples of shape (n,) with their times; none for digital silence."""
    pcm = _pcm(samples)
    words = []
    for start in range(0, len(pcm), BLOCK_SAMPLES):
        block = pcm[start : start + BLOCK_SAMPLES]
        if block.any():
            words.append(
                Word(_spell(block.tobytes()), start / SAMPLE_RATE, (start + len(block)) / SAMPLE_RATE, probability=1.0)
            )
    return tuple(words)


def _spell(data: bytes) -> str:
    digest = hashlib.blake2b(data, digest_size=SYLLABLES_PER_WORD).digest()
    return "".join(SYLLABLES[byte % len(SYLLABLES)] for byte in digest)


def _pcm(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.int16]:
    return np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2")


def _wrong(path: Path, problem: str) -> SettingsError:
    return SettingsError([SettingProblem("HEARLINE_SCRIPT", str(path), problem)])
