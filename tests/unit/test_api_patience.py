"""Calls of Redis that are made again while it is away."""

from __future__ import annotations

import threading

import pytest
from prometheus_client import CollectorRegistry

from api.metrics import StreamMetrics
from api.patience import Attempts
from queueing.clock import ManualClock
from queueing.errors import QueueUnavailable


def test_a_process_that_ends_tries_once_more_and_not_all_the_time() -> None:
    stopping, tried = threading.Event(), 0
    attempts = Attempts(ManualClock(), StreamMetrics(CollectorRegistry()), stopping.wait)

    def fail() -> None:
        nonlocal tried
        tried += 1
        stopping.set()
        if tried > 2:
            pytest.fail("tried without a pause")
        raise QueueUnavailable("away")

    with pytest.raises(QueueUnavailable):
        attempts.patiently("append", fail)
    assert tried == 2
