"""A crowd that asks for plain answers: few are made at the same time, and nobody else waits for them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from api.answering import AT_ONCE, Answering
from tests.support.eventually import eventually


class Application:
    """Its answers to ``/slow`` wait for ``held``."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], _start_response: object) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/slow":
            return [b"aside"]
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.held.wait(10)
        with self._lock:
            self.now -= 1
        return [b"answer"]


def test_few_answers_are_made_at_once_and_all_in_the_end() -> None:
    application = Application()
    answering = Answering(application, aside=("/v1/stream",))

    def ask(path: str) -> Iterable[bytes]:
        return answering({"PATH_INFO": path}, None)

    with ThreadPoolExecutor(20) as pool:
        crowd = [pool.submit(ask, "/slow") for _ in range(19)]
        eventually(lambda: application.now == AT_ONCE, what="as many answers as are made at once")
        assert pool.submit(ask, "/v1/stream").result(10) == [b"aside"]
        application.held.set()
        assert [asked.result(10) for asked in crowd] == [[b"answer"]] * 19
    assert application.most == AT_ONCE


def test_a_fault_gives_its_turn_back() -> None:
    def fail(_environ: dict[str, Any], _start_response: object) -> Iterable[bytes]:
        raise RuntimeError("a fault")

    answering = Answering(fail, aside=())
    for _ in range(AT_ONCE + 1):
        with pytest.raises(RuntimeError, match="a fault"):
            answering({"PATH_INFO": "/"}, None)
