"""Audio leaves when a microphone would deliver it, and lateness does not add up."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import cast

import pytest
from websockets.sync.client import ClientConnection

from loadgen.clips import BYTES_PER_SECOND
from loadgen.pacing import Pace
from loadgen.recorder import Recorder
from loadgen.resumption import Resuming, Resumption
from loadgen.sender import Sender
from queueing.clock import ManualClock
from sessions.wire import Start

FRAME_S = 0.1
FRAME = bytes(int(FRAME_S * BYTES_PER_SECOND))
ALL = Resuming(enabled=False, max_held_s=700)
"""Room for all the audio of a test."""


class Wire:
    """A connection that takes some time for each send and notes when it was called."""

    def __init__(self, clock: ManualClock, rng: random.Random, longest_s: float) -> None:
        self.clock = clock
        self.rng = rng
        self.longest_s = longest_s
        self.sent: list[tuple[float, str | bytes]] = []

    def send(self, data: str | bytes) -> None:
        self.sent.append((self.clock.monotonic(), data))
        self.clock.advance(self.rng.uniform(0, self.longest_s))  # a method of an instance


def sender_of(
    frames: int, wire: Wire, pace: Pace, recorder: Recorder, wait: Callable[[float], None], resuming: Resuming = ALL
) -> Sender:
    """A sender with all its audio read and its connection attached; it ends when it has nothing to wait for."""

    def sleep(seconds: float | None) -> None:
        if seconds is None:
            sender.halt()
        else:
            wait(seconds)

    course = Resumption(Start(), ["ws://fake"], resuming, random.Random(1))
    sender = Sender(
        iter([FRAME] * frames), len(FRAME), pace, wire.clock, recorder, course, resuming, keepalive_s=1e9, wait=sleep
    )
    sender.read()
    sender.attach(cast(ClientConnection, wire), 0)
    return sender


def deliver(frames: int, speed: float, rng: random.Random, longest_s: float = 0.09) -> tuple[Wire, Recorder, float]:
    """Run a sender to its end by hand-moved time; every wait overshoots, as real ones do."""
    clock = ManualClock()
    wire = Wire(clock, rng, longest_s)
    pace = Pace(clock, speed)
    recorder = Recorder()
    recorder.begin(pace.start, speed)
    sender = sender_of(frames, wire, pace, recorder, lambda seconds: clock.advance(seconds + rng.expovariate(1_000)))
    sender.run()
    assert sender.error is None
    return wire, recorder, pace.start


def test_ten_minutes_of_audio_take_ten_minutes_whatever_the_delays(rng: random.Random) -> None:
    frames = 6_000
    wire, recorder, start = deliver(frames, 1.0, rng)
    assert len(wire.sent) == frames + 1
    for index, (at, _data) in enumerate(wire.sent[:-1], start=1):
        # A frame is sent once its last sample was recorded; a late one (behind a slow send) is caught up with.
        assert at >= start + index * FRAME_S - 1e-6
        assert at <= start + index * FRAME_S + 0.1
    assert wire.sent[-1][1] == '{"type":"end"}'
    assert recorder.last_sent_at is not None
    assert recorder.last_sent_at - start == pytest.approx(600, abs=0.2)
    assert recorder.max_lag_s < 0.1


def test_a_stall_is_made_up_for_and_seen_in_the_record(rng: random.Random) -> None:
    clock = ManualClock()
    wire = Wire(clock, rng, 0.0)
    pace = Pace(clock)
    recorder = Recorder()
    stalls = iter([0.0, 5.0])

    sender_of(100, wire, pace, recorder, lambda seconds: clock.advance(seconds + next(stalls, 0.0))).run()
    assert recorder.max_lag_s == pytest.approx(5.0, abs=0.01)
    assert wire.sent[-1][0] == pytest.approx(pace.start + 10.0)


def test_twice_the_speed_is_half_the_time(rng: random.Random) -> None:
    wire, _recorder, start = deliver(600, 2.0, rng, longest_s=0.01)
    assert wire.sent[-1][0] - start == pytest.approx(30.0, abs=0.1)


def test_speed_zero_never_waits(rng: random.Random) -> None:
    wire, recorder, start = deliver(600, 0.0, rng, longest_s=0.0)
    assert wire.sent[-1][0] == start
    assert recorder.max_lag_s == 0.0


def test_a_sender_that_is_halted_sends_no_end(rng: random.Random) -> None:
    clock = ManualClock()
    wire = Wire(clock, rng, 0.0)
    recorder = Recorder()
    sender = sender_of(5, wire, Pace(clock), recorder, lambda _seconds: sender.halt())
    sender.run()
    assert wire.sent == []
    sender.stop()
    sender.run()
    assert wire.sent == []
    assert recorder.ended_at is None


def test_behind_a_loss_no_audio_is_faster_than_allowed_and_the_schedule_is_met_again(rng: random.Random) -> None:
    clock = ManualClock()
    wire = Wire(clock, rng, 0.0)
    pace = Pace(clock)
    recorder = Recorder()
    lost = threading.Event()

    def wait(seconds: float) -> None:
        clock.advance(seconds)
        if len(wire.sent) == 100 and not lost.is_set():
            lost.set()
            clock.advance(6.0)
            sender.attach(cast(ClientConnection, wire), 70 * len(FRAME))

    sender = sender_of(600, wire, pace, recorder, wait, Resuming(max_held_s=100))
    sender.run()
    times = [at for at, data in wire.sent if isinstance(data, bytes)]
    # 3 s are sent again and 6 s are late: they take 9 s / (4 - 1) more than the gap at four times the pace.
    behind = [at for at in times[100:] if at < pace.start + 10.1 + 6 + 3 - 1e-6]
    assert min(later - at for at, later in pairwise(times[100:])) == pytest.approx(0.1 / 4)
    assert max(later - at for at, later in pairwise(behind)) == pytest.approx(0.1 / 4)
    assert times[-1] == pytest.approx(pace.start + 60)
    assert (len(times), recorder.audio_s, recorder.again_bytes) == (630, 60.0, 30 * len(FRAME))
    assert recorder.max_lag_s < 0.11, "what is late because of a loss is no fault of the sender's machine"


@pytest.mark.parametrize("speed", [-1.0, float("nan"), float("inf")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        Pace(ManualClock(), speed)
