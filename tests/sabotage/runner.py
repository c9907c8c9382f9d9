"""Tries mutations in a copy of the tree: the named test must pass without one and fail, by an assertion, with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from queueing.clock import Clock
from tests.sabotage.entry import Sabotage

ROOT = Path(__file__).resolve().parents[2]
TEST_TIMEOUT_S = 300
REPORT = "report.xml"


class StaleSabotage(ValueError):
    """A mutation whose line is not there, or more than once: the code went on and the table did not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a named test ended: ``passed`` and ``asserted`` count test cases, ``other`` says what else happened."""

    passed: int
    asserted: int
    other: str
    said: str

    @property
    def green(self) -> bool:
        return self.passed > 0 and not self.asserted and not self.other

    @property
    def caught(self) -> bool:
        """Failed for the right reason: an assertion, and nothing that broke around it."""
        return self.asserted > 0 and not self.other


@dataclass(frozen=True, slots=True)
class Verdict:
    """``problem`` is empty where the test passes unmutated and catches the mutation."""

    name: str
    seconds: float
    said: str
    problem: str


def mutated(sabotage: Sabotage, text: str) -> str:
    """The file's text with the mutation in it; raises `StaleSabotage`."""
    lines = text.splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if line.strip() == sabotage.old]
    if len(found) != 1:
        raise StaleSabotage(f"{sabotage.name}: {sabotage.file} has {len(found)} lines {sabotage.old!r}, expected one")
    (at,) = found
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    lines[at] = f"{indent}{sabotage.new}\n" if sabotage.new else "\n"
    return "".join(lines)


def copy_tree(folder: Path) -> None:
    """The project as it is now, without what git ignores."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    for name in filter(None, listing.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def run_test(folder: Path, test: str) -> Outcome:
    """Run one test (all its parameters) in the copy."""
    report = folder / REPORT
    report.unlink(missing_ok=True)
    environment = dict(os.environ) | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(folder)}  # noqa: TID251
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--junitxml={report}", test]
    try:
        ran = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TEST_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return Outcome(0, 0, f"no end within {TEST_TIMEOUT_S} s", "")
    if not report.is_file():
        return Outcome(0, 0, f"no report, status {ran.returncode}: {ran.stdout[-500:]}{ran.stderr[-500:]}", "")
    return read_report(report.read_text(encoding="utf-8"))


def read_report(xml: str) -> Outcome:
    """What a JUnit report of pytest says."""
    passed, asserted, other, said = 0, 0, "", ""
    for case in ElementTree.fromstring(xml).iter("testcase"):
        for kind in ("failure", "error", "skipped"):
            for found in case.findall(kind):
                message = (found.get("message") or "").strip()
                if _asserts(kind, message, found.text or ""):
                    asserted += 1
                    said = message.splitlines()[0][:200]
                else:
                    other = other or f"{kind}: {message[:200]}"
        passed += len(case.findall("*")) == 0
    return Outcome(passed, asserted, other, said)


def _asserts(kind: str, message: str, trace: str) -> bool:
    """Whether it is an assertion: of the test, also inside a group of failures or as `pytest.raises` makes it, or of
    a fixture that finds something left over afterwards."""
    if kind == "failure":
        return message.startswith(("AssertionError", "assert ", "Failed: ")) or "AssertionError" in trace
    return kind == "error" and message.startswith("failed on teardown") and "AssertionError" in message


def attempt(sabotage: Sabotage, folder: Path, clock: Clock, *, unmutated_too: bool = True) -> Verdict:
    """Try one mutation in the copy at ``folder``, which is whole again afterwards."""
    began_s = clock.monotonic()
    path = folder / sabotage.file
    original = path.read_text(encoding="utf-8")
    problem, said = "", ""
    if unmutated_too:
        before = run_test(folder, sabotage.caught_by)
        if not before.green:
            problem = f"the test does not pass unmutated: {before.other or before.said or 'no case ran'}"
    if not problem:
        path.write_text(mutated(sabotage, original), encoding="utf-8")
        try:
            after = run_test(folder, sabotage.caught_by)
        finally:
            path.write_text(original, encoding="utf-8")
        said = after.said
        if not after.caught:
            problem = after.other or "the test passes all the same"
    return Verdict(sabotage.name, clock.monotonic() - began_s, said, problem)


def page(sabotages: Sequence[Sabotage]) -> str:
    """docs/sabotage.md."""
    rows = "\n".join(
        f"| `{s.name}` | `{s.file}` | {s.breaks} | `{s.caught_by.rsplit('::', 1)[-1]}` |" for s in sabotages
    )
    return PAGE.format(count=len(sabotages), rows=rows)


PAGE = """# Sabotage: do the tests notice?

A test that cannot fail proves nothing. `tests/sabotage/table.py` lists {count} mutations of the code, each of one line,
each with the invariant that it breaks and the test that must then fail.

```
python -m tests.sabotage                    # all of them
python -m tests.sabotage --only claim-nonce # one
python -m tests.sabotage --json             # for a program
```

The tree is copied to a temporary folder. There the named test must pass; then the line is changed, and the test must
fail by an assertion: an error while it is collected or set up does not count. Status 0 means that every mutation was
caught, 1 that one was not.

The suite itself checks that every mutation still fits the code (its line is there, exactly once) and tries two of them,
chosen by the seed that it prints. This page is rendered: `python -m tests.sabotage --page > docs/sabotage.md`.

| mutation | where | invariant | caught by |
|---|---|---|---|
{rows}
"""
