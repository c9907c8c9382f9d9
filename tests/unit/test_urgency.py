"""Stream threads go last, and are as they were afterwards."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from api.urgency import unhurried

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has SCHED_BATCH")


def test_only_this_thread_and_only_meanwhile() -> None:
    before = os.sched_getscheduler(0)
    assert before == os.SCHED_OTHER
    others: list[int] = []
    with unhurried():
        assert os.sched_getscheduler(0) == os.SCHED_BATCH
        other = threading.Thread(target=lambda: others.append(os.sched_getscheduler(0)))
        other.start()  # begun by this thread, it inherits
        other.join()
        with unhurried():
            pass
        assert os.sched_getscheduler(0) == os.SCHED_BATCH, "the outer one ends it"
    assert others == [os.SCHED_BATCH]
    assert os.sched_getscheduler(0) == before


def test_a_fault_inside_passes() -> None:
    with pytest.raises(LookupError), unhurried():
        raise LookupError
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_where_it_is_forbidden_nothing_is_different(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbidden)
    with unhurried():
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
