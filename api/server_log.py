"""What gunicorn has to say, as structured lines like all others."""

from __future__ import annotations

import logging
from typing import Any

import structlog
from gunicorn.glogging import Logger

from api.rates import TokenBucket
from queueing.clock import Clock, SystemClock

OF_STRANGERS = "Invalid request"
"""How gunicorn's line of a request begins that is no HTTP: anybody can cause as many as they like."""
BURST = 20
PER_S = 0.2


class EventLogger(Logger):  # type: ignore[misc]
    """gunicorn's logger."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        self.error_log.handlers = [Forward(SystemClock())]
        self.error_log.propagate = False


class Forward(logging.Handler):
    """Passes records on to structlog, those of invalid requests at a limited rate: the next that is passed on says how
    many before it were ``left_out``."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._invalid = TokenBucket(clock, BURST, PER_S)
        self._left_out = 0

    def emit(self, record: logging.LogRecord) -> None:
        message, more = record.getMessage(), dict[str, int]()
        if message.startswith(OF_STRANGERS):
            if self._invalid.tokens() < 1:
                self._left_out += 1
                return
            self._invalid.spend()
            if self._left_out:
                more, self._left_out = {"left_out": self._left_out}, 0
        structlog.get_logger().log(record.levelno, "gunicorn", message=message, exc_info=record.exc_info, **more)
