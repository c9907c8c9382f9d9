"""The page of /metrics: made when asked for with few streams, from a moment ago with many."""

from __future__ import annotations

import threading

from api.metrics_page import EVERY_S, MANY_STREAMS, OLDEST_S, WANTED_S, MetricsPage
from queueing.clock import ManualClock
from tests.support.eventually import eventually


class Pages:
    """Makes numbered pages; ``held`` makes the next one wait."""

    def __init__(self) -> None:
        self.made = 0
        self.streams = MANY_STREAMS + 1
        self.held = threading.Event()
        self.held.set()

    def __call__(self) -> bytes:
        self.made += 1
        assert self.held.wait(10)
        return str(self.made).encode()


def test_with_few_streams_each_page_is_new() -> None:
    pages = Pages()
    pages.streams = MANY_STREAMS
    page = MetricsPage(pages, lambda: pages.streams, ManualClock())
    assert [page.get(), page.get()] == [b"1", b"2"]


def test_with_many_streams_a_page_serves_until_it_is_old() -> None:
    pages, clock = Pages(), ManualClock()
    page = MetricsPage(pages, lambda: pages.streams, clock)
    assert page.get() == b"1"
    pages.held.clear()  # whoever makes one now takes long
    assert page.get() == b"1"
    clock.advance(OLDEST_S)
    assert page.get() == b"1", "nobody waits for the one that is being made"
    pages.held.set()
    clock.advance(0.1)
    assert page.get() != b"1"


def test_while_somebody_asks_pages_are_made_ahead_and_then_no_more() -> None:
    pages, clock = Pages(), ManualClock()
    page = MetricsPage(pages, lambda: pages.streams, clock)
    assert page.get() == b"1"
    eventually(lambda: pages.made >= 2, EVERY_S * 5, "a page that nobody waited for")
    clock.advance(WANTED_S + 0.1)
    eventually(lambda: page._thread is None, EVERY_S * 5, "the end of the thread")


def test_who_asked_while_streams_were_few_does_not_wait_once_they_are_many() -> None:
    pages, clock = Pages(), ManualClock()
    pages.streams = 1
    page = MetricsPage(pages, lambda: pages.streams, clock)
    assert page.get() == b"1"
    pages.streams = MANY_STREAMS + 1
    clock.advance(OLDEST_S + 0.1)
    eventually(lambda: page._page == b"2", EVERY_S * 5, "a page that nobody waited for")
    pages.held.clear()
    assert page.get() == b"2"
    pages.held.set()
