"""The one door to faster-whisper and CTranslate2: find, load, warm up, decode.

A decode is a function of the audio and the options alone: temperature 0, nothing drawn by chance, so the same bytes
give the same text under any load. Finals run in their own window, partials also share the search across windows.
docs/decoding.md says how, and what is done about text that nobody said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import ctranslate2
import numpy as np
import tokenizers

from queueing.clock import Clock, SystemClock
from queueing.lane import MAX_JOB_AUDIO_S, WINDOWS_S, Kind
from workers.calibration import FULL, Calibration, find_calibration
from workers.decoding import Decoder, Manner, Piece
from workers.devices import choose_compute_type as choose_compute_type
from workers.devices import choose_device as choose_device
from workers.devices import choose_threads
from workers.encoder import FULL_WINDOW_S, Encoder, Sizing, window_for
from workers.hub import fetch_from_hub as fetch_from_hub
from workers.hub import known_sizes as known_sizes
from workers.hypothesis import Segment
from workers.model_files import TOKENIZER, ModelError, ModelFiles
from workers.plausible import Heard, compression_ratio, fits, in_order, is_plausible
from workers.prompts import Prompts, read_tokenizer, unknown_language
from workers.second_look import Part, SecondLook
from workers.speech import find_speech, find_speech_quickly
from workers.timeline import Speech, Timeline
from workers.transcriber import SAMPLE_RATE, UNSUPPORTED_LANGUAGE, DecodeError, DecodeRequest, Transcript, Word
from workers.words import time_words


@dataclass(frozen=True, slots=True)
class WhisperOptions:
    """How to load and decode; the names and limits are those of `workers.settings.WorkerSettings`.

    ``window``: ``auto`` sizes windows to the audio as calibrated for the model, ``full`` always takes 30 s.
    ``calibration``: in place of what is in the model's directory or ships for it.
    """

    device: str = "auto"
    compute_type: str = "default"
    threads: int = 0
    language: str | None = None
    partial_beam: int = 1
    final_beam: int = 5
    window: str = "auto"
    calibration: Calibration | None = None


@dataclass(slots=True, eq=False)
class _Task:
    """A request on its way."""

    place: int
    request: DecodeRequest
    speech: tuple[Speech, ...]
    timeline: Timeline
    piece: Piece
    sizing: Sizing | None
    window_s: int
    alone: bool
    error: DecodeError | None = None

    @property
    def group(self) -> tuple[bool, int, int]:
        """What goes through the model together: finals of one window, unless they must go alone; partials, of one
        window where no states of silence can make their lengths alike."""
        if self.request.kind is not Kind.PARTIAL:
            return (False, self.window_s, self.place if self.alone else -1)
        return (True, 0 if self.sizing and self.sizing.silence_s else self.window_s, -1)


class WhisperTranscriber:
    """A loaded Whisper model. One decode at a time."""

    def __init__(
        self,
        model: ctranslate2.models.Whisper,
        tokenizer: tokenizers.Tokenizer,
        name: str,
        options: WhisperOptions,
        *,
        device: str,
        threads: int,
        clock: Clock,
    ) -> None:
        self._model = model
        self._options = options
        self._clock = clock
        self._prompts = Prompts(tokenizer, multilingual=model.is_multilingual)
        self._encoder = Encoder(model)
        self._decoder = Decoder(model, self._encoder, self._prompts)
        self.calibration = options.calibration or FULL
        self.name = name
        self.device = device
        self.compute_type = str(model.compute_type)
        self.threads = threads
        self.counters: Counter[str] = Counter()
        self._second_look = SecondLook(self._decoder, self.counters)

    @property
    def batches_finals(self) -> bool:
        """Whether finals share the model's time: where integer arithmetic makes a batch's texts those of its members
        alone (measured, see docs/decoding.md). Elsewhere they run one by one, so that no company changes a text."""
        return self.device == "cpu" and self.compute_type.startswith("int8")

    @property
    def lifts_partials(self) -> bool:
        """Whether partials share a call's largest window: each is decoded in its own."""
        return False

    @property
    def multilingual(self) -> bool:
        """Whether the model knows other languages than English."""
        return bool(self._model.is_multilingual)

    def check_language(self) -> None:
        """Raise `ModelError` when the default language is none of the model's."""
        if self._options.language and (refusal := self._prompts.refusal(self._options.language, self.name)):
            raise unknown_language(self._options.language, refusal)

    def decode(self, requests: Sequence[DecodeRequest]) -> Sequence[Transcript | DecodeError]:
        """Decode a batch; one answer per request, in order. A fault of one is its `DecodeError` alone."""
        answers: dict[int, Transcript | DecodeError] = {}
        tasks: list[_Task] = []
        for place, request in enumerate(requests):
            try:
                prepared = self._prepare(place, request)
            except DecodeError as error:
                answers[place] = error
                continue
            if isinstance(prepared, Transcript):
                answers[place] = prepared
            else:
                tasks.append(prepared)
        for _, group in groupby(sorted(tasks, key=lambda task: task.group), key=lambda task: task.group):
            self._decode_together(list(group))
        for task in tasks:
            answers[task.place] = task.error or self._finish(task)
        return [answers[place] for place in range(len(requests))]

    def warm_up(self) -> None:
        """Decode a second of faint noise past the voice detector, in a short window and the full one, so that the
        first real job pays no set-up."""
        noise = np.random.default_rng(0).normal(0.0, 0.01, SAMPLE_RATE).astype(np.float32)
        find_speech(noise)
        for beam in {self._options.partial_beam, self._options.final_beam}:
            piece = self._decoder.piece(noise, Manner(beam, "en"))
            for window_s, silence_s in ((WINDOWS_S[1], 4.0), (FULL_WINDOW_S, 0.0)):
                self._decoder.decode([piece], [window_s], silence_s)

    def _prepare(self, place: int, request: DecodeRequest) -> Transcript | _Task:
        """What is to be decoded; a transcript when nobody speaks. Raises `DecodeError`."""
        if request.audio_s > MAX_JOB_AUDIO_S:
            raise DecodeError(
                f"{request.audio_s:.2f} s of audio are more than the {MAX_JOB_AUDIO_S:.0f} s that one decode may "
                "hold; cut it at a pause before"
            )
        language = self._language(request)
        partial = request.kind is Kind.PARTIAL
        speech: tuple[Speech, ...] = ()
        if request.samples.any():
            speech = (find_speech_quickly if partial else find_speech)(request.samples)
        if not speech:
            return Transcript("", language, decoded=False)
        timeline = Timeline.of(speech, request.audio_s)
        manner = Manner(
            self._options.partial_beam if partial else self._options.final_beam,
            language,
            request.translate and self.multilingual,
            request.prompt,
            request.hotwords,
        )
        piece = self._decoder.piece(timeline.cut(request.samples), manner)
        sizing = self.calibration.partial if partial else self.calibration.final
        window_s = window_for(piece.audio_s, sizing)
        return _Task(place, request, speech, timeline, piece, sizing, window_s, alone=not self.batches_finals)

    def _language(self, request: DecodeRequest) -> str | None:
        """The code to decode with, None to detect it; raises `DecodeError` for what the model does not know."""
        language = request.language or self._options.language
        if request.translate and not self.multilingual and language is None:
            raise DecodeError(
                f"the model {self.name} knows English only and cannot translate; leave task out, or have the server "
                "run a multilingual model",
                code=UNSUPPORTED_LANGUAGE,
            )
        if language is None:
            return None if self.multilingual else "en"
        if refusal := self._prompts.refusal(language, self.name):
            raise DecodeError(refusal, code=UNSUPPORTED_LANGUAGE)
        return language

    def _decode_together(self, tasks: Sequence[_Task]) -> None:
        """Each task's first decode; when the call fails, one by one, so that only the culprit does."""
        sizing = tasks[0].sizing
        try:
            silence_s = sizing.silence_s if sizing else 0.0
            self._decoder.decode([task.piece for task in tasks], [task.window_s for task in tasks], silence_s)
        except (RuntimeError, ValueError, IndexError) as error:
            if len(tasks) == 1:
                tasks[0].error = DecodeError(f"{type(error).__name__}: {error}", retry=True)
                return
            for task in tasks:
                self._decode_together([task])

    def _finish(self, task: _Task) -> Transcript | DecodeError:
        """Look at the first decode, do again what is suspicious, go on where it stopped, time the words."""
        began_s = self._clock.monotonic()
        partial = task.request.kind is Kind.PARTIAL
        # A partial's speech was only looked for, not measured.
        measured = (0.0, 0.0) if partial else task.timeline.measure(task.speech)
        try:
            parts = self._second_look.complete(task.piece, task.sizing, *measured, partial=partial)
            found = self._transcript(task, parts)
        except (RuntimeError, ValueError, IndexError) as error:
            # CTranslate2 raises the first two; alignment the last on odd token sequences.
            return DecodeError(f"{type(error).__name__}: {error}", retry=True)
        return replace(found, alone_s=self._clock.monotonic() - began_s)

    def _transcript(self, task: _Task, parts: Sequence[Part]) -> Transcript:
        """The plausible segments of all parts, in the request's own time."""
        texts: list[str] = []
        words: list[Word] = []
        for part in parts:
            hypothesis = part.piece.found
            segments = hypothesis.segments
            timed = self._words(part.piece, segments) if task.request.words else [[] for _ in segments]
            for segment, mine in zip(segments, timed, strict=True):
                text = self._prompts.text(segment.tokens)
                start_s, end_s = task.timeline.original(part.start_s + segment.start_s, part.start_s + segment.end_s)
                heard = Heard(
                    text,
                    start_s,
                    end_s,
                    compression_ratio(hypothesis.text.strip()),
                    hypothesis.average_log_probability,
                    hypothesis.no_speech_probability,
                )
                if is_plausible(heard, task.speech):
                    texts.append(text)
                    words += task.timeline.restore([_shifted(word, part.start_s) for word in mine])
                else:
                    self.counters["segments_dropped"] += 1
        text = " ".join("".join(texts).split())
        language, probability = task.piece.language, task.piece.language_probability
        if not fits(text, task.request.audio_s):
            self.counters["texts_dropped"] += 1
            return Transcript("", language, language_probability=probability)
        ordered = in_order(words, task.request.audio_s)
        return Transcript(text, language, ordered, language_probability=probability)

    def _words(self, piece: Piece, segments: Sequence[Segment]) -> list[list[Word]]:
        tokenizer = self._prompts.tokenizer(piece.language, translate=piece.manner.translate)
        if piece.states is None:
            raise ValueError("only a decoded piece has words")
        return time_words(self._model, self._encoder.view(piece.states), segments, tokenizer, piece.audio_s)


def _shifted(word: Word, by_s: float) -> Word:
    return Word(word.text, round(word.start_s + by_s, 3), round(word.end_s + by_s, 3), word.probability)


def load_whisper(files: ModelFiles, options: WhisperOptions, clock: Clock | None = None) -> WhisperTranscriber:
    """Load the model; raises `ModelError` when its files, its calibration or the device cannot be used."""
    device = choose_device(options.device)
    compute_type = choose_compute_type(options.compute_type, device)
    threads = choose_threads(options.threads)
    tokenizer = read_tokenizer(files.path / TOKENIZER)
    if options.calibration is None:
        options = replace(options, calibration=find_calibration(files, None, options.window))
    try:
        model = ctranslate2.models.Whisper(
            str(files.path), device=device, compute_type=compute_type, intra_threads=threads
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise ModelError(
            f"the model in {files.path} cannot be loaded on {device}: {error}", retry="out of memory" in str(error)
        ) from error
    return WhisperTranscriber(
        model, tokenizer, files.name, options, device=device, threads=threads, clock=clock or SystemClock()
    )
