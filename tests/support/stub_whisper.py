"""A Whisper without weights: CTranslate2's interface over answers that a test gives, and a tokenizer of a few words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import ctranslate2
import numpy as np
import tokenizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from queueing.clock import ManualClock
from workers.whisper import WhisperOptions, WhisperTranscriber

WORDS = ("<unk>", "hello", "world", "again", "name")
SPECIAL = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|transcribe|>",
    "<|translate|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)
IDS = {token: number for number, token in enumerate((*WORDS, *SPECIAL))}
FIRST_TIME = len(IDS)


def stub_tokenizer() -> tokenizers.Tokenizer:
    """Whole words; whatever it does not know is one token."""
    tokenizer = tokenizers.Tokenizer(WordLevel(IDS, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def time(seconds: float) -> int:
    """The timestamp token of a time."""
    return FIRST_TIME + round(seconds / 0.02)


def said(*tokens: str | float) -> list[int]:
    """Token ids of words and, as numbers, of times in seconds."""
    return [IDS[token] if isinstance(token, str) else time(token) for token in tokens]


@dataclass(frozen=True)
class Call:
    """What one call of the search was given."""

    prompts: list[list[int]]
    states: tuple[int, ...]
    options: dict[str, Any]


@dataclass
class StubModel:
    """``answer``: (token ids, average log probability) for a call's member; raises to fail the whole call."""

    answer: Callable[[Call, int], tuple[list[int], float]] = lambda call, place: (said("hello", "world"), -0.2)
    is_multilingual: bool = False
    languages: Sequence[tuple[str, float]] = (("<|de|>", 0.9), ("<|en|>", 0.1))
    compute_type: str = "int8"
    n_mels: int = 80
    calls: list[Call] = field(default_factory=list)
    windows: list[tuple[int, ...]] = field(default_factory=list)
    detections: int = 0

    def encode(self, features: ctranslate2.StorageView, to_cpu: bool = False) -> Any:
        batch, _, frames = features.shape
        self.windows.append((batch, frames // 100))
        return np.zeros((batch, frames // 2, 4), np.float32)

    def generate(self, states: ctranslate2.StorageView, prompts: list[list[int]], **options: Any) -> list[Any]:
        starts = {prompt.index(IDS["<|startoftranscript|>"]) for prompt in prompts}
        if len(starts) > 1 or len({len(prompt) for prompt in prompts}) > 1:
            raise ValueError("CTranslate2 takes no such prompts in one call")
        call = Call(prompts, tuple(states.shape), options)
        self.calls.append(call)
        answers = [self.answer(call, place) for place in range(len(prompts))]
        return [
            SimpleNamespace(
                sequences_ids=[tokens], scores=[average * (len(tokens) + 1) / max(1, len(tokens))], no_speech_prob=0.1
            )
            for tokens, average in answers
        ]

    def detect_language(self, states: ctranslate2.StorageView) -> list[list[tuple[str, float]]]:
        self.detections += 1
        return [list(self.languages)] * states.shape[0]


def stub_transcriber(model: StubModel, options: WhisperOptions | None = None) -> WhisperTranscriber:
    """The engine over a stub, named ``stub``."""
    return WhisperTranscriber(
        model, stub_tokenizer(), "stub", options or WhisperOptions(), device="cpu", threads=1, clock=ManualClock()
    )


def talk(seconds: float = 3.0) -> Any:
    """What the voice detector takes for speech: 200 Hz in bursts, four a second."""
    moment = np.arange(int(seconds * 16_000)) / 16_000
    tone = 0.25 * np.sin(2 * np.pi * 200 * moment) * (1 + np.sin(2 * np.pi * 4 * moment)) / 2
    return np.asarray(tone, dtype=np.float32)
