"""The shape of the code is checked, so that it does not decay: file sizes, packages, the Procfile."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "workers", "queueing", "sessions", "ops", "loadgen")

LIMITS = {"source": 300, "tests": 400, "lua": 80}
EXCEPTIONS: dict[str, int] = {}
"""File -> lines it may have, for files that are one room with one owner all the same; each needs a reason here."""


def tracked(*patterns: str) -> list[Path]:
    """The project's files of these patterns that exist and are not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return [ROOT / line for line in listing.splitlines() if (ROOT / line).is_file()]


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize(
    ("kind", "patterns"),
    [
        ("source", tuple(f"{package}/**.py" for package in PACKAGES)),
        ("tests", ("tests/**.py",)),
        ("lua", ("**.lua",)),
    ],
)
def test_every_file_is_one_room_with_one_owner(kind: str, patterns: tuple[str, ...]) -> None:
    files = tracked(*patterns)
    assert files, f"no {kind} files found: the patterns are wrong"
    too_long = {
        str(path.relative_to(ROOT)): lines_of(path)
        for path in files
        if lines_of(path) > EXCEPTIONS.get(str(path.relative_to(ROOT)), LIMITS[kind])
    }
    assert not too_long, f"files over {LIMITS[kind]} lines, split them: {too_long}"


def test_the_size_exceptions_are_still_needed() -> None:
    for name, allowed in EXCEPTIONS.items():
        kind = "lua" if name.endswith(".lua") else "tests" if name.startswith("tests/") else "source"
        assert LIMITS[kind] < lines_of(ROOT / name) <= allowed, f"{name} fits the limit again: drop its exception"


def test_the_distribution_holds_exactly_the_named_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == set(PACKAGES)
    assert set(project["tool"]["importlinter"]["root_packages"]) == set(PACKAGES)
    for package in PACKAGES:
        assert (ROOT / package / "__init__.py").is_file()


def test_the_lock_files_pin_every_package_by_hash_and_name_no_index() -> None:
    for name in ("requirements.lock", "requirements-dev.lock"):
        text = (ROOT / name).read_text()
        assert "://" not in text, f"{name} names an index or address"
        pins = [block for block in text.split("\n") if "==" in block and not block.lstrip().startswith("#")]
        assert len(pins) > 40
        assert all(line.rstrip().endswith("\\") for line in pins), f"{name}: a pin without hashes"
        assert text.count("--hash=sha256:") > len(pins)


def test_no_file_names_a_machine_or_a_package_host() -> None:
    hosts = ["pypi" + ".org", "files.python" + "hosted", "/roo" + "t/", "/wor" + "k/", "/ho" + "me/"]
    for path in tracked("*.py", "*.lua", "*.md", "*.toml", "*.lock", "Makefile", "Procfile", "*.html", "*.js"):
        text = path.read_text(encoding="utf-8")
        found = [host for host in hosts if host in text]
        assert not found, f"{path.relative_to(ROOT)} names {found}"
