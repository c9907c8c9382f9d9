"""`hearline keys`: what it prints, what it writes, what it refuses."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ops.cli import main
from ops.runtime import Runtime
from queueing.clock import ManualClock
from sessions.api_keys import digest, is_key, read_keys

DAY_S = 86_400


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def keys(file: Path | None, *arguments: str) -> Result:
    environment = {} if file is None else {"HEARLINE_API_KEYS": str(file)}
    runtime = Runtime(environment=environment, clock=ManualClock(20_000 * DAY_S))  # 2024-10-04
    return CliRunner().invoke(main, ["keys", *arguments], obj=runtime)


def test_the_key_is_alone_on_standard_output(file: Path) -> None:
    added = keys(file, "add", "--label", "kiosk")
    assert added.exit_code == 0
    key = added.stdout.removesuffix("\n")
    assert is_key(key)
    assert key not in added.stderr
    assert [record.sha256 for record in read_keys(file)] == [digest(key)]


def test_limits_and_dates_come_back_in_the_list(file: Path) -> None:
    limits = ("--max-streams", "2", "--max-audio-rate", "2.5", "--expires", "2024-10-05")
    made = keys(file, "add", "--label", "trial", *limits, "--json")
    fields = json.loads(made.stdout)
    assert is_key(fields.pop("key"))
    assert fields == {
        "label": "trial",
        "created": "2024-10-04",
        "expires": "2024-10-05",
        "max_streams": 2,
        "max_audio_rate": 2.5,
        "expired": False,
        "file": str(file),
    }
    del fields["file"]
    keys(file, "add", "--label", "kiosk")
    listed = keys(file, "list", "--json")
    assert json.loads(listed.stdout)[0] == fields
    assert "sha256" not in listed.stdout
    table = keys(file, "list").stdout.splitlines()
    assert table[0].split()[:4] == ["label", "created", "expires", "streams"]
    assert table[1].split() == ["trial", "2024-10-04", "2024-10-05", "2", "2.5"]
    assert table[2].split() == ["kiosk", "2024-10-04", "never", "-", "-"]


def test_a_revoked_key_is_gone(file: Path) -> None:
    keys(file, "add", "--label", "one")
    keys(file, "add", "--label", "two")
    assert "'one' is revoked" in keys(file, "revoke", "one").stdout
    assert [record.label for record in read_keys(file)] == ["two"]
    again = keys(file, "revoke", "one")
    assert again.exit_code == 1
    assert "it has two" in again.stderr
    assert json.loads(keys(file, "revoke", "two", "--json").stdout)["revoked"] is True
    assert "nobody can use the service" in keys(file, "list").stdout


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("add", "--label", "a b"), 2, "letters, digits"),
        (
            ("add", "--label", "a", "--file", "/no/such/keys"),
            3,
            "there is no folder /no/such; make it: mkdir -p /no/such",
        ),
        (("add", "--label", ""), 2, "letters, digits"),
        (("add", "--label", "x" * 65), 2, "at most 64"),
        (("add", "--label", "-x"), 2, "begins with"),
        (("add", "--label", "kiosk"), 1, "hearline keys revoke kiosk"),
        (("add", "--label", "new", "--expires", "2024-10-03"), 2, "is over"),
        (("add", "--label", "new", "--expires", "tomorrow"), 2, "tomorrow"),
        (("add", "--label", "new", "--max-streams", "0"), 2, "max-streams"),
        (("add", "--label", "new", "--max-audio-rate", "0"), 2, "max-audio-rate"),
        (("add",), 2, "--label"),
        (("revoke", "nobody"), 1, "kiosk"),
        (("list", "--file", "/nonexistent/keys"), 3, "cannot be read"),
        (("add", "--label", "new", "--file", "/nonexistent/keys"), 3, "cannot be written"),
    ],
)
def test_what_cannot_be_done_says_why(file: Path, arguments: tuple[str, ...], status: int, said: str) -> None:
    keys(file, "add", "--label", "kiosk")
    before = file.read_text()
    result = keys(file, *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert said in result.stderr
    assert file.read_text() == before


def test_a_file_that_is_wrong_is_not_written_over(file: Path) -> None:
    file.write_text("something else\n")
    result = keys(file, "add", "--label", "kiosk")
    assert result.exit_code == 3
    assert "line 1" in result.stderr
    assert file.read_text() == "something else\n"


def test_somebody_must_say_which_file() -> None:
    result = keys(None, "list")
    assert result.exit_code == 2
    assert "HEARLINE_API_KEYS" in result.stderr
    assert "--file" in result.stderr


def test_commands_at_the_same_time_lose_nothing(file: Path) -> None:
    from ops import key_file
    from sessions.api_keys import KeyRecord

    def add(number: int) -> None:
        key_file.add(file, KeyRecord(label=f"k{number}", sha256=f"{number:064x}"))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {record.label for record in read_keys(file)} == {f"k{number}" for number in range(16)}
