"""What the decoder reads before it writes: language, task, hotwords and earlier text, as faster-whisper builds it."""

from __future__ import annotations

from pathlib import Path

import tokenizers
from faster_whisper.tokenizer import _LANGUAGE_CODES, Tokenizer
from faster_whisper.transcribe import get_suppressed_tokens

from workers.hypothesis import Vocabulary
from workers.model_files import ModelError

CONTEXT_TOKENS = 448
"""Whisper's text context, prompt included."""
MOST_TOKENS = 224
"""Tokens of one 30 s window: half of that context, as in OpenAI's decoder."""
ROOM_TOKENS = CONTEXT_TOKENS - MOST_TOKENS - 5
"""Tokens of hotwords and earlier text; five are the ones that open a prompt."""


class Prompts:
    """Builds prompts; one `Tokenizer` for each language and task, kept."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, *, multilingual: bool) -> None:
        self._tokenizer = tokenizer
        self._multilingual = multilingual
        self.languages = (
            tuple(code for code in _LANGUAGE_CODES if tokenizer.token_to_id(f"<|{code}|>") is not None)
            if multilingual
            else ("en",)
        )
        plain = self.tokenizer("en", translate=False)
        self.suppressed: list[int] = list(get_suppressed_tokens(plain, [-1]))
        self.vocabulary = Vocabulary(end=plain.eot, first_time=plain.timestamp_begin)

    def refusal(self, language: str, name: str) -> str | None:
        """Why the model of this name cannot decode a language; None when it can."""
        if language in self.languages:
            return None
        choice = f"these: {', '.join(sorted(self.languages))}" if self._multilingual else "English only"
        return f"the model {name} cannot decode language {language!r}; it knows {choice}"

    def tokenizer(self, language: str, *, translate: bool) -> Tokenizer:
        """faster-whisper's tokenizer for a language and task."""
        return Tokenizer(
            self._tokenizer, self._multilingual, task="translate" if translate else "transcribe", language=language
        )

    def text(self, tokens: tuple[int, ...]) -> str:
        """The text of text tokens, with its leading space."""
        return str(self._tokenizer.decode(list(tokens)))

    def build(
        self, language: str, *, translate: bool, prompt: str | None, hotwords: str | None, timestamps: bool
    ) -> tuple[list[int], int]:
        """(the prompt's tokens, the place of ``<|startoftranscript|>`` in them).

        Hotwords and prompt share `ROOM_TOKENS`: of the hotwords the first are kept, of the prompt the last.
        """
        tokenizer = self.tokenizer(language, translate=translate)
        before: list[int] = []
        expected = self._words(hotwords)
        earlier = self._words(prompt)
        if expected or earlier:
            expected = expected[: ROOM_TOKENS // 2 if earlier else ROOM_TOKENS]
            earlier = earlier[-(ROOM_TOKENS - len(expected)) :]
            before = [tokenizer.sot_prev, *expected, *earlier]
        task = list(tokenizer.sot_sequence)
        if not timestamps:
            task.append(tokenizer.no_timestamps)
        return [*before, *task], len(before)

    def _words(self, text: str | None) -> list[int]:
        if not text or not text.strip():
            return []
        return list(self._tokenizer.encode(" " + text.strip(), add_special_tokens=False).ids)


def unknown_language(language: str, refusal: str) -> ModelError:
    """What is wrong when the model cannot decode the default language, and why."""
    return ModelError(f"HEARLINE_LANGUAGE={language!r}: {refusal}; unset it or change HEARLINE_MODEL")


def read_tokenizer(path: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a model's directory; raises `ModelError` for a file that is none."""
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library knows no other class for a file that it cannot read
        raise ModelError(f"{path} is no tokenizer ({error}); put back the one that came with the model") from error
