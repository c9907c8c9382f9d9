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
    """The outcome of a decode; ``text`` is empty when nothing was said."""

    text: str
    model: str
    language: str | None = None
    words: tuple[DecodedWord, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {
            "text": self.text,
            "language": self.language,
            "model": self.model,
            "words": [asdict(word) for word in self.words],
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> DecodeResult:
        """Read `to_dict`'s output; raises ValueError when something is missing or of the wrong type."""
        try:
            text, model, language = data["text"], data["model"], data.get("language")
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
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a decode result: {error!r}") from error
        return DecodeResult(text=text, model=model, language=language, words=words)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no time or probability")
    return number


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """A session's wishes, carried in ``NewJob.options``."""

    language: str | None = None
    words: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON-able values."""
        return {"language": self.language, "words": self.words}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> DecodeOptions:
        """Read job options; what is missing has its default. Raises ValueError for a wrong type."""
        language, words = data.get("language"), data.get("words", False)
        if not (isinstance(language, str | None) and isinstance(words, bool)):
            raise ValueError(f"not decode options: {dict(data)!r}")
        return DecodeOptions(language=language, words=words)
