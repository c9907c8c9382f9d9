"""Log lines are for machines: every one says which program wrote it, from whichever thread."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import threading

import pytest
import structlog

from queueing.logs import configure_logs, without_secrets


def test_every_line_names_its_program_in_any_thread(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        configure_logs("info", "json", program="web")
        log = structlog.get_logger()
        thread = threading.Thread(target=lambda: log.info("from_a_thread"))
        thread.start()
        thread.join()
        log.debug("too quiet to be written")
        log.info("from_main", streams=3)
    finally:
        structlog.reset_defaults()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["program"], line["event"], line["level"]) for line in lines] == [
        ("web", "from_a_thread", "info"),
        ("web", "from_main", "info"),
    ]
    assert lines[1]["streams"] == 3


def test_a_line_is_one_write_so_that_lines_of_processes_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Pipe(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Pipe())
    try:
        configure_logs("info", "json", program="web")
        structlog.get_logger().info("one")
        logging.getLogger("a.library").warning("two")
    finally:
        structlog.reset_defaults()
        logging.basicConfig(force=True)
    assert [text.count("\n") for text in written] == [1, 1]
    assert all(text.endswith("\n") for text in written)


def test_a_reader_that_died_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stderr = os.fdopen(writing, "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", stderr)
    try:
        with pytest.raises(BrokenPipeError):
            stderr.write("somebody would hear this as an error\n")
        configure_logs("info", "json", program="worker")
        structlog.get_logger().info("last_words")
    finally:
        structlog.reset_defaults()
        with open(os.devnull, "w") as nowhere:  # what is still buffered must go somewhere at the close
            os.dup2(nowhere.fileno(), writing)
        stderr.close()


KEY = "hl_" + "a2" * 26


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Bearer {KEY}", "Bearer hl_(left out)"),
        (f"token,{KEY.upper()}!", "token,hl_(left out)!"),
        (f"GET /v1/stream?x=1&api_key={KEY}&y=2", "GET /v1/stream?x=1&api_key=(left out)&y=2"),
        ("/v1/stream?API_KEY=secret HTTP/1.1", "/v1/stream?API_KEY=(left out) HTTP/1.1"),
        ("rediss://user:pass@host:1/0", "rediss://user:(left out)@host:1/0"),
        ("redis://:pass@host and redis://:other@host", "redis://:(left out)@host and redis://:(left out)@host"),
        ("redis://host:6379/0 of user@host", "redis://host:6379/0 of user@host"),
        ("hl_short and api_key", "hl_short and api_key"),
    ],
)
def test_keys_and_passwords_that_libraries_quote_are_left_out(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
