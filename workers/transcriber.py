"""What a worker asks of a model. Implementations: `whisper` (faster-whisper), `scripted` (deterministic)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from queueing.lane import Kind

SAMPLE_RATE = 16_000
BYTES_PER_SAMPLE = 2


def samples_of(pcm: bytes) -> npt.NDArray[np.float32]:
    """PCM16LE as float32 samples of shape (n,) in [-1, 1); a lone last byte is left out."""
    whole = len(pcm) // BYTES_PER_SAMPLE * BYTES_PER_SAMPLE
    return np.frombuffer(pcm[:whole], dtype="<i2").astype(np.float32) / np.float32(32768)


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """One piece of audio to decode: ``samples`` is float32, shape (n,), 16 kHz mono in [-1, 1].

    ``translate``: into English instead of the language spoken; ``prompt``: text that might have come before, for
    its style and spelling; ``hotwords``: words to expect. Both are cut to what the model can read.
    """

    samples: npt.NDArray[np.float32]
    kind: Kind
    language: str | None = None
    words: bool = False
    translate: bool = False
    prompt: str | None = None
    hotwords: str | None = None

    @property
    def audio_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its times in seconds from the start of the request's audio."""

    text: str
    start_s: float
    end_s: float
    probability: float


@dataclass(frozen=True, slots=True)
class Transcript:
    """The text of one request; ``text`` is empty when there is no speech.

    ``language_probability``: in [0, 1] when the language was detected, 1 when it was given, None when nothing was
    decoded. ``decoded``: the model was asked. Silence is answered without it, and so fast that its time says nothing
    of what a decode costs. ``alone_s``: seconds of the call that went to this request alone, after what it shared with
    the others: a second decode of a suspicious text, word times. They are this request's cost and not its companions'.
    """

    text: str
    language: str | None = None
    words: tuple[Word, ...] = ()
    decoded: bool = True
    language_probability: float | None = None
    alone_s: float = field(default=0.0, compare=False)


DECODE_FAILED = "decode_failed"
UNSUPPORTED_LANGUAGE = "unsupported_language"


class DecodeError(Exception):
    """This request cannot be decoded; the others of its batch can.

    ``retry``: another attempt may succeed (out of memory, a fault of the machine); without it the request
    itself is at fault. ``code`` is what its client is told; after `UNSUPPORTED_LANGUAGE` nothing is left for an
    operator to look into.
    """

    def __init__(self, message: str, *, retry: bool = False, code: str = DECODE_FAILED) -> None:
        super().__init__(message)
        self.retry = retry
        self.code = code


class Transcriber(Protocol):
    """A loaded model."""

    @property
    def name(self) -> str:
        """The model's name, for health and logs."""

    @property
    def batches_finals(self) -> bool:
        """Whether finals and files in one call share the model's time. Partials always do.

        Where this is false they are decoded one after the other, so a worker claims one at a time: the second gains
        nothing from waiting for the first here, while another worker, or a more urgent job, might come before it.
        """

    @property
    def lifts_partials(self) -> bool:
        """Whether all partials of one call are decoded together in the largest of their windows.

        The caller then puts partials of smaller windows into a call where this costs less than their own. Where it is
        false a call's partials are decoded window by window, and mixing them gains nothing.
        """

    @property
    def counters(self) -> Mapping[str, int]:
        """What became of decodes besides their first text since the model was loaded, by kind: decoded once more,
        gone on with, dropped."""

    def decode(self, requests: Sequence[DecodeRequest]) -> Sequence[Transcript | DecodeError]:
        """Decode a batch; one answer per request, in order. A fault of one is its `DecodeError` alone."""
