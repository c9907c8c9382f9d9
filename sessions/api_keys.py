"""API keys: what they look like, and the file that says which are valid.

The file has one JSON object a line (empty lines and lines that begin with ``#`` are left alone):

    {"label": "kiosk", "sha256": "9f86d0...", "created": "2026-11-30", "expires": "2027-11-30", "max_streams": 4}

It holds no key, only the SHA-256 of each. A fast hash without a salt is right here, and would be wrong for a password:
a key is 256 random bits, so there is no dictionary to try and no two keys alike, and trying all of them is out of
reach however fast the hash is; a slow one would only give strangers a way to spend this server's CPU time. That holds
because nothing but such a key is looked up: `is_key` is asked first.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

PREFIX = "hl_"
KEY_BYTES = 32
KEY_CHARACTERS = 52
"""32 bytes in base32, without padding."""
MAX_KEYS = 1_000
MAX_FILE_BYTES = 1_048_576
MAX_LABEL = 64
HEADER = "# API keys of Hearline, by their SHA-256: see `hearline keys --help`.\n"
"""The first line of a new file."""
LABEL_RULE = rf"^[A-Za-z0-9][A-Za-z0-9_.-]{{0,{MAX_LABEL - 1}}}$"

_KEY = re.compile(rf"{PREFIX}[a-z2-7]{{{KEY_CHARACTERS}}}")
_WRITABLE_BY_OTHERS = 0o002


class BadKeyFile(Exception):
    """The key file cannot be used: ``line`` of it (0: the whole file) has ``problem``. Never quotes the line."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        self.path = path
        self.line = line
        self.problem = problem
        super().__init__(f"{path}{f', line {line}' if line else ''}: {problem}")


class KeyRecord(BaseModel):
    """What is known of one key. A limit of None is the server's own setting."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str = Field(pattern=LABEL_RULE)
    """Names the key to people, in logs and in metrics."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    created: date | None = None
    expires: date | None = None
    """The last day (UTC) on which it is valid."""
    max_streams: int | None = Field(None, ge=1, le=100_000)
    """Streams open at once with this key."""
    max_audio_rate: float | None = Field(None, gt=0, le=1_000_000)
    """Seconds of audio a second over all its streams; 1 is one speaker in real time."""

    def expired(self, today: date) -> bool:
        """Whether the last day is over."""
        return self.expires is not None and today > self.expires

    def line(self) -> str:
        """The record as the file holds it."""
        return self.model_dump_json(exclude_none=True) + "\n"


def make_key(random_bytes: Callable[[int], bytes]) -> str:
    """A new key from ``random_bytes(count)``, which must be the operating system's (``secrets.token_bytes``)."""
    return PREFIX + base64.b32encode(random_bytes(KEY_BYTES)).decode().rstrip("=").lower()


def is_key(text: str) -> bool:
    """Whether this is formed like a key; only then is it worth a look-up."""
    return _KEY.fullmatch(text) is not None


def digest(key: str) -> str:
    """What the file holds of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def utc_day(wall_ms: int) -> date:
    """The day of a time in milliseconds since the epoch."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).date()


def read_keys(path: Path) -> tuple[KeyRecord, ...]:
    """The records of the file; none is a valid answer. Raises `BadKeyFile`."""
    try:
        with path.open("rb") as file:
            mode = path.stat().st_mode
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise BadKeyFile(path, 0, f"cannot be read ({error.strerror}); `hearline keys add` makes one") from error
    if mode & _WRITABLE_BY_OTHERS:
        raise BadKeyFile(path, 0, "any user may write it, and so add keys; chmod 600")
    if not data:  # an editor may be writing it; without a key it still has its first line
        raise BadKeyFile(path, 0, f"is empty; write {HEADER.strip()!r} into it to have no keys")
    if len(data) > MAX_FILE_BYTES:
        raise BadKeyFile(path, 0, f"has more than {MAX_FILE_BYTES:,} bytes; revoke keys")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise BadKeyFile(path, 0, "is not UTF-8 text; write one JSON object a line") from None
    return parse_keys(path, text)


def parse_keys(path: Path, text: str) -> tuple[KeyRecord, ...]:
    """As `read_keys`, of a text that was read from ``path``."""
    records: dict[str, KeyRecord] = {}
    digests: set[str] = set()
    for number, record in records_by_line(path, text):
        if record.label in records:
            raise BadKeyFile(path, number, f"the label {record.label!r} is there twice; each key needs its own")
        if record.sha256 in digests:
            raise BadKeyFile(path, number, "the same key is there twice; give each label a key of its own")
        records[record.label] = record
        digests.add(record.sha256)
    if len(records) > MAX_KEYS:
        raise BadKeyFile(path, 0, f"has {len(records):,} keys; at most {MAX_KEYS:,} are allowed")
    return tuple(records.values())


def records_by_line(path: Path, text: str) -> Iterator[tuple[int, KeyRecord]]:
    """Each record with the number of its line, from 1. Raises `BadKeyFile`."""
    # Not splitlines: that also cuts at characters which JSON allows within a text.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            yield number, KeyRecord.model_validate_json(line)
        except ValidationError as error:
            raise BadKeyFile(path, number, _problem(error)) from None


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    # The parser's own message may quote what stands there.
    if first["type"] == "json_invalid":
        return "not a JSON object"
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"{place}: {message}" if place else message
