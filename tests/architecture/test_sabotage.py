"""The tests notice when the code is wrong: every mutation still fits the code, and a few are tried."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from queueing.clock import SystemClock
from tests.sabotage.entry import Sabotage
from tests.sabotage.runner import ROOT, attempt, copy_tree, mutated, page, read_report
from tests.sabotage.table import SABOTAGES
from tests.support.collected import named_tests

TRIED = 2


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_its_line_is_there_exactly_once_and_its_test_exists(sabotage: Sabotage) -> None:
    text = (ROOT / sabotage.file).read_text(encoding="utf-8")
    changed = mutated(sabotage, text)
    assert changed != text
    assert len(changed.splitlines()) == len(text.splitlines()), "one line, no more"
    file, *names = sabotage.caught_by.split("[")[0].split("::")
    assert "::".join(names) in named_tests(ROOT / file), f"no test {sabotage.caught_by}"


def test_names_are_unique() -> None:
    assert len({sabotage.name for sabotage in SABOTAGES}) == len(SABOTAGES) >= 15


def test_the_page_is_the_rendered_one() -> None:
    assert (ROOT / "docs/sabotage.md").read_text(encoding="utf-8") == page(SABOTAGES), (
        "render it again: python -m tests.sabotage --page > docs/sabotage.md"
    )


def test_a_failure_counts_only_when_something_was_asserted() -> None:
    def report(inside: str) -> str:
        return f'<testsuites><testsuite><testcase name="t">{inside}</testcase></testsuite></testsuites>'

    assert read_report(report("")).green
    assert read_report(report('<failure message="AssertionError: assert 1 == 2">trace</failure>')).caught
    assert read_report(report('<failure message="Failed: DID NOT RAISE X">trace</failure>')).caught
    left_over = '<error message="failed on teardown with &quot;AssertionError: leaked&quot;">trace</error>'
    assert read_report(report(left_over)).caught
    for broken in (
        '<failure message="NameError: name x">trace</failure>',
        '<error message="ImportError while importing">trace</error>',
        '<error message="failed on setup with &quot;AssertionError: no server&quot;">trace</error>',
        '<skipped message="no model" />',
    ):
        outcome = read_report(report(broken))
        assert not outcome.caught
        assert not outcome.green
    assert not read_report("<testsuites><testsuite></testsuite></testsuites>").green, "no test at all"


def test_a_few_are_caught(tmp_path: Path, rng: random.Random) -> None:
    """(That the tests pass unmutated is what the suite itself shows.)"""
    copy_tree(tmp_path)
    quick = [sabotage for sabotage in SABOTAGES if sabotage.quick]
    verdicts = [attempt(one, tmp_path, SystemClock(), unmutated_too=False) for one in rng.sample(quick, TRIED)]
    assert [(verdict.name, verdict.problem) for verdict in verdicts if verdict.problem] == []
