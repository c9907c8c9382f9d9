"""API keys: their form, the file of their digests, and reading it again while the service runs."""

from __future__ import annotations

import os
import secrets
from datetime import date
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from api.keys import ANYBODY, LOOK_EVERY_S, REMIND_EVERY_S, Expired, KeyRing, Limits, Principal
from api.metrics import KeyMetrics
from ops import key_file
from queueing.clock import ManualClock
from sessions.api_keys import (
    HEADER,
    KEY_CHARACTERS,
    MAX_FILE_BYTES,
    MAX_KEYS,
    BadKeyFile,
    KeyRecord,
    digest,
    is_key,
    make_key,
    parse_keys,
    read_keys,
)


def new(label: str, **fields: object) -> tuple[str, KeyRecord]:
    key = make_key(secrets.token_bytes)
    return key, KeyRecord.model_validate({"label": label, "sha256": digest(key), **fields})


class Ring:
    """A key ring over a file, a clock moved by hand, and its metrics."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        self.ring = KeyRing(path, self.clock, KeyMetrics(self.registry))

    def later(self, seconds: float = LOOK_EVERY_S) -> KeyRing:
        self.clock.advance(seconds)
        return self.ring

    def metric(self, name: str) -> float:
        return self.registry.get_sample_value(name) or 0.0


def test_a_key_is_256_random_bits_and_looks_like_one() -> None:
    key = make_key(lambda count: bytes(range(count)))
    assert key == "hl_" + "aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dypq"
    assert len(key) == 3 + KEY_CHARACTERS
    assert is_key(key)
    assert len({make_key(secrets.token_bytes) for _ in range(100)}) == 100
    for wrong in ("", "hl_", key[:-1], key + "a", key.upper(), key.replace("_", "-"), f" {key}", f"{key}\n"):
        assert not is_key(wrong)


def test_the_file_holds_digests_and_never_a_key(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key, record = new("kiosk", max_streams=3, expires="2030-01-31")
    key_file.add(path, record)
    text = path.read_text()
    assert key not in text
    assert key[3:] not in text
    assert digest(key) in text
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_keys(path) == (record,)


def test_changes_leave_everything_else_in_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    first, second = new("first")[1], new("second")[1]
    path.write_text(f"{HEADER}\n# the hall\n{first.line().strip()}")  # without a line end
    key_file.add(path, second)
    assert path.read_text() == f"{HEADER}\n# the hall\n{first.line()}{second.line()}"
    assert key_file.revoke(path, "first") == first
    assert path.read_text() == f"{HEADER}\n# the hall\n{second.line()}"
    key_file.revoke(path, "second")
    assert read_keys(path) == ()
    assert path.read_text() == f"{HEADER}\n# the hall\n"
    with pytest.raises(key_file.NoSuchLabel):
        key_file.revoke(path, "second")


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text(HEADER)
    link = tmp_path / "keys"
    link.symlink_to("real")
    key_file.add(link, new("kiosk")[1])
    assert link.is_symlink()
    assert len(read_keys(tmp_path / "real")) == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"real", "keys"}, "a temporary file was left"


SECRET = "hl_" + "a" * KEY_CHARACTERS
LINE = '{"label": "x", "sha256": "' + "0" * 64 + '"}'


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", 0, "is empty"),
        (f"# first\n{SECRET}\n", 2, "not a JSON object"),
        (f'{LINE}\n["{SECRET}"]', 2, "object"),
        ('{"label": "x"}', 1, "sha256"),
        (f'{{"label": "x", "sha256": "{SECRET}"}}', 1, "sha256"),
        (f'{{"label": "x y", "sha256": "{"0" * 64}"}}', 1, "label"),
        (LINE.replace("}", ', "max_stream": 3}'), 1, "max_stream"),
        (LINE.replace("}", ', "max_streams": 0}'), 1, "max_streams"),
        (LINE.replace("}", ', "max_audio_rate": -1}'), 1, "max_audio_rate"),
        (LINE.replace("}", ', "expires": "soon"}'), 1, "expires"),
        (f"{LINE}\n{LINE}", 2, "twice"),
        (f"{LINE}\n{LINE.replace('x', 'y', 1)}", 2, "twice"),
    ],
)
def test_a_wrong_file_is_refused_by_line_and_not_quoted(tmp_path: Path, text: str, line: int, problem: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(BadKeyFile) as caught:
        read_keys(path)
    assert caught.value.line == line
    assert problem in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_cannot_be_trusted_or_held_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    with pytest.raises(BadKeyFile, match="hearline keys add"):
        read_keys(path)
    path.write_text(LINE)
    path.chmod(0o666)
    with pytest.raises(BadKeyFile, match="chmod 600"):
        read_keys(path)
    path.chmod(0o600)
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(BadKeyFile, match="bytes"):
        read_keys(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadKeyFile, match="UTF-8"):
        read_keys(path)
    numbers = range(MAX_KEYS + 1)
    many = "".join(KeyRecord(label=f"k{number}", sha256=f"{number:064x}").line() for number in numbers)
    with pytest.raises(BadKeyFile, match=f"{MAX_KEYS:,}"):
        parse_keys(path, many)


def test_without_a_file_everybody_is_anybody() -> None:
    ring = KeyRing(None, ManualClock(), KeyMetrics(CollectorRegistry()))
    assert not ring.required
    assert (ANYBODY.label, ANYBODY.limits) == ("", Limits())


def test_a_ring_does_not_begin_with_a_file_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(BadKeyFile):
        Ring(tmp_path / "keys")


def test_the_ring_knows_whose_key_it_is(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key, record = new("kiosk", max_streams=3, max_audio_rate=4.5)
    other, _ = new("other")
    key_file.add(path, record)
    ring = Ring(path).ring
    assert ring.required
    assert ring.find(key) == Principal("kiosk", Limits(3, 4.5))
    for wrong in (other, "", key[:-1], record.sha256, "kiosk"):
        assert ring.find(wrong) is None


def test_a_key_is_valid_to_the_end_of_its_last_day(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key, record = new("trial", expires="1970-01-02")
    key_file.add(path, record)
    ring = Ring(path)
    assert isinstance(ring.ring.find(key), Principal)
    ring.later(2 * 86_400 - 1_000 - 0.001)
    assert isinstance(ring.ring.find(key), Principal)
    assert ring.later(1).find(key) == Expired(date(1970, 1, 2))


def test_a_changed_file_counts_at_the_next_look_and_is_not_looked_at_more_often(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    key, record = new("one")
    later, second = new("two")
    key_file.add(path, record)
    ring = Ring(path)
    assert ring.metric("hearline_api_keys") == 1
    key_file.add(path, second)
    assert ring.ring.find(later) is None, "looked before its time"
    assert ring.later().find(later) == Principal("two")
    assert ring.metric("hearline_api_keys") == 2
    key_file.revoke(path, "one")
    assert ring.later().find(key) is None
    key_file.revoke(path, "two")
    assert ring.later().find(later) is None
    assert ring.ring.required, "a file without keys lets nobody in"


@pytest.mark.parametrize("damage", ["garbage", "empty", "gone", "writable", "folder"])
def test_a_broken_file_changes_nothing_and_is_said_loudly(
    tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "keys"
    key, record = new("kiosk")
    key_file.add(path, record)
    ring = Ring(path)
    match damage:
        case "garbage":
            path.write_text(f"{key}\n")
        case "empty":
            path.write_text("")
        case "gone":
            path.unlink()
        case "writable":
            path.chmod(0o666)
        case "folder":
            path.unlink()
            path.mkdir()
    for _ in range(3):
        assert ring.later().find(key) == Principal("kiosk")
    said = capsys.readouterr().out
    assert said.count("api_keys_not_read") == 1, "said again and again, or not at all"
    assert str(path) in said
    assert key not in said
    assert ring.metric("hearline_api_keys_file_broken") == 1
    ring.later(REMIND_EVERY_S).find(key)
    assert ring.metric("hearline_api_keys_read_failures_total") == 2
    if damage == "folder":
        path.rmdir()
    path.write_text(new("successor")[1].line())
    os.chmod(path, 0o600)
    assert ring.later().find(key) is None
    assert ring.metric("hearline_api_keys_file_broken") == 0
