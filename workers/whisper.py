"""The one door to faster-whisper and CTranslate2: find, load, warm up, decode.

A decode is a function of the audio alone: temperature 0, no prompt from earlier text, nothing drawn by chance, so
the same bytes give the same text under any load. Audio longer than Whisper's 30 s window is decoded window after
window, each continuing where the text of the one before ended.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import numpy.typing as npt
import tokenizers
from faster_whisper import WhisperModel
from faster_whisper.utils import available_models, download_model
from faster_whisper.vad import VadOptions, get_speech_timestamps

from queueing.lane import Kind
from workers.model_files import TOKENIZER, ModelError, ModelFiles
from workers.plausible import (
    MAX_COMPRESSION,
    MIN_LOG_PROBABILITY,
    NO_SPEECH_PROBABILITY,
    Heard,
    Speech,
    fits,
    in_order,
    is_plausible,
)
from workers.transcriber import SAMPLE_RATE, UNSUPPORTED_LANGUAGE, DecodeError, DecodeRequest, Transcript, Word

MOST_THREADS = 4
"""Beyond four threads a single stream of small matrices gains little (CTranslate2's own default)."""

MOST_TOKENS = 224
"""Tokens of one 30 s window: half of Whisper's text context, as in OpenAI's decoder."""
TOKENS_PER_S = 16
"""Twice the tokens of fast speech; with `SPARE_TOKENS` it bounds how long a loop over short audio can run."""
SPARE_TOKENS = 32

SHORT_AUDIO_S = 2.0
"""Audio up to this length is decoded without timestamp tokens. With them the tails of 60 recordings, cut to 0.3 and
0.5 s, gave sentences of up to 75 characters that nobody said; without, 21 characters at most and as many right last
words. Longer audio needs them: without, all after a pause can be missing."""

VOICE = VadOptions(threshold=0.5, min_speech_duration_ms=100, min_silence_duration_ms=300, speech_pad_ms=0)
"""When the Silero detector's answer counts as speech. Its onset on a steady buzz lasts at most three frames of
32 ms; real words of 0.2 s, cut out of speech, pass."""


@dataclass(frozen=True, slots=True)
class WhisperOptions:
    """How to load and decode; the names and limits are those of `workers.settings.WorkerSettings`."""

    device: str = "auto"
    compute_type: str = "default"
    threads: int = 0
    language: str | None = None
    partial_beam: int = 1
    final_beam: int = 5


def known_sizes() -> tuple[str, ...]:
    """The model names that the hub has."""
    return tuple(available_models())


def fetch_from_hub(size: str, model_dir: Path | None) -> str:
    """The directory of a hub model: what is in the cache, else downloaded. Raises OSError without either."""
    cache = str(model_dir) if model_dir else None
    try:
        return str(download_model(size, cache_dir=cache, local_files_only=True))
    except OSError:
        return str(download_model(size, cache_dir=cache))


def choose_device(wanted: str) -> str:
    """``cpu`` or ``cuda``; raises `ModelError` when a GPU is asked for and none is there."""
    gpus = ctranslate2.get_cuda_device_count()
    if wanted == "cuda" and gpus == 0:
        raise ModelError("HEARLINE_DEVICE='cuda', but no CUDA device can be used; set it to cpu or auto")
    if wanted == "auto":
        return "cuda" if gpus else "cpu"
    return wanted


def choose_compute_type(wanted: str, device: str) -> str:
    """The arithmetic for a device; raises `ModelError` naming what it supports."""
    supported = ctranslate2.get_supported_compute_types(device)
    if wanted == "default":
        best = "int8" if device == "cpu" else "float16"
        return best if best in supported else "default"
    if wanted != "auto" and wanted not in supported:
        raise ModelError(
            f"HEARLINE_COMPUTE_TYPE={wanted!r} is not supported on this {device}; "
            f"use default, auto or one of {', '.join(sorted(supported))}"
        )
    return wanted


def choose_threads(wanted: int) -> int:
    """CPU threads of a decode; 0 stands for the CPUs this process may run on but one, at most `MOST_THREADS`.

    The threads of a decode wait for each other many times a second, so one that has to share its CPU holds up all:
    beside other busy processes two threads on two CPUs took twice as long as one. One CPU is left to the rest.
    """
    if wanted:
        return wanted
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(usable - 1, MOST_THREADS))


class SteadyWhisper(WhisperModel):  # type: ignore[misc]
    """faster-whisper's model with a second attempt that draws nothing by chance.

    The library's own fallback samples at rising temperatures from a generator that cannot be seeded again, so
    its text would differ from run to run (and take several times as long). Here a window whose text is
    repetitive is searched once more with repeated five-word sequences forbidden, and the likelier text stays.
    """

    def generate_with_fallback(
        self, encoder_output: ctranslate2.StorageView, prompt: list[int], tokenizer: Any, options: Any
    ) -> tuple[Any, float, float, float]:
        first: tuple[Any, float, float, float] = super().generate_with_fallback(
            encoder_output, prompt, tokenizer, replace(options, temperatures=[0.0])
        )
        if len(options.temperatures) == 1 or first[3] <= MAX_COMPRESSION:
            return first
        second: tuple[Any, float, float, float] = super().generate_with_fallback(
            encoder_output, prompt, tokenizer, replace(options, temperatures=[0.0], no_repeat_ngram_size=5)
        )
        return second if second[1] > first[1] else first


class WhisperTranscriber:
    """A loaded Whisper model. One decode at a time."""

    def __init__(self, model: WhisperModel, name: str, options: WhisperOptions, *, device: str, threads: int) -> None:
        self._model = model
        self._options = options
        self.name = name
        self.device = device
        self.compute_type = str(model.model.compute_type)
        self.threads = threads
        self.counters: dict[str, int] = {}

    @property
    def batches_finals(self) -> bool:
        """Whether finals share the model's time: they do not."""
        return False

    @property
    def lifts_partials(self) -> bool:
        """Whether partials share a call's largest window: each is decoded in its own."""
        return False

    @property
    def multilingual(self) -> bool:
        """Whether the model knows other languages than English."""
        return bool(self._model.model.is_multilingual)

    def check_language(self) -> None:
        """Raise `ModelError` when the default language is none of the model's."""
        if self._options.language and (refusal := self._refusal(self._options.language)):
            raise ModelError(
                f"HEARLINE_LANGUAGE={self._options.language!r}: {refusal}; unset it or change HEARLINE_MODEL"
            )

    def warm_up(self) -> None:
        """Decode a second of faint noise past the voice detector, so that the first real job pays no set-up."""
        noise = np.random.default_rng(0).normal(0.0, 0.01, SAMPLE_RATE).astype(np.float32)
        self._speech(noise)
        self._transcribe(DecodeRequest(noise, Kind.PARTIAL), "en")

    def decode(self, requests: Sequence[DecodeRequest]) -> Sequence[Transcript | DecodeError]:
        """Decode one after the other; one answer per request, in order. A fault of one is its `DecodeError` alone."""
        answers: list[Transcript | DecodeError] = []
        for request in requests:
            try:
                answers.append(self._decode_one(request))
            except DecodeError as error:
                answers.append(error)
            except (RuntimeError, ValueError, IndexError, AssertionError) as error:
                # CTranslate2 raises the first two; faster-whisper's alignment the others on odd token sequences.
                answers.append(DecodeError(f"{type(error).__name__}: {error}", retry=True))
        return answers

    def _decode_one(self, request: DecodeRequest) -> Transcript:
        language = self._language(request)
        if not request.samples.any():
            return Transcript("", language, decoded=False)
        speech = self._speech(request.samples)
        if not speech:
            return Transcript("", language, decoded=False)
        return self._heard(request, language, speech)

    def _language(self, request: DecodeRequest) -> str | None:
        """The code to decode with, None to detect it; raises `DecodeError` for one the model does not know."""
        language = request.language or self._options.language
        if language is None:
            return None if self.multilingual else "en"
        if refusal := self._refusal(language):
            raise DecodeError(refusal, code=UNSUPPORTED_LANGUAGE)
        return language

    def _refusal(self, language: str) -> str | None:
        known = self._model.supported_languages
        if language in known:
            return None
        choice = f"these: {', '.join(sorted(known))}" if self.multilingual else "English only"
        return f"the model {self.name} cannot decode language {language!r}; it knows {choice}"

    def _speech(self, samples: npt.NDArray[np.float32]) -> tuple[Speech, ...]:
        return tuple(
            Speech(stretch["start"] / SAMPLE_RATE, stretch["end"] / SAMPLE_RATE)
            for stretch in get_speech_timestamps(samples, VOICE)
        )

    def _transcribe(self, request: DecodeRequest, language: str | None) -> tuple[list[Any], str]:
        partial = request.kind is Kind.PARTIAL
        short = request.audio_s <= SHORT_AUDIO_S
        segments, info = self._model.transcribe(
            request.samples,
            language=language,
            beam_size=self._options.partial_beam if partial else self._options.final_beam,
            temperature=(0.0,) if partial else (0.0, 0.2),  # how many attempts; see SteadyWhisper
            compression_ratio_threshold=MAX_COMPRESSION,
            log_prob_threshold=MIN_LOG_PROBABILITY,
            no_speech_threshold=NO_SPEECH_PROBABILITY,
            condition_on_previous_text=False,
            without_timestamps=short,
            word_timestamps=request.words,
            max_new_tokens=min(MOST_TOKENS, SPARE_TOKENS + int(TOKENS_PER_S * request.audio_s)),
        )
        # With word times the library looks at what is behind the last word once more, as if it were new.
        heard = takewhile(lambda segment: segment.seek == 0, segments) if short else segments
        return list(heard), str(info.language)

    def _heard(self, request: DecodeRequest, language: str | None, speech: Sequence[Speech]) -> Transcript:
        segments, found = self._transcribe(request, language)
        kept = [
            segment
            for segment in segments
            if is_plausible(
                Heard(
                    text=segment.text,
                    start_s=segment.start,
                    end_s=segment.end,
                    compression_ratio=segment.compression_ratio,
                    average_log_probability=segment.avg_logprob,
                    no_speech_probability=segment.no_speech_prob,
                ),
                speech,
            )
        ]
        words = [
            Word(word.word.strip(), round(float(word.start), 3), round(float(word.end), 3), float(word.probability))
            for segment in kept
            for word in segment.words or ()
        ]
        text = " ".join("".join(segment.text for segment in kept).split())
        if not fits(text, request.audio_s):
            return Transcript("", found)
        return Transcript(
            text=text,
            language=found,
            words=in_order([word for word in words if word.text], request.audio_s),
        )


def load_whisper(files: ModelFiles, options: WhisperOptions) -> WhisperTranscriber:
    """Load the model; raises `ModelError` when its files or the device cannot be used."""
    device = choose_device(options.device)
    compute_type = choose_compute_type(options.compute_type, device)
    threads = choose_threads(options.threads)
    _check_tokenizer(files.path / TOKENIZER)
    try:
        model = SteadyWhisper(
            str(files.path), device=device, compute_type=compute_type, cpu_threads=threads, local_files_only=True
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise ModelError(
            f"the model in {files.path} cannot be loaded on {device}: {error}", retry="out of memory" in str(error)
        ) from error
    return WhisperTranscriber(model, files.name, options, device=device, threads=threads)


def _check_tokenizer(path: Path) -> None:
    try:
        tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library knows no other class for a file that it cannot read
        raise ModelError(f"{path} is no tokenizer ({error}); put back the one that came with the model") from error
