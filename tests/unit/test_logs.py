"""Log lines are for machines: every one says which program wrote it, from whichever thread."""

from __future__ import annotations

import json
import os
import sys
import threading

import pytest
import structlog

from queueing.logs import configure_logs


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
