"""The page of /metrics: made when asked for with few streams, from a moment ago with many."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from api.metrics_page import EVERY_S, MANY_STREAMS, OLDEST_S, SHARED_S, WANTED_S, MetricsPage
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


def test_a_crowd_gets_the_page_that_is_being_made_and_for_a_moment_so_does_everybody() -> None:
    pages, clock = Pages(), ManualClock()
    pages.streams = 1
    page = MetricsPage(pages, lambda: pages.streams, clock)
    pages.held.clear()
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(page.get)
        eventually(lambda: pages.made == 1, what="the first page begun")
        others = [pool.submit(page.get) for _ in range(19)]
        assert not first.done()
        eventually(lambda: sum(other.running() for other in others) == 19, what="all of them asking")
        pages.held.set()
        given = [asked.result(10) for asked in (first, *others)]
    assert given[0] == b"1"
    assert pages.made <= 3, "one, but for who was about to ask"
    made = pages.made
    assert page.get() == str(made).encode()
    clock.advance(SHARED_S)
    assert page.get() == str(made + 1).encode()
    assert page.get() == str(made + 2).encode(), "who is alone gets a new one"


def test_who_waited_for_a_page_that_could_not_be_made_makes_it() -> None:
    begun, held, made = threading.Event(), threading.Event(), list[int]()

    def make() -> bytes:
        made.append(1)
        if len(made) > 1:
            return b"made"
        begun.set()
        assert held.wait(10)
        raise RuntimeError("a collector failed")

    page = MetricsPage(make, lambda: 1, ManualClock())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(page.get)
        assert begun.wait(10)
        second = pool.submit(page.get)
        held.set()
        with pytest.raises(RuntimeError, match="a collector failed"):
            first.result(10)
        assert second.result(10) == b"made"


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
