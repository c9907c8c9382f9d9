"""How every program reads its environment: one frozen object, all values checked at once.

A program's settings class derives from `QueueSettings` and adds fields; the environment name of a field
is ``HEARLINE_`` + its name in capitals unless an alias says otherwise. docs/configuration.md is rendered
from these classes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from queueing.errors import SettingProblem, SettingsError, UnknownPolicy
from queueing.policies import get_policy


def _environment_name(field: str) -> str:
    return f"HEARLINE_{field.upper()}"


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One line of the configuration table."""

    name: str
    default: str
    type: str
    meaning: str


class EnvSettings(BaseModel):
    """Base of all settings: frozen, built from a mapping of environment variables."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=_environment_name,
        populate_by_name=True,
        validate_default=True,
    )

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> Self:
        """Validate the environment; raises `SettingsError` naming every wrong value, its limit and the fix.

        An empty value counts as unset.
        """
        known = {cls._env_name(name, info) for name, info in cls.model_fields.items()}
        given = {name: value for name, value in environment.items() if name in known and value != ""}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            problems = [
                SettingProblem(
                    name=str(item["loc"][0]) if item["loc"] else "",
                    value=str(given.get(str(item["loc"][0]), "")) if item["loc"] else "",
                    problem=_problem(item, cls._field(item)),
                )
                for item in error.errors()
            ]
            raise SettingsError(problems) from None

    @classmethod
    def rows(cls) -> Iterator[SettingRow]:
        """The settings of this class in order, for the documentation."""
        for name, info in cls.model_fields.items():
            default = info.get_default(call_default_factory=True, validated_data={})
            yield SettingRow(
                name=cls._env_name(name, info),
                default="" if default is None else str(default),
                type=_type_name(info),
                meaning=info.description or "",
            )

    @classmethod
    def help_text(cls) -> str:
        """The settings for a program's ``--help``: a line each, indented by two."""
        rows = [f"  {row.name:32s} {row.default or '(unset)':24s} {row.meaning}" for row in cls.rows()]
        return "Environment variables and their defaults:\n" + "\n".join(rows)

    @classmethod
    def _field(cls, item: ErrorDetails) -> FieldInfo | None:
        given = item["loc"][:1]
        return next((info for name, info in cls.model_fields.items() if given == (cls._env_name(name, info),)), None)

    @staticmethod
    def _env_name(name: str, info: FieldInfo) -> str:
        return info.alias or _environment_name(name)


class QueueSettings(EnvSettings):
    """What every program that touches the queue needs to know."""

    redis_url: str = Field(
        "redis://127.0.0.1:6379/0",
        alias="REDIS_URL",
        description="Where Redis is: redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster://.",
    )
    queue: str = Field(
        "main",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="Name of the queue; programs that share it work together.",
    )
    policy: str = Field(
        "priority",
        description="Scheduling policy a fresh queue starts with: fcfs, priority, strict, sjf, hrrn, boost or edf. "
        "`hearline queue policy NAME` changes it while running.",
    )
    lease_s: float = Field(
        10.0,
        ge=1,
        le=600,
        description="Seconds a worker holds a job without renewing before others may take it over.",
    )
    attempts: int = Field(
        3,
        ge=1,
        le=20,
        description="Claims of one job before it is given up as dead and its client gets an error. With 1, a crash "
        "also costs what was decoded in the same batch.",
    )
    max_queued: int = Field(
        10_000,
        ge=10,
        le=1_000_000,
        description="Jobs that may wait; beyond it partials are refused first, then finals.",
    )
    log_level: str = Field(
        "info", pattern=r"^(debug|info|warning|error)$", description="Least severe log line that is written."
    )
    log_format: str = Field(
        "json",
        pattern=r"^(json|console)$",
        description="Log lines as JSON objects or as text for a terminal.",
    )

    @field_validator("policy")
    @classmethod
    def _policy_is_known(cls, name: str) -> str:
        try:
            get_policy(name)
        except UnknownPolicy as error:
            raise ValueError(f"choose one of {', '.join(error.known)}") from None
        return name


def choices(pattern: str) -> tuple[str, ...]:
    """The words that a pattern like ``^(auto|cpu|cuda)$`` allows; none for a pattern that is no list of words."""
    found = re.fullmatch(r"\^\((\w+(?:\|\w+)*)\)\$", pattern)
    return tuple(found[1].split("|")) if found else ()


def limits(field: FieldInfo) -> tuple[float | None, float | None]:
    """The lowest and the highest value that a number may have; None where there is no such limit."""
    low = high = None
    for constraint in field.metadata:
        low = getattr(constraint, "ge", low)
        high = getattr(constraint, "le", high)
    return low, high


def _problem(item: ErrorDetails, field: FieldInfo | None) -> str:
    low, high = (None, None) if field is None or item["type"] == "value_error" else limits(field)
    if low is not None and field is not None:
        what = "a whole number" if "int" in str(field.annotation) else "a number"
        return f"write {what}, {low} or more" if high is None else f"write {what} from {low} to {high}"
    words = choices(str(item.get("ctx", {}).get("pattern", "")))
    if words:
        return f"use one of {', '.join(words)}"
    if item["type"].startswith("bool"):
        return "use true or false"
    message = item["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _type_name(info: FieldInfo) -> str:
    annotation: Any = info.annotation
    return getattr(annotation, "__name__", None) or str(annotation)
