"""What the load does to one stream: rarer partials, finals that do not crowd out others', and a word about it."""

from __future__ import annotations

import pytest

from queueing.lane import Kind
from sessions.degraded import PAUSE_S, Degraded
from sessions.limits import SessionLimits
from sessions.wire import End, Flush, Start, Status
from tests.support.session_driver import Driver


def statuses(driver: Driver) -> list[Status]:
    return [message for message in driver.sent if isinstance(message, Status)]


def answer_partials(driver: Driver, seconds: float) -> None:
    """Live audio, each partial answered at once."""
    for _ in range(round(seconds * 10)):
        driver.live(0.1)
        for job in driver.asked(Kind.PARTIAL)[driver.session.summary.partials_sent :]:
            driver.deliver(job)


def test_partials_become_rarer_under_load_and_come_back() -> None:
    driver = Driver(SessionLimits(partial_interval_s=1.0))
    driver.text(Start(language="en"))
    counts = []
    for wait_s in (0.0, 2.25, 0.0):
        driver.session.set_load(wait_s, workers=2)
        before = len(driver.asked(Kind.PARTIAL))
        answer_partials(driver, 4.0)
        driver.text(Flush())
        driver.deliver(driver.jobs[-1], event=1)
        counts.append(len(driver.asked(Kind.PARTIAL)) - before)
    assert counts == [4, 1, 4], "a wait of 2.25 s makes the interval 4 s"


def test_the_client_is_told_when_it_begins_when_it_changes_and_when_it_is_over() -> None:
    driver = Driver(SessionLimits(partial_interval_s=1.0))
    driver.text(Start(language="en"))
    answer_partials(driver, 1.0)
    assert statuses(driver) == []
    for wait_s in (1.25, 1.3, 4.25, 0.0, 0.0):
        driver.session.set_load(wait_s, workers=2)
        answer_partials(driver, 1.5)
    assert [status.partial_interval_s for status in statuses(driver)] == [2.5, 7.0, 1.0]


def test_it_says_at_most_one_status_a_second() -> None:
    degraded = Degraded()
    said = [
        degraded.look(tick / 10, lag_s=0.0, interval_s=1.0 + 5 * (tick % 2), stretched=1.0 + 5 * (tick % 2))
        for tick in range(100)
    ]
    assert 0 < sum(status is not None for status in said) <= 10 * PAUSE_S + 1


def test_a_client_that_sends_faster_than_its_finals_are_decoded_is_told_its_lag() -> None:
    driver = Driver()
    driver.text(Start(language="en", partials=False))
    for _ in range(3):
        driver.audio(5.0)
        driver.text(Flush())
        driver.wait(1.1)
    assert [status.lag_s for status in statuses(driver)] == [10.0, 15.0]
    for number, job in enumerate(driver.jobs):
        driver.deliver(job, event=number)
        driver.wait(1.1)
    driver.audio(0.1)
    assert [status.lag_s for status in statuses(driver)] == [10.0, 15.0, 10.0, 0.0]


def test_nobody_is_told_of_silence_or_of_a_long_segment_without_load() -> None:
    driver = Driver()
    driver.text(Start(language="en"))
    answer_partials(driver, 27.0)
    driver.text(Flush())
    driver.deliver(driver.jobs[-1], event=1)
    assert statuses(driver) == []


@pytest.mark.parametrize(("workers", "most"), [(0, 2), (1, 2), (2, 3), (4, 5)])
def test_a_stream_has_no_more_finals_in_the_queue_than_keep_every_worker_busy(workers: int, most: int) -> None:
    driver = Driver()
    driver.session.set_load(0.0, workers=workers)
    driver.text(Start(language="en", partials=False))
    for _ in range(6):
        driver.audio(1.0)
        driver.text(Flush())
    driver.audio(1.0)
    driver.text(End())
    assert len(driver.jobs) == most
    answered = 0
    while answered < len(driver.jobs):
        assert len(driver.jobs) - answered <= most
        driver.deliver(driver.jobs[answered], event=answered)
        answered += 1
    assert answered == 7
    assert [final.start_s for final in driver.finals] == [float(second) for second in range(7)]
    assert driver.finals[-1].last


def test_finals_that_are_held_back_do_not_time_out() -> None:
    driver = Driver(SessionLimits(inference_timeout_s=20, idle_timeout_s=1000))
    driver.session.set_load(0.0, workers=1)
    driver.text(Start(language="en", partials=False))
    for _ in range(4):
        driver.audio(1.0)
        driver.text(Flush())
    for answered in range(4):
        driver.wait(8)
        driver.deliver(driver.jobs[answered], event=answered)
    assert driver.errors == []
    assert len(driver.finals) == 4
