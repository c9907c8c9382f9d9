"""docs/cases.md names the tests that hold each case; they exist, and no case is without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.collected import named_tests

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/cases.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")
ROW = re.compile(r"^\| (?!case \||-)(?P<case>[^|]+) \| (?P<tests>[^|]*) \|$", re.MULTILINE)
ROWS = [(found["case"].strip(), TEST.findall(found["tests"])) for found in ROW.finditer(PAGE)]


def test_there_is_something_to_hold_the_page_to() -> None:
    assert len(ROWS) >= 30
    named = len(re.findall(r"tests/\S+\.py::", PAGE))
    assert named == sum(len(tests) for _, tests in ROWS), "a test is named outside of the tables, or mistyped"


@pytest.mark.parametrize(("case", "tests"), ROWS, ids=[case[:40] for case, _ in ROWS])
def test_each_case_has_tests_and_they_exist(case: str, tests: list[tuple[str, str]]) -> None:
    assert tests, f"no test for: {case}"
    missing = [f"{file}::{name}" for file, name in tests if name not in named_tests(ROOT / file)]
    assert not missing, f"{case}: no such test {missing}"


def test_every_file_of_cases_is_on_the_page() -> None:
    """Tests that were written for a case would be forgotten here otherwise."""
    written = ("test_stream_cases", "test_stream_neighbours", "test_message_order", "test_worker_killed_anywhere")
    for name in (*written, "test_worker_clocks"):
        file = f"tests/integration/{name}.py"
        on_page = {test for _, tests in ROWS for path, test in tests if path == file}
        assert on_page == named_tests(ROOT / file), f"{file}: the page lacks tests, or has some that are gone"
