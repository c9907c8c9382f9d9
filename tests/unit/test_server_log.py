"""What strangers can make the web server say: it is in the log, and does not fill it."""

from __future__ import annotations

import logging

from structlog.testing import capture_logs

from api.server_log import BURST, PER_S, Forward
from queueing.clock import ManualClock


def say(handler: logging.Handler, message: str, level: int = logging.WARNING) -> None:
    handler.handle(logging.LogRecord("gunicorn.error", level, __file__, 1, message, (), None))


def test_a_flood_of_invalid_requests_is_counted_and_not_written() -> None:
    clock = ManualClock()
    handler = Forward(clock)
    with capture_logs() as lines:
        for number in range(1_000):
            say(handler, f"Invalid request from ip=203.0.113.7: number {number}")
        assert [line["message"].rsplit(" ", 1)[1] for line in lines] == [str(number) for number in range(BURST)]
        say(handler, "Worker exiting")
        assert len(lines) == BURST + 1, "nothing else is held back for it"
        clock.advance(1 / PER_S)
        say(handler, "Invalid request from ip=203.0.113.7: later")
        say(handler, "Invalid request from ip=203.0.113.7: too soon")
        clock.advance(1 / PER_S)
        say(handler, "Invalid request from ip=203.0.113.7: last")
    assert [line.get("left_out") for line in lines[BURST:]] == [None, 1_000 - BURST, 1]


def test_each_line_says_how_grave_it_is() -> None:
    handler = Forward(ManualClock())
    with capture_logs() as lines:
        say(handler, "Error handling request", logging.ERROR)
    assert [(line["event"], line["log_level"]) for line in lines] == [("gunicorn", "error")]
