"""Renders docs/configuration.md: ``python -m ops.configuration > docs/configuration.md``. A test compares the two.

The programs' settings classes are named as text, for this program imports none of the others.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import click
from pydantic.fields import FieldInfo

from queueing.settings import EnvSettings, SettingRow, choices, limits

INTRODUCTION = """\
# Configuration

Everything is set by environment variables; the commands' own options (`hearline up --port`, ...) go before them.
A program reads all its settings when it starts and refuses to start when one is wrong, naming every wrong value, its
limit and the fix. An empty value counts as unset. `hearline up` reads the settings of all it will start first, warns
of `HEARLINE_*` names that no program knows, passes its environment on to every process it starts, and adds
`REDIS_URL`, `HEARLINE_HOST`, `HEARLINE_PORT` and `PROMETHEUS_MULTIPROC_DIR`.

<!-- Rendered from the settings classes by `python -m ops.configuration`; do not edit the tables by hand. -->
"""


class Section(NamedTuple):
    """A settings class (``module:Class``) and how the page introduces it."""

    title: str
    target: str
    text: str


SECTIONS = (
    Section(
        "Every program", "queueing.settings:QueueSettings", "Read by the web process, the workers and the commands."
    ),
    Section("Web process", "api.settings:ApiSettings", "`python -m api`. Times are in seconds, sizes in bytes."),
    Section("Worker", "workers.settings:WorkerSettings", "`python -m workers`."),
    Section(
        "Commands", "ops.settings:UpSettings", "`hearline up`, `hearline demo`, `hearline queue`, `hearline doctor`."
    ),
)

CLIENT = """\
## Client

`hearline stream` and `hearline load`.

| name | default | allowed | meaning |
|---|---|---|---|
| `HEARLINE_URL` | unset | ws, wss, http, https | The service. Unset: a running `hearline up`, else port 8000 here. |
| `HEARLINE_API_KEY` | unset | text | The API key to send, where the service asks for one. |
| `HEARLINE_STATE_DIR` | as above | text | Where the running `hearline up` is looked up. |
| `HEARLINE_SPEECH` | the project's own samples | folder | Recordings for `hearline load` without --speech. |

## Tests

| name | default | meaning |
|---|---|---|
| `HEARLINE_SPEECH` | `../shared/speech` | Folder of recordings with a `manifest.csv`; without it tests are skipped. |
| `HEARLINE_TEST_SEED` | drawn, and printed | Replays the random choices of a failed test. |
"""


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    shared: set[str] = set()
    for section in SECTIONS:
        settings = load(section.target)
        rows = [row for row in described_rows(settings) if row[0].name not in shared]
        parts.append(f"\n## {section.title}\n\n{section.text}\n\n{_table(rows)}")
        if settings.__name__ == "QueueSettings":
            shared.update(row.name for row, _ in rows)
    parts.append(f"\n{CLIENT}")
    return "".join(parts)


def load(target: str) -> type[EnvSettings]:
    """The settings class behind ``module:Class``."""
    module, _, name = target.partition(":")
    return cast("type[EnvSettings]", getattr(importlib.import_module(module), name))


def described_rows(settings: type[EnvSettings]) -> Iterator[tuple[SettingRow, str]]:
    """Each setting with its allowed values in words."""
    for row, field in zip(settings.rows(), settings.model_fields.values(), strict=True):
        yield row, _allowed(field)


def _allowed(field: FieldInfo) -> str:
    low, high = limits(field)
    pattern = None
    for constraint in field.metadata:
        pattern = getattr(constraint, "pattern", None) or pattern
    if low is not None and high is not None:
        return f"{_number(low)} to {_number(high)}"
    if words := choices(str(pattern or "")):
        return ", ".join(words)
    if pattern:
        return f"`{pattern!s}`".replace("|", "\\|")
    if field.annotation is bool:
        return "true, false"
    return "file or folder" if "Path" in str(field.annotation) else "text"


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _table(rows: Iterable[tuple[SettingRow, str]]) -> str:
    lines = ["| name | default | allowed | meaning |", "|---|---|---|---|"]
    for row, allowed in rows:
        default = {"": "unset", "True": "`true`", "False": "`false`"}.get(row.default, f"`{row.default}`")
        lines.append(f"| `{row.name}` | {default} | {allowed} | {row.meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Print docs/configuration.md, rendered from the programs' settings classes.

    \b
      python -m ops.configuration > docs/configuration.md
    """
    click.echo(render(), nl=False)


if __name__ == "__main__":
    main(prog_name="python -m ops.configuration")
