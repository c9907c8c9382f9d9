"""Command-line options that `hearline stream` and `hearline load` share: where the service is, how it is to decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import click
from pydantic import ValidationError

from loadgen.connecting import DEFAULT_URL, find_urls
from sessions.wire import MAX_ENDPOINT_MS, MIN_ENDPOINT_MS, Start

Command = TypeVar("Command", bound=Callable[..., Any])


def _pause(_context: click.Context, _option: click.Parameter, value: str | None) -> int | Literal[False] | None:
    """A pause in milliseconds, or ``off``."""
    if value is None:
        return None
    if value == "off":
        return False
    if value.isascii() and value.isdigit() and MIN_ENDPOINT_MS <= int(value) <= MAX_ENDPOINT_MS:
        return int(value)
    raise click.BadParameter(f"give {MIN_ENDPOINT_MS} to {MAX_ENDPOINT_MS} whole milliseconds, or off; got {value!r}")


API_KEY_VARIABLE = "HEARLINE_API_KEY"
api_key_option = click.option(
    "--api-key",
    metavar="KEY",
    help=f"For a service that asks for one; better in ${API_KEY_VARIABLE}, which no list of processes shows.",
)

OPTIONS = (
    click.option("--language", metavar="CODE", help="Spoken language (ISO 639, e.g. en); default: the model decides."),
    click.option(
        "--task",
        type=click.Choice(["transcribe", "translate"]),
        default="transcribe",
        show_default=True,
        help="translate: into English, with a multilingual model.",
    ),
    click.option("--prompt", metavar="TEXT", help="Text that might have come before, for style and spelling."),
    click.option("--hotwords", metavar="TEXT", help="Words to expect: names, terms."),
    click.option(
        "--endpoint-ms",
        metavar="MS|off",
        callback=_pause,
        help="The pause that ends a segment and makes it final; off: none does; default: as the service is set.",
    ),
    click.option("--no-partials", is_flag=True, help="Finals only."),
)


SERVICE_OPTIONS = (
    click.option(
        "--url",
        "given_urls",
        metavar="URL",
        multiple=True,
        help="The service; several (or separated by commas): its front ends, tried in turn. "
        f"Else $HEARLINE_URL, a running `hearline up`, {DEFAULT_URL}.",
    ),
    click.option("--no-resume", is_flag=True, help="A connection that is lost ends the stream."),
)


def service_options(command: Command) -> Command:
    """Add the options to a command; `service_urls` takes the first's value."""
    for option in reversed(SERVICE_OPTIONS):
        command = option(command)
    return command


def service_urls(given: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The front ends that the options ask for; raises click.BadParameter naming the one that is no URL."""
    try:
        return find_urls(given, environment)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from None


def decoding_options(command: Command) -> Command:
    """Add the options to a command, in their order; `start_message` takes their values."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def start_message(
    *,
    language: str | None,
    task: Literal["transcribe", "translate"],
    prompt: str | None,
    hotwords: str | None,
    endpoint_ms: int | Literal[False] | None,
    no_partials: bool,
    words: bool = False,
) -> Start:
    """The start message that the options ask for; raises click.BadParameter naming the option at fault."""
    try:
        return Start(
            language=language, task=task, initial_prompt=prompt, hotwords=hotwords, endpoint_ms=endpoint_ms,
            partials=not no_partials, words=words,
        )  # fmt: skip
    except ValidationError as error:
        first = error.errors()[0]
        option = {"initial_prompt": "prompt"}.get(str(first["loc"][0]), str(first["loc"][0])).replace("_", "-")
        wrong = "a code of two or three small letters is needed" if option == "language" else first["msg"]
        raise click.BadParameter(wrong, param_hint=f"--{option}") from None
