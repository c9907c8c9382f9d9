"""What a mutation is."""

from __future__ import annotations

from dataclasses import dataclass

QUICK = (
    "tests/unit/",
    "tests/integration/test_queue_",
    "tests/integration/test_stream_slots",
    "tests/integration/test_audio",
)


@dataclass(frozen=True, slots=True)
class Sabotage:
    """``old``: a line of ``file`` without its indentation, there exactly once; ``new`` takes its place."""

    name: str
    file: str
    old: str
    new: str
    breaks: str
    caught_by: str

    @property
    def quick(self) -> bool:
        """Whether its test takes a second or so: no process of the service is started."""
        return self.caught_by.startswith(QUICK)
