"""Several pieces of audio through one model call: encode, detect languages, search.

CTranslate2 takes prompts of one call only when ``<|startoftranscript|>`` stands at the same place in all of them and
as many tokens follow it; languages may differ. So the members of a batch share the encoder's call and part for the
search where they must.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import ctranslate2
import numpy as np
import numpy.typing as npt

from workers.encoder import Encoder, Features, States
from workers.hypothesis import Hypothesis, read_tokens
from workers.prompts import MOST_TOKENS, Prompts
from workers.transcriber import SAMPLE_RATE

SPARE_TOKENS = 16
ENGLISH_TOKENS_PER_S = 8
OTHER_TOKENS_PER_S = 24
"""Twice the tokens of fast speech; the vocabulary spends several tokens on a letter of some scripts. With
`SPARE_TOKENS` they bound how long a loop over short audio can run."""

UNTIMED_S = 2.0
"""Audio up to this length is decoded without timestamp tokens. With them the tails of 60 recordings, cut to 0.3 and
0.5 s, gave sentences of up to 75 characters that nobody said; without, 21 characters at most and as many right last
words. Longer audio needs them: without, all after a pause can be missing."""

LATEST_START = 50
"""The first timestamp is at most this many steps of 20 ms in: 1 s, as in OpenAI's decoder."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a piece is to be decoded. ``language`` None: detect it."""

    beam: int
    language: str | None
    translate: bool = False
    prompt: str | None = None
    hotwords: str | None = None


@dataclass(slots=True, eq=False)
class Piece:
    """Audio that one window holds, and what became of it: filled in by `Decoder`."""

    samples: npt.NDArray[np.float32]
    features: Features
    manner: Manner
    language: str = ""
    language_probability: float = 1.0
    prompt: list[int] = field(default_factory=list)
    start_place: int = 0
    states: States | None = None
    """Shape (1, states, width); of the window of the last decode."""
    hypothesis: Hypothesis | None = None

    @property
    def audio_s(self) -> float:
        return len(self.samples) / SAMPLE_RATE

    @property
    def found(self) -> Hypothesis:
        """The hypothesis of a decoded piece; raises ValueError before."""
        if self.hypothesis is None:
            raise ValueError("this piece was not decoded yet")
        return self.hypothesis

    @property
    def timed(self) -> bool:
        """Whether timestamp tokens are asked for."""
        return self.audio_s > UNTIMED_S

    @property
    def most_tokens(self) -> int:
        """Tokens that the text may have."""
        rate = ENGLISH_TOKENS_PER_S if self.language == "en" else OTHER_TOKENS_PER_S
        return min(MOST_TOKENS, SPARE_TOKENS + int(rate * self.audio_s))


class Decoder:
    """Decodes pieces with one model. What CTranslate2 raises (RuntimeError, ValueError) goes through."""

    def __init__(self, model: ctranslate2.models.Whisper, encoder: Encoder, prompts: Prompts) -> None:
        self._model = model
        self._encoder = encoder
        self._prompts = prompts

    def piece(self, samples: npt.NDArray[np.float32], manner: Manner) -> Piece:
        """A piece to decode of samples of shape (n,), 16 kHz."""
        return Piece(samples, self._encoder.features(samples), manner)

    def decode(self, pieces: Sequence[Piece], windows_s: Sequence[int], silence_s: float = 0.0) -> None:
        """Decode each piece in its window of whole seconds, which holds it, with states of silence behind it; where
        the windows differ, so many more behind the smaller ones that all have states of one length."""
        ends_at_s = max(windows_s) + silence_s
        for window_s in set(windows_s):
            members = [piece for piece, its_s in zip(pieces, windows_s, strict=True) if its_s == window_s]
            states = self._encoder.states([piece.features for piece in members], window_s, ends_at_s - window_s)
            for place, piece in enumerate(members):
                piece.states = states[place : place + 1]
        self._find_languages(pieces)
        for alike in _alike(pieces):
            self.search(alike)
            # The limit of tokens holds for a whole call; what ran into its own is searched within that, as if alone.
            for piece in alike if len(alike) > 1 else ():
                if piece.found.capped:
                    self.search([piece])

    def search(self, pieces: Sequence[Piece], *, no_repeat: int = 0) -> None:
        """Search the pieces' states, all of one length, for their text; their prompts are of one form.

        ``no_repeat``: forbid sequences of so many tokens to come twice; 0 allows them.
        """
        most = max(piece.most_tokens for piece in pieces)
        longest = max(len(piece.prompt) for piece in pieces)
        results = self._model.generate(
            self._encoder.view(np.concatenate([piece.states for piece in pieces if piece.states is not None])),
            [piece.prompt for piece in pieces],
            beam_size=pieces[0].manner.beam,
            no_repeat_ngram_size=no_repeat,
            max_length=max(2 * most, most + longest),  # CTranslate2 writes half of it at most, the prompt apart
            return_scores=True,
            return_no_speech_prob=True,
            max_initial_timestamp_index=LATEST_START,
            suppress_blank=True,
            suppress_tokens=self._prompts.suppressed,
        )
        for piece, result in zip(pieces, results, strict=True):
            piece.hypothesis = self._read(piece, result)

    def _find_languages(self, pieces: Sequence[Piece]) -> None:
        unknown = [piece for piece in pieces if piece.manner.language is None and not piece.language]
        if unknown:
            states = np.concatenate([piece.states for piece in unknown if piece.states is not None])
            for piece, found in zip(unknown, self._model.detect_language(self._encoder.view(states)), strict=True):
                token, piece.language_probability = found[0]
                piece.language = token[2:-2]
        for piece in pieces:
            manner = piece.manner
            piece.language = piece.language or manner.language or "en"
            piece.prompt, piece.start_place = self._prompts.build(
                piece.language,
                translate=manner.translate,
                prompt=manner.prompt,
                hotwords=manner.hotwords,
                timestamps=piece.timed,
            )

    def _read(self, piece: Piece, result: ctranslate2.models.WhisperGenerationResult) -> Hypothesis:
        tokens = result.sequences_ids[0]
        score = result.scores[0] * len(tokens) / (len(tokens) + 1)
        capped = len(tokens) >= piece.most_tokens
        segments, goes_on_at_s = read_tokens(tokens[: piece.most_tokens], self._prompts.vocabulary, piece.audio_s)
        return Hypothesis(
            segments=segments,
            text="".join(self._prompts.text(segment.tokens) for segment in segments),
            average_log_probability=score,
            no_speech_probability=result.no_speech_prob,
            goes_on_at_s=goes_on_at_s,
            capped=capped,
        )


def _alike(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces by what one call of the search must have in common."""

    def form(piece: Piece) -> tuple[int, int, int]:
        return (piece.manner.beam, piece.start_place, len(piece.prompt) - piece.start_place)

    return [list(members) for _, members in groupby(sorted(pieces, key=form), key=form)]
