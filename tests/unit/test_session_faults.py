"""Time, losses and ends that the client did not ask for: none of them is silence."""

from __future__ import annotations

import pytest

from queueing.lane import Kind
from sessions.effects import CancelSession, Effect, ReadEvents
from sessions.limits import SessionLimits
from sessions.wire import Done, End, Error, Flush, Keepalive, Start
from tests.support.session_driver import Driver, delivery

LIMITS = SessionLimits(idle_timeout_s=20, inference_timeout_s=12, repair_after_s=2)


def ended(seconds: float = 1.0) -> Driver:
    """A stream that said ``end`` after this much audio and waits for its final."""
    driver = Driver(LIMITS)
    driver.text(Start(partials=False, language="en"))
    driver.live(seconds)
    driver.text(End())
    return driver


def test_a_final_lost_by_pubsub_is_read_from_the_durable_events() -> None:
    driver = ended()
    driver.events = lambda after: [delivery(driver.jobs[0], "found", event=5)]
    driver.wait(1.9)
    assert driver.reads == []
    driver.wait(0.1)
    assert driver.reads == [None]
    assert [final.text for final in driver.finals] == ["found"]
    assert driver.closed == (1000, "done")
    assert driver.session.summary.gap_repairs == 1


def test_the_events_are_read_again_and_again_until_the_time_is_up() -> None:
    driver = ended()
    driver.wait(11.9)
    assert driver.reads == [None] * 5
    assert driver.closed is None
    driver.wait(0.1)
    assert driver.errors == ["inference_timeout"]
    assert "12 s" in driver.last_error.message
    assert driver.last_error.retry_after_s == LIMITS.retry_after_s
    assert driver.closed == (1011, "inference_timeout")


def test_a_short_inference_timeout_still_leaves_room_to_look() -> None:
    driver = Driver(SessionLimits(inference_timeout_s=1, repair_after_s=2))
    driver.live(0.6)
    driver.text(End())
    driver.wait(0.99)
    assert len(driver.reads) == 3


def test_reading_starts_behind_what_was_read_never_behind_what_was_heard() -> None:
    driver = Driver(LIMITS)
    driver.text(Start(partials=False, language="en"))
    for _ in range(3):
        driver.live(0.5)
        driver.text(Flush())
    one, two, three = driver.jobs
    driver.deliver(two, "two", event=2)
    assert driver.reads == [None], "a gap is looked after at once; event 2 was heard, not read"
    driver.run(driver.session.on_events(driver.now, [delivery(one, "one", event=1), delivery(two, "two", event=2)]))
    assert [final.text for final in driver.finals] == ["one", "two"]
    driver.wait(2)
    assert driver.reads == [None, "2-0"]
    driver.run(driver.session.on_events(driver.now, [delivery(three, "three", event=3)]))
    assert [final.text for final in driver.finals] == ["one", "two", "three"]
    driver.wait(18)
    assert driver.reads == [None, "2-0"], "nothing is due: nothing is read"


def test_a_reconnect_reads_the_events_and_asks_again_for_what_is_due() -> None:
    driver = Driver(LIMITS)
    driver.text(Start(partials=False, language="en"))
    driver.live(1.0)
    assert driver.session.on_reconnected(driver.now) == [], "nothing is due"
    driver.text(Flush())
    driver.live(1.0)
    driver.text(Flush())
    one, two = driver.jobs
    driver.events = lambda after: [delivery(one, "one", event=1)]
    driver.run(driver.session.on_reconnected(driver.now))
    assert driver.reads == [None]
    assert [final.text for final in driver.finals] == ["one"]
    assert driver.jobs == [one, two, two], "a Redis that forgot the job learns of it again, under the same id"


def test_a_reconnect_whose_reading_fails_is_made_up_for() -> None:
    driver = ended()
    driver.run(driver.session.on_reconnected(driver.now))
    assert len(driver.jobs) == 1, "nothing was read yet"
    driver.events = lambda after: []
    driver.wait(2)
    assert len(driver.jobs) == 2


def test_idle_first_finishes_what_was_said() -> None:
    driver = Driver(LIMITS)
    driver.text(Start(partials=False, language="en"))
    driver.live(1.0)
    driver.wait(19.9)
    assert driver.jobs == []
    driver.wait(0.1)
    assert driver.errors == []
    driver.deliver(driver.jobs[0], "said", event=1)
    assert [(final.text, final.last) for final in driver.finals] == [("said", True)]
    assert driver.errors == ["idle_timeout"]
    assert "20 s" in driver.last_error.message
    assert driver.closed == (1008, "idle_timeout")
    assert driver.of(Done) == []


def test_idle_with_nothing_said_ends_at_once() -> None:
    driver = Driver(LIMITS)
    driver.wait(20)
    assert driver.errors == ["idle_timeout"]
    assert driver.finals == []
    assert driver.closed == (1008, "idle_timeout")


def test_any_message_defers_the_idle_timeout() -> None:
    driver = Driver(LIMITS)
    driver.wait(19)
    driver.text(Keepalive())
    driver.wait(19)
    driver.text("nonsense")
    driver.wait(19)
    driver.audio(b"\x01\x00")
    driver.wait(19)
    assert driver.closed is None
    driver.wait(1)
    assert driver.closed == (1008, "idle_timeout")


def test_who_waits_for_the_last_final_is_not_idle() -> None:
    driver = Driver(SessionLimits(idle_timeout_s=5, inference_timeout_s=60))
    driver.live(1.0)
    driver.text(End())
    driver.wait(50)
    assert driver.closed is None


@pytest.mark.parametrize(("lost", "code"), [(True, "state_lost"), (False, "unavailable")])
def test_a_lost_buffer_and_an_absent_redis_are_explicit_errors(lost: bool, code: str) -> None:
    driver = Driver(LIMITS)
    driver.live(1.0)
    driver.run(driver.session.on_append_failed(driver.now, lost=lost, detail="Redis holds 0 bytes"))
    assert driver.errors == [code]
    assert driver.last_error.retry_after_s is not None
    assert driver.closed == (1011, code)
    assert driver.cancelled == 1


def test_a_final_that_cannot_be_queued_is_an_explicit_error() -> None:
    driver = ended()
    driver.run(driver.session.on_enqueue_failed(driver.now, driver.jobs[0], "Redis does not answer"))
    assert driver.errors == ["unavailable"]
    assert driver.closed == (1011, "unavailable")


def test_a_waiting_client_is_told_once_per_outage_that_no_worker_lives() -> None:
    driver = ended()
    for alive in (True, False, False, True, False):
        driver.run(driver.session.on_workers(driver.now, alive=alive))
    assert driver.errors == ["no_worker", "no_worker"]
    assert not driver.last_error.fatal
    driver.deliver(driver.jobs[0], event=1)
    assert driver.closed == (1000, "done")


def test_a_client_that_waits_for_nothing_is_not_told_until_it_does() -> None:
    driver = Driver(LIMITS)
    driver.text(Start())
    driver.run(driver.session.on_workers(driver.now, alive=False))
    assert driver.errors == []
    driver.live(0.4)
    driver.text(Flush())
    assert driver.errors == ["no_worker"]


def test_an_empty_stream_is_not_told_of_missing_workers() -> None:
    driver = Driver(LIMITS)
    driver.run(driver.session.on_workers(driver.now, alive=False))
    driver.text(End())
    assert driver.errors == []
    assert driver.closed == (1000, "done")


def test_a_drain_finishes_what_was_said_and_sends_the_client_elsewhere() -> None:
    driver = Driver(LIMITS)
    driver.live(1.0)
    driver.run(driver.session.on_drain(driver.now, driver.now + 5))
    driver.live(0.5)
    assert driver.errors == [], "audio that crossed the notice on its way is no fault"
    job = driver.asked(Kind.FINAL)[0]
    driver.deliver(job, "said", event=1)
    assert [(final.text, final.last) for final in driver.finals] == [("said", True)]
    assert driver.errors == ["shutting_down"]
    assert driver.last_error.retry_after_s is not None
    assert driver.closed == (1012, "shutting_down")


def test_a_drain_ends_quiet_streams_at_once() -> None:
    for prepare in (lambda driver: None, lambda driver: driver.text(Start())):
        driver = Driver(LIMITS)
        prepare(driver)
        driver.run(driver.session.on_drain(driver.now, driver.now + 5))
        assert driver.closed == (1012, "shutting_down")
        assert driver.finals == []


def test_a_stream_that_ended_itself_finishes_as_usual_during_a_drain() -> None:
    driver = ended()
    driver.run(driver.session.on_drain(driver.now, driver.now + 5))
    driver.wait(4)
    driver.deliver(driver.jobs[0], event=1)
    assert driver.closed == (1000, "done")


def test_a_drain_that_takes_too_long_is_an_explicit_error() -> None:
    driver = ended()
    driver.run(driver.session.on_drain(driver.now, driver.now + 5))
    driver.wait(5)
    assert driver.errors == ["shutting_down"]
    assert driver.closed == (1012, "shutting_down")


def test_a_fault_of_the_server_is_told() -> None:
    driver = ended()
    driver.run(driver.session.on_fault(driver.now, "a fault"))
    assert driver.errors == ["internal"]
    assert driver.closed == (1011, "internal")


def test_a_disconnect_cancels_once_and_says_nothing_more() -> None:
    driver = Driver(LIMITS)
    driver.live(1.0)
    driver.text(Flush())
    sent = len(driver.sent)
    effects: list[Effect] = driver.session.on_disconnect(driver.now)
    assert effects == [CancelSession()]
    assert driver.session.on_disconnect(driver.now) == []
    assert driver.deliver(driver.jobs[-1], event=1) == []
    driver.wait(100)
    assert len(driver.sent) == sent
    assert driver.session.closed
    assert (driver.session.summary.outcome, driver.session.summary.close_code) == ("disconnected", None)


def test_a_client_that_does_not_read_has_its_own_outcome() -> None:
    driver = Driver(LIMITS)
    assert driver.session.on_disconnect(driver.now, "slow_client") == [CancelSession()]
    assert driver.session.summary.outcome == "slow_client"


def test_a_delivery_between_disconnect_and_cancel_is_ignored_in_events_too() -> None:
    driver = ended()
    driver.session.on_disconnect(driver.now)
    assert driver.session.on_events(driver.now, [delivery(driver.jobs[0], event=1)]) == []


def test_timers_run_only_for_what_is_due() -> None:
    driver = Driver(SessionLimits(handshake_timeout_s=10, idle_timeout_s=30, inference_timeout_s=50, repair_after_s=2))
    start = driver.now
    assert driver.session.next_tick() == start + 10
    driver.text(Start())
    assert driver.session.next_tick() == start + 30
    driver.live(1.0)
    driver.text(Flush())
    assert driver.session.next_tick() == driver.now + 2
    assert driver.session.on_tick(driver.now) == []
    assert driver.run(driver.session.on_tick(driver.now + 2)) == [ReadEvents(None)]
    driver.deliver(driver.asked(Kind.FINAL)[0], event=1)
    assert driver.session.next_tick() == driver.now + 30
    assert driver.of(Error) == []


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ('{"type":"start","sample_rate":8000}', ["error"]),
        ('{"type":"start","endpoint_ms":1}', ["error"]),
        ("no JSON", ["error"]),
        (b'{"type":"end"}', ["error"]),
        (b"OggS" + bytes(200), ["ready", "error"]),
        (b"fLaC" + bytes(200), ["ready", "error"]),
    ],
)
def test_a_wrong_control_message_is_told_without_ready_and_wrong_audio_after_it(
    first: str | bytes, told: list[str]
) -> None:
    driver = Driver()
    if isinstance(first, str):
        driver.text(first)
    else:
        driver.audio(first)
    assert [message.type for message in driver.sent] == told
