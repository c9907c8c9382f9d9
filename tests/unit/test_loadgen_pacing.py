"""Audio leaves when a microphone would deliver it, and lateness does not add up."""

from __future__ import annotations

import random
from typing import cast

import pytest
from websockets.sync.client import ClientConnection

from loadgen.clips import BYTES_PER_SECOND
from loadgen.pacing import Pace
from loadgen.recorder import Recorder
from loadgen.sender import Sender
from queueing.clock import ManualClock

FRAME_S = 0.1
FRAME = bytes(int(FRAME_S * BYTES_PER_SECOND))


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


def deliver(frames: int, speed: float, rng: random.Random, longest_s: float = 0.09) -> tuple[Wire, Recorder, float]:
    """Run a sender to its end by hand-moved time; every wait overshoots, as real ones do."""
    clock = ManualClock()
    wire = Wire(clock, rng, longest_s)
    pace = Pace(clock, speed)
    recorder = Recorder()
    recorder.begin(pace.start, speed)

    def wait(seconds: float) -> bool:
        clock.advance(seconds + rng.expovariate(1_000))
        return False

    sender = Sender(cast(ClientConnection, wire), iter([FRAME] * frames), pace, clock, recorder, wait)
    sender.run()
    assert sender.error is None
    return wire, recorder, pace.start


def test_an_hour_of_audio_takes_an_hour_whatever_the_delays(rng: random.Random) -> None:
    frames = 36_000
    wire, recorder, start = deliver(frames, 1.0, rng)
    assert len(wire.sent) == frames + 1
    for index, (at, _data) in enumerate(wire.sent[:-1], start=1):
        # A frame is sent once its last sample was recorded; a late one (behind a slow send) is caught up with.
        assert at >= start + index * FRAME_S - 1e-6
        assert at <= start + index * FRAME_S + 0.1
    assert wire.sent[-1][1] == '{"type":"end"}'
    assert recorder.last_sent_at is not None
    assert recorder.last_sent_at - start == pytest.approx(3_600, abs=0.2)
    assert recorder.max_lag_s < 0.1


def test_a_stall_is_made_up_for_and_seen_in_the_record(rng: random.Random) -> None:
    clock = ManualClock()
    wire = Wire(clock, rng, 0.0)
    pace = Pace(clock)
    recorder = Recorder()
    stalls = iter([0.0, 5.0])

    def wait(seconds: float) -> bool:
        clock.advance(seconds + next(stalls, 0.0))
        return False

    Sender(cast(ClientConnection, wire), iter([FRAME] * 100), pace, clock, recorder, wait).run()
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
    sender = Sender(cast(ClientConnection, wire), iter([FRAME] * 5), Pace(clock), clock, recorder, lambda _s: True)
    sender.run()
    assert wire.sent == []
    sender.halt()
    sender.finish()
    assert wire.sent == []
    assert recorder.ended_at is None


@pytest.mark.parametrize("speed", [-1.0, float("nan"), float("inf")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        Pace(ManualClock(), speed)
