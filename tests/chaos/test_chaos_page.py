"""docs/chaos.md names exactly the faults, excuses and settings that there are."""

from __future__ import annotations

import re
from pathlib import Path

from ops.chaos.excuses import RULES
from ops.chaos.plan import KINDS
from ops.chaos.settings import SHORT

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "chaos.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """The first table after a heading row: first cell -> the rest."""
    table = PAGE.partition(heading)[2].partition("\n\n")[0]
    return {match[1]: match[2] for match in re.finditer(r"^\| `([^`]+)` \| (.*) \|$", table, re.MULTILINE)}


def test_every_kind_of_fault_is_there() -> None:
    assert list(rows("| kind | what is done | to |")) == list(KINDS)


def test_every_excuse_is_there() -> None:
    assert list(rows("| code | excused by |")) == list(RULES)


def test_the_short_times_are_there() -> None:
    assert rows("| setting | short |") == dict(SHORT.environment)
