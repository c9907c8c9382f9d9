"""docs/protocol.md says what the code does: codes, fields, limits and the example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from queueing.lane import MAX_JOB_AUDIO_S
from sessions.codes import CODES, CloseCode, ErrorCode
from sessions.limits import MAX_WAITING_AUDIO_S, MAX_WAITING_FINALS, MIN_DECODE_S
from sessions.wire import (
    BYTES_PER_SECOND,
    MAX_BAD_MESSAGES,
    MAX_CLIENT_REF,
    MAX_ENDPOINT_MS,
    MAX_HOTWORDS,
    MAX_INITIAL_PROMPT,
    MAX_TEXT_BYTES,
    MIN_ENDPOINT_MS,
    Ack,
    Done,
    End,
    Error,
    Final,
    Flush,
    Keepalive,
    Limits,
    Partial,
    Ready,
    Resume,
    ServerMessage,
    Start,
    Status,
    Timing,
    Word,
    decode_client,
    decode_server,
)

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


def rows(first_cell: str) -> list[list[str]]:
    """The cells of the table whose first header cell is this."""
    lines = PAGE.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {first_cell} |"))
    table = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return table


def test_every_code_has_its_entry() -> None:
    assert list(CODES) == list(ErrorCode)
    assert {info.close for info in CODES.values() if info.close} <= set(CloseCode)
    for code, info in CODES.items():
        assert info.fatal <= (info.close is not None), f"{code}: what is fatal closes the stream"
        assert info.meaning.endswith(".")
        assert info.remedy.endswith(".")


def test_the_code_table_is_the_enum() -> None:
    written = {cells[0].strip("`"): cells[1:] for cells in rows("code")}
    expected = {
        code.value: [
            "yes" if info.fatal else "no",
            str(int(info.close)) if info.close else "",
            "yes" if info.retry else "",
            info.meaning,
            info.remedy,
        ]
        for code, info in CODES.items()
    }
    assert written == expected


def test_every_close_code_is_told_and_no_other() -> None:
    paragraph = PAGE[PAGE.index("Close codes are") : PAGE.index("## Refusals")]
    assert {int(code) for code in re.findall(r"\b1\d{3}\b", paragraph)} == {int(code) for code in CloseCode}


@pytest.mark.parametrize(
    "model", [Start, Resume, Flush, Keepalive, End, Ready, Partial, Final, Ack, Status, Done, Error]
)
def test_every_field_of_every_message_is_in_its_table(model: type[Start | Resume | ServerMessage]) -> None:
    kind = model.model_fields["type"].default
    tables = [cells for cells in PAGE.splitlines() if cells.startswith(f"| `{kind}` |")]
    fields = [match[1] for line in tables if (match := re.match(rf"\| `{kind}` \| `(\w+)` \|", line))]
    assert fields == [name for name in model.model_fields if name != "type"]
    assert tables, f"{kind} is in no table"


def test_the_defaults_of_start_are_those_of_the_code() -> None:
    defaults = {cells[1].strip("`"): cells[3].strip("`") for cells in rows("message") if cells[0] == "`start`"}
    written = {None: "null", True: "true", False: "false"}
    for name, value in Start().model_dump(exclude={"type"}).items():
        assert defaults[name] == (written[value] if value is None or isinstance(value, bool) else str(value))


def test_nested_fields_are_named() -> None:
    for model in (Limits, Word, Timing):
        for name in model.model_fields:
            assert f"`{name}`" in PAGE


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"is cut before {MAX_JOB_AUDIO_S:g} s" in PAGE
    assert f"While {MAX_WAITING_FINALS} finals" in PAGE
    assert f"began {MAX_WAITING_AUDIO_S:g} s before" in PAGE
    assert f"{MIN_ENDPOINT_MS} to {MAX_ENDPOINT_MS:,} ms" in PAGE
    assert f"up to {MAX_INITIAL_PROMPT:,} characters" in PAGE
    assert f"up to {MAX_HOTWORDS} characters" in PAGE
    assert f"Less than {MIN_DECODE_S * 1000:.0f} ms" in PAGE
    assert f"After {MAX_BAD_MESSAGES} of the client's making" in PAGE
    assert f"at most {MAX_TEXT_BYTES:,} bytes" in PAGE
    assert f"up to {MAX_CLIENT_REF} characters" in PAGE
    assert f"{BYTES_PER_SECOND:,}\nbytes a second" in PAGE
    assert CODES[ErrorCode.TOO_MANY_ERRORS].meaning.startswith(str(MAX_BAD_MESSAGES))


def test_the_example_is_a_stream_as_the_code_understands_it() -> None:
    example = PAGE[PAGE.index("```\nclient") : PAGE.index("## What the client sends")]
    client = [decode_client(line[8:]) for line in example.splitlines() if line.startswith("client  {")]
    server = [decode_server(line[8:]) for line in example.splitlines() if line.startswith("server  {")]
    assert [message.type for message in client] == ["start", "end"]
    assert [message.type for message in server] == ["ready", *["partial"] * 2, "final", "partial", "final", "done"]
    assert [message.seq for message in server if isinstance(message, Partial | Final)] == [1, 2, 3, 4, 5]
    finals = [message for message in server if isinstance(message, Final)]
    assert [final.start_s for final in finals[1:]] == [final.end_s for final in finals[:-1]]
    assert server[-1] == Done(audio_s=finals[-1].end_s, finals=len(finals))
