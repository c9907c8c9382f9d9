"""What a worker says about one job (the ``result`` of a delivery), and the options it decodes with."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DecodedWord:
    """A word; times in seconds from the start of the job's audio, probability in [0, 1]."""

    text: str
    start_s: float
    end_s: float
    probability: float


@dataclass(frozen=True, slots=True)
class DecodeResult:
    """The outcome of a decode; ``text`` is empty when nothing was said.

    ``language_probability``: in [0, 1] when the language was detected, 1 when it was given, None without speech.
    """

    text: str
    model: str
    language: str | None = None
    words: tuple[DecodedWord, ...] = ()
    language_probability: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "text": self.text,
            "language": self.language,
            "model": self.model,
            "words": [asdict(word) for word in self.words],
            "language_probability": self.language_probability,
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> DecodeResult:
        """Read `to_dict`'s output; raises ValueError when something is missing or of the wrong type."""
        try:
            text, model, language = data["text"], data["model"], data.get("language")
            certainty = data.get("language_probability")
            if not (isinstance(text, str) and isinstance(model, str) and isinstance(language, str | None)):
                raise TypeError("text, model and language are texts")
            text.encode()  # half a surrogate pair could not be sent on
            words = tuple(
                DecodedWord(
                    text=str(word["text"]),
                    start_s=_number(word["start_s"]),
                    end_s=_number(word["end_s"]),
                    probability=_number(word["probability"]),
                )
                for word in data.get("words") or ()
            )
            certainty = None if certainty is None else _number(certainty)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a decode result: {error!r}") from error
        return DecodeResult(text, model, language, words, language_probability=certainty)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no time or probability")
    return number


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """A session's wishes, carried in ``NewJob.options``; see `sessions.wire.Start` for what they mean."""

    language: str | None = None
    words: bool = False
    translate: bool = False
    initial_prompt: str | None = None
    hotwords: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values; what has its default is left out."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name))}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> DecodeOptions:
        """Read job options; what is missing has its default. Raises ValueError for a wrong type."""
        texts = [data.get(name) for name in ("language", "initial_prompt", "hotwords")]
        switches = [data.get(name, False) for name in ("words", "translate")]
        if not (all(isinstance(text, str | None) for text in texts) and all(type(on) is bool for on in switches)):
            raise ValueError(f"not decode options: {dict(data)!r}")
        language, initial_prompt, hotwords = texts
        words, translate = switches
        return DecodeOptions(language, words, translate, initial_prompt, hotwords)
