"""Every error the queue raises.

QueueError
+-- QueueUnavailable      Redis cannot be reached or timed out; retry later
|   +-- RedisFull         Redis has no memory left for this; what frees memory or finishes jobs still works
+-- UnsafeRedis           Redis is set up so that it would lose leases, or take no writes
+-- UnknownPolicy         no policy of that name
+-- BadJob                the job itself is malformed (a caller's bug)
SettingsError             one or more environment values are wrong (all are listed)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class QueueError(Exception):
    """Base of everything the queue raises on purpose."""


class QueueUnavailable(QueueError):
    """Redis cannot be reached or did not answer in time."""


class RedisFull(QueueUnavailable):
    """Redis is at its memory limit: nothing new can be stored, what frees memory or finishes jobs still works."""


class UnsafeRedis(QueueError):
    """Redis is not fit: it may evict keys, and with them leases and audio, is too old, a replica, or not what the URL
    says it is. ``fix`` says what helps."""

    def __init__(self, problem: str, fix: str) -> None:
        self.problem = problem
        self.fix = fix
        super().__init__(f"{problem}; {fix}")


class UnknownPolicy(QueueError):
    """No scheduling policy has this name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"unknown policy {name!r}; choose one of {', '.join(self.known)}")


class BadJob(QueueError):
    """A job that cannot be queued: a caller's bug, never a client's."""


@dataclass(frozen=True, slots=True)
class SettingProblem:
    """One wrong environment value: its name (empty where two together are wrong), what it held, what is allowed."""

    name: str
    value: str
    problem: str

    def __str__(self) -> str:
        return f"{self.name}={self.value!r}: {self.problem}" if self.name else self.problem


class SettingsError(Exception):
    """All wrong settings of a program at once."""

    def __init__(self, problems: Sequence[SettingProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(["these settings are wrong:", *(f"  {p}" for p in self.problems)]))
