"""``hearline keys``: who may use the service."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from pathlib import Path
from typing import Any

import click

from ops import key_file
from ops.errors import Failed, Missing, WrongUse
from ops.runtime import Runtime
from sessions.api_keys import LABEL_RULE, MAX_LABEL, BadKeyFile, KeyRecord, digest, make_key, read_keys, utc_day

HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}
VARIABLE = "HEARLINE_API_KEYS"

file_option = click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"The key file.  [default: {VARIABLE}]",
)


@click.group(context_settings=HELP)
def keys() -> None:
    """API keys: add, list, revoke.

    \b
      export HEARLINE_API_KEYS=/etc/hearline/keys
      hearline keys add --label kiosk               prints the key: this once, it is nowhere else
      hearline keys add --label partner --max-streams 10 --max-audio-rate 12 --expires 2027-06-30
      hearline keys list
      hearline keys revoke kiosk

    The service asks for keys when HEARLINE_API_KEYS names a file, and reads that file again when it changes, without a
    restart. The file has a line of JSON for each key: label, limits, and the key's SHA-256, never the key itself.

    A client sends its key as `Authorization: Bearer KEY` (or `Token KEY`), as the WebSocket subprotocols `token, KEY`,
    or as ?api_key=KEY; `hearline stream` and `hearline load` take --api-key or HEARLINE_API_KEY.

    Exit status: 0 it worked; 1 no such label, or the label is taken; 2 wrong arguments or settings; 3 the file
    cannot be read or written.
    """


@keys.command("add", short_help="Make a key and print it, once.", context_settings=HELP)
@click.option("--label", required=True, metavar="L", help="Names the key in logs, metrics and `hearline keys list`.")
@click.option("--max-streams", type=click.IntRange(1, 100_000), metavar="N", help="Streams open at once with it.")
@click.option(
    "--max-audio-rate",
    type=click.FloatRange(0, 1_000_000, min_open=True),
    metavar="X",
    help="Seconds of audio a second over all its streams; 1 is one speaker in real time.",
)
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Last day (UTC) on which it is valid: YYYY-MM-DD.",
)
@file_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the record, and the key.")
@click.pass_obj
def add_key(
    runtime: Runtime,
    /,
    label: str,
    max_streams: int | None,
    max_audio_rate: float | None,
    expires: datetime | None,
    file: Path | None,
    as_json: bool,
) -> None:
    """Make a key and print it, once.

    \b
      KEY=$(hearline keys add --label kiosk)
      hearline keys add --label trial --expires 2027-01-31 --max-streams 2 --json

    The key is printed on standard output, everything else on standard error. Whoever has it may use the service; it
    cannot be shown again, only revoked. One that could not be printed is not kept.
    """
    path = _path(runtime.environment, file)
    if not re.fullmatch(LABEL_RULE, label):
        raise WrongUse(
            f"the label {label!r} does not do: it begins with a letter or digit, has letters, digits and . _ - only, "
            f"and at most {MAX_LABEL} characters"
        )
    today, last_day = utc_day(runtime.clock.wall_ms()), expires.date() if expires else None
    if last_day is not None and last_day < today:
        raise WrongUse(f"--expires {last_day} is over; today is {today} (UTC)")
    key = make_key(secrets.token_bytes)
    record = KeyRecord(
        label=label,
        sha256=digest(key),
        created=today,
        expires=last_day,
        max_streams=max_streams,
        max_audio_rate=max_audio_rate,
    )
    with _explained(path):
        made = not path.exists()
        if not made and any(record.label == label for record in read_keys(path)):
            raise Failed(
                f"{path} has a key labelled {label!r} already; choose another label, or `hearline keys revoke {label}`"
            )
        key_file.add(path, record)
    try:
        if as_json:
            click.echo(json.dumps({**_fields(record, today), "key": key, "file": str(path)}))
            return
        click.echo(f"{label!r} is in {path}; this is the only time that its key is shown:", err=True)
        click.echo(key)
    except BaseException:  # a full disk, a reader that is gone, Ctrl-C: nobody has the key, nor ever will
        with _explained(path):
            key_file.take_back(path, record, made=made)
        raise
    if runtime.environment.get(VARIABLE, "") == "":
        click.echo(f"the service asks for keys once {VARIABLE}={path} is set for it", err=True)


@keys.command("list", short_help="Labels, limits and dates.", context_settings=HELP)
@file_option
@click.option("--json", "as_json", is_flag=True, help="A JSON array.")
@click.pass_obj
def list_keys(runtime: Runtime, /, file: Path | None, as_json: bool) -> None:
    """List the keys' labels, limits and dates, in the order in which they were added.

    \b
      hearline keys list
      hearline keys list --json | jq -r '.[] | select(.expired) | .label'
    """
    path = _path(runtime.environment, file)
    today = utc_day(runtime.clock.wall_ms())
    with _explained(path):
        rows = [_fields(record, today) for record in read_keys(path)]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo(f"no key in {path}: with it, nobody can use the service")
        return
    titles = ("label", "created", "expires", "streams", "audio s/s", "")
    cells = [
        (
            row["label"],
            row["created"] or "-",
            row["expires"] or "never",
            str(row["max_streams"] or "-"),
            f"{row['max_audio_rate']:g}" if row["max_audio_rate"] else "-",
            "expired" if row["expired"] else "",
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [titles, *cells]) for column in range(len(titles))]
    for line in [titles, *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


@keys.command("revoke", short_help="Remove a key.", context_settings=HELP)
@click.argument("label")
@file_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the record that is gone.")
@click.pass_obj
def revoke_key(runtime: Runtime, /, label: str, file: Path | None, as_json: bool) -> None:
    """Remove the key labelled LABEL: within a second it opens no more streams. Those that are open go on.

    \b
      hearline keys revoke kiosk
    """
    path = _path(runtime.environment, file)
    try:
        with _explained(path):
            record = key_file.revoke(path, label)
    except key_file.NoSuchLabel as error:
        known = ", ".join(error.known) or "none at all"
        raise Failed(f"{path} has no key labelled {label!r}; it has {known}") from None
    today = utc_day(runtime.clock.wall_ms())
    said = f"{label!r} is revoked: it opens no stream from now on"
    click.echo(json.dumps({**_fields(record, today), "revoked": True}) if as_json else said)


def _path(environment: Mapping[str, str], file: Path | None) -> Path:
    if file is not None:
        return file
    if named := environment.get(VARIABLE):
        return Path(named)
    raise WrongUse(f"which file? Set {VARIABLE}=FILE, as for the service, or give --file FILE")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except BadKeyFile as error:
        raise Missing(str(error)) from None
    except FileNotFoundError:
        raise Missing(
            f"{path} cannot be written: there is no folder {path.parent}; make it: mkdir -p {path.parent}"
        ) from None
    except OSError as error:
        raise Missing(f"{path} cannot be written: {error.strerror}") from None


def _fields(record: KeyRecord, today: date) -> dict[str, Any]:
    fields = record.model_dump(mode="json", exclude={"sha256"})
    return {**fields, "expired": record.expired(today)}
