"""The real client and the real service: whatever breaks between or behind them, the text is that of a quiet run.

The worker's text is a digest of each stretch of sound between silences. Where in a silence a segment ends does not
count: after a loss the service listens anew from the last segment on, and may then cut elsewhere in a pause.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
import redis

from loadgen.client import Sending, stream
from loadgen.recorder import Recorder
from sessions.wire import Final, Partial, ServerMessage
from tests.support.eventually import eventually
from tests.support.live_api import LiveApi, leftovers
from tests.support.reset_proxy import ResetProxy
from tests.support.scripted_queue_worker import QueueWorker
from tests.support.sound import speech, text_of

SPEED = 3.0
ENDPOINT_MS = 400


def talk(rng: random.Random, parts: int = 5) -> bytes:
    """Some seconds of sound with pauses, so that there are several finals."""
    seed = rng.randrange(1_000)
    return b"".join(speech(rng.uniform(1.5, 3.0), seed + part) + bytes(32_000) for part in range(parts))


def heard(data: bytes) -> str:
    """The digests of what is said between silences of a quarter of a second and more."""
    samples = np.frombuffer(data, "<i2")
    loud = np.flatnonzero(samples)
    parts = np.split(samples[loud], np.flatnonzero(np.diff(loud) > 4_000) + 1)
    return " ".join(text_of(part.tobytes()) for part in parts if part.size)


@dataclass
class Disturbed:
    """One stream in a thread of its own."""

    urls: Sequence[str]
    audio: bytes
    rng: random.Random
    recorder: Recorder = field(default_factory=Recorder)
    heard: list[ServerMessage] = field(default_factory=list)
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            stream(
                self.urls, [self.audio], sending=Sending(SPEED), recorder=self.recorder, rng=self.rng,
                on_message=lambda _at, message: self.heard.append(message),
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001  # raised in the test's thread
            self.error = error

    def await_finals(self, count: int) -> None:
        """Wait until the caller has had so many finals."""
        eventually(
            lambda: self.error is not None or sum(isinstance(each, Final) for each in self.heard) >= count,
            timeout_s=30, what=f"{count} finals",
        )  # fmt: skip
        assert self.error is None, self.error

    def result(self) -> Recorder:
        self.thread.join(60)
        assert not self.thread.is_alive(), "the stream hangs"
        assert self.error is None, self.error
        assert [each for each in self.heard if isinstance(each, Final)] == self.recorder.finals
        numbered = [each.seq for each in self.heard if isinstance(each, Partial | Final)]
        assert numbered == [*range(1, len(numbered) + 1)]
        return self.recorder


def undisturbed(url: str, audio: bytes) -> Recorder:
    recorder = stream(url, [audio], sending=Sending(0))
    assert len(recorder.finals) >= 4, recorder.finals
    return recorder


def same(disturbed: Recorder, calm: Recorder) -> None:
    assert disturbed.complete
    assert not disturbed.faults
    assert disturbed.text == calm.text


@contextmanager
def service(redis_url: str, redis_client: redis.Redis, fronts: int = 1, **settings: object) -> Iterator[list[LiveApi]]:
    """Some front ends on one Redis, and a worker."""
    with ExitStack() as stack:
        worker = stack.enter_context(QueueWorker(redis_client))
        worker.text = heard
        apis = [LiveApi(redis_url, endpoint_ms=ENDPOINT_MS, **settings) for _ in range(fronts)]
        for api in apis:
            stack.enter_context(api)
        eventually(lambda: all(api.ready for api in apis), timeout_s=30, what="the service being ready")
        yield apis
        eventually(lambda: not leftovers(redis_client), timeout_s=20, what="everything being removed")


def test_a_network_that_breaks_every_connection_again_and_again(
    redis_url: str, redis_client: redis.Redis, rng: random.Random
) -> None:
    audio = talk(rng)
    with service(redis_url, redis_client) as (api,), ResetProxy(api.port) as proxy:
        calm = undisturbed(api.stream_url, audio)
        run = Disturbed([proxy.stream_url], audio, rng)
        for finals in (1, 2, 3):
            run.await_finals(finals)
            proxy.reset()
        recorder = run.result()
    same(recorder, calm)
    assert recorder.resumes >= 3


def kill(api: LiveApi) -> None:
    api.kill()


def terminate(api: LiveApi) -> None:
    api.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("end", [kill, terminate])
def test_another_front_end_goes_on_when_one_is_killed_or_restarted(
    end: Callable[[LiveApi], None], redis_url: str, redis_client: redis.Redis, rng: random.Random
) -> None:
    audio = talk(rng)
    with service(redis_url, redis_client, fronts=2) as (first, second):
        calm = undisturbed(second.stream_url, audio)
        run = Disturbed([first.stream_url, second.stream_url], audio, rng)
        run.await_finals(2)
        end(first)
        same(run.result(), calm)
    assert run.recorder.resumes == 1


def test_a_web_process_that_is_killed_is_replaced_by_its_sibling(
    redis_url: str, redis_client: redis.Redis, rng: random.Random
) -> None:
    audio = talk(rng)
    with service(redis_url, redis_client, web_processes=2) as (api,):
        calm = undisturbed(api.stream_url, audio)
        run = Disturbed([api.stream_url], audio, rng)
        run.await_finals(1)
        for process in api.web_processes():
            if any(each.laddr.port == api.port and each.status == "ESTABLISHED" for each in process.net_connections()):
                process.kill()
        same(run.result(), calm)
    assert run.recorder.resumes >= 1
