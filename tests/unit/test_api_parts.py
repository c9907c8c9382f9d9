"""The small parts of the web process: mailbox, gate, pulse, collectors, settings."""

from __future__ import annotations

import select
import threading
from collections.abc import Collection
from pathlib import Path

import pytest
import structlog.testing
from prometheus_client import CollectorRegistry, generate_latest
from werkzeug.datastructures import Headers

from api.admission import handshake_problem, upgrade_required
from api.collectors import LaneView, ProcessCollector, QueueCollector, QueueReader, QueueView
from api.heads import HEAD_BYTES, HEAD_S
from api.mailbox import Drain, Mail, Mailbox, Reconnected
from api.messages import MAX_FRAGMENTS
from api.pulse import PATIENCE_S, REFRESH_EVERY, STALE_S, Pulse, PulseSources, WorkerView
from api.service import session_limits
from api.settings import MAX_TEXT_BYTES, ApiSettings
from api.socket import FRAME_BURST, FRAMES_PER_S, PING_BURST, PINGS_PER_S
from api.wsgi import new_session_id
from queueing.clock import ManualClock
from queueing.errors import QueueUnavailable, SettingsError
from sessions.keys import check_session_id, final_job_id
from tests.support.eventually import eventually
from tests.support.frames import KEY


def readable(mailbox: Mailbox) -> bool:
    return bool(select.select([mailbox], [], [], 0)[0])


def test_mail_is_taken_in_order_and_announced_by_the_descriptor() -> None:
    mailbox = Mailbox()
    assert not readable(mailbox)
    mailbox.put(Reconnected())
    mailbox.put(Drain(1.0, 1.0))
    assert readable(mailbox)
    assert mailbox.take() == ([Reconnected(), Drain(1.0, 1.0)], False)
    assert not readable(mailbox)
    assert mailbox.take() == ([], False)
    mailbox.close()


def test_a_full_mailbox_drops_and_says_so_once() -> None:
    mailbox = Mailbox(capacity=2)
    for number in range(3):
        mailbox.put(Drain(float(number), 0.0))
    assert mailbox.take() == ([Drain(0.0, 0.0), Drain(1.0, 0.0)], True)
    mailbox.put(Reconnected())
    assert mailbox.take() == ([Reconnected()], False)
    mailbox.close()


def test_mail_to_a_closed_mailbox_touches_no_descriptor() -> None:
    mailbox = Mailbox()
    mailbox.close()
    mailbox.put(Reconnected())
    mailbox.close()


def test_no_mail_is_lost_between_many_writers_and_one_reader() -> None:
    mailbox = Mailbox(capacity=10_000)

    def fill(base: float) -> None:
        for number in range(500):
            mailbox.put(Drain(base + number, base + number))

    writers = [threading.Thread(target=fill, args=(1_000.0 * n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    taken: list[Mail] = []
    while len(taken) < 2_000:
        assert select.select([mailbox], [], [], 10)[0], "the reader was not woken"
        taken += mailbox.take()[0]
    for writer in writers:
        writer.join()
    assert {item.deadline_s for item in taken if isinstance(item, Drain)} == {
        1_000.0 * n + i for n in range(4) for i in range(500)
    }
    mailbox.close()


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY}, None),
        ("HEAD", {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY}, 405),
        ("GET", {"Sec-WebSocket-Version": "8", "Sec-WebSocket-Key": KEY}, 426),
        ("GET", {"Sec-WebSocket-Key": KEY}, 426),
        ("GET", {"Sec-WebSocket-Version": "13"}, 400),
        ("GET", {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "short"}, 400),
        ("GET", {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY, "Content-Length": "5"}, 400),
        ("GET", {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY, "Content-Length": "0"}, None),
        ("GET", {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY, "Transfer-Encoding": "chunked"}, 400),
        ("GET", {"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": KEY + "?"}, 400),
    ],
)
def test_handshakes(method: str, headers: dict[str, str], status: int | None) -> None:
    problem = handshake_problem(method, Headers(headers))
    assert (problem.status if problem else None) == status


def test_a_refusal_says_when_to_come_back_only_when_that_helps() -> None:
    response = upgrade_required().response()
    assert response.status_code == 426
    assert "Retry-After" not in response.headers
    assert response.get_json()["code"] == "upgrade_required"


class World:
    """What a pulse finds, as a test sets it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.workers: list[WorkerView] = []
        self.fault: Exception | None = None
        self.takes_s = 0.0
        self.refreshed: list[list[str]] = []
        self.told: list[bool] = []
        self.reports = self.caught_up = 0
        sources = PulseSources(
            workers=lambda: self.workers,
            policy=lambda: "priority",
            redis_time_ms=self._time,
            refresh_slots=self._refresh,
            live_sessions=lambda: ["a", "b"],
            catch_up=self._catch_up,
            report=self._report,
        )
        self.pulse = Pulse(sources, self.clock, self.told.append)

    def _time(self) -> int:
        self.clock.advance(self.takes_s)
        if self.fault is not None:
            raise self.fault
        return self.clock.wall_ms() + 300_000

    def _refresh(self, sessions: Collection[str]) -> None:
        self.refreshed.append(list(sessions))

    def _catch_up(self) -> None:
        self.caught_up += 1

    def _report(self) -> None:
        self.reports += 1


READY = WorkerView("w1", "ready", "tiny.en", ready=True)


def test_a_slow_answer_is_an_answer() -> None:
    world = World()
    world.takes_s = 2 * STALE_S
    world.pulse.beat()
    assert world.pulse.redis_error == ""


def test_streams_are_told_once_when_the_last_worker_goes_and_the_first_comes() -> None:
    world = World()
    assert world.pulse.redis_error
    for workers in ([], [READY], [READY], [], []):
        world.workers = workers
        world.pulse.beat()
    assert world.told == [False, True, False]


def test_workers_are_said_to_be_gone_only_when_there_were_some() -> None:
    world = World()
    with structlog.testing.capture_logs() as logs:
        for workers in ([], [READY], []):
            world.workers = workers
            world.pulse.beat()
    assert [line["event"] for line in logs] == ["no_workers_yet", "workers_alive", "workers_gone"]
    assert logs[0]["log_level"] == "debug"


def test_a_redis_that_is_away_is_not_taken_for_workers_that_are_gone() -> None:
    world = World()
    world.workers = [READY]
    world.pulse.beat()
    world.fault = QueueUnavailable("connection refused")
    world.pulse.beat()
    assert world.told == [True]
    assert "connection refused" in world.pulse.redis_error
    world.fault = None
    world.pulse.beat()
    assert world.pulse.redis_error == ""
    assert (world.reports, world.caught_up) == (3, 2)


def test_a_pulse_that_hangs_counts_as_a_redis_that_does_not_answer() -> None:
    world = World()
    world.pulse.beat()
    assert not world.pulse.redis_error
    world.clock.advance(STALE_S + 0.1)
    assert "has not answered" in world.pulse.redis_error


def test_while_redis_hangs_the_time_is_not_counted_from_the_last_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.pulse.PATIENCE_S", 0.0)
    world = World()
    world.fault = QueueUnavailable("timeout")
    world.pulse.beat()
    world.clock.advance(STALE_S + 0.1)  # the next question hangs too
    assert world.pulse.redis_error == "timeout"


def test_a_process_that_stood_still_itself_asks_redis_again_before_it_refuses() -> None:
    """The thread's own beat may lie seconds back although Redis answers at once."""
    world = World()
    world.pulse.start()
    try:
        eventually(lambda: world.reports, what="the first beat")
        world.clock.advance(STALE_S + 10)
        assert world.pulse.redis_error == ""
    finally:
        world.pulse.close()
    assert world.reports >= 2


def test_a_stale_answer_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.pulse.beat()
    world.clock.advance(STALE_S + 0.1)
    asked: list[float | None] = []
    monkeypatch.setattr(threading.Condition, "wait_for", lambda self, predicate, timeout: asked.append(timeout))
    for _ in range(3):
        assert "has not answered" in world.pulse.redis_error
        world.clock.advance(PATIENCE_S)
    assert asked == [pytest.approx(PATIENCE_S), 0.0, 0.0]


def test_slots_are_renewed_now_and_then_and_at_once_after_an_outage() -> None:
    world = World()
    for _ in range(REFRESH_EVERY):
        world.pulse.beat()
    assert world.refreshed == [["a", "b"]]
    world.pulse.beat()
    world.fault = QueueUnavailable("away")
    world.pulse.beat()
    world.fault = None
    world.pulse.beat()
    assert len(world.refreshed) == 3


def test_redis_time_is_estimated_from_the_clocks_difference() -> None:
    world = World()
    world.pulse.beat()
    assert world.pulse.redis_now_ms() == world.clock.wall_ms() + 300_000


VIEW = QueueView(
    policy="hrrn",
    lanes=(LaneView("final", 4, depth=2, oldest_age_s=1.5), LaneView("partial", 3, depth=1, oldest_age_s=0.25)),
    leased=3,
    dead=1,
    streams=7,
    outcomes={("final", "done"): 10, ("partial", "stale"): 4},
    costs_ms={("final", 4): 194.0},
    predicted_wait_s=0.75,
)


def test_queue_gauges_come_from_one_read_a_second() -> None:
    clock = ManualClock()
    reads = 0

    def read() -> QueueView:
        nonlocal reads
        reads += 1
        return VIEW

    registry = CollectorRegistry()
    registry.register(QueueCollector(QueueReader(read, clock), workers_ready=lambda: 2, redis_error=lambda: ""))
    reads = 0
    clock.advance(2)
    for _ in range(3):
        text = generate_latest(registry).decode()
    assert reads == 1
    assert "hearline_predicted_wait_seconds 0.75" in text
    for line in (
        'hearline_lane_depth{kind="final",window_s="4"} 2.0',
        'hearline_lane_oldest_age_seconds{kind="partial",window_s="3"} 0.25',
        "hearline_queue_depth 3.0",
        "hearline_queue_oldest_age_seconds 1.5",
        'hearline_jobs_total{kind="partial",outcome="stale"} 4.0',
        "hearline_workers_ready 2.0",
        'hearline_policy{policy="hrrn"} 1.0',
        "hearline_redis_up 1.0",
    ):
        assert line in text.splitlines()


def test_a_scrape_answers_without_redis() -> None:
    def read() -> QueueView:
        raise QueueUnavailable("away")

    registry = CollectorRegistry()
    registry.register(QueueCollector(QueueReader(read, ManualClock()), lambda: 0, redis_error=lambda: ""))
    assert "hearline_redis_up 0.0" in generate_latest(registry).decode()


def test_a_scrape_does_not_wait_for_a_redis_that_hangs() -> None:
    begun, answer = threading.Semaphore(0), threading.Event()

    def read() -> QueueView:
        begun.release()
        assert answer.wait(20)
        return VIEW

    reader = QueueReader(read, ManualClock(), answer_s=0.01)
    registry = CollectorRegistry()
    registry.register(QueueCollector(reader, lambda: 2, redis_error=lambda: ""))
    try:
        for _ in range(3):  # and all of them leave one thread waiting
            assert "hearline_redis_up 0.0" in generate_latest(registry).decode()
        assert begun.acquire(timeout=5)
        assert not begun.acquire(blocking=False)
    finally:
        answer.set()
    eventually(lambda: reader.view() == VIEW, what="the view of a Redis that answers again")


def test_process_metrics_survive_a_process_that_is_gone() -> None:
    registry = CollectorRegistry()
    registry.register(ProcessCollector(2**22 + 1))
    assert "hearline_web_processes 0.0" in generate_latest(registry).decode()


def test_settings_name_every_wrong_value() -> None:
    with pytest.raises(SettingsError) as caught:
        ApiSettings.from_env({"HEARLINE_PORT": "0", "HEARLINE_MAX_AUDIO_S": "1e9", "HEARLINE_SEND_TIMEOUT_S": "x"})
    assert {problem.name for problem in caught.value.problems} == {
        "HEARLINE_PORT",
        "HEARLINE_MAX_AUDIO_S",
        "HEARLINE_SEND_TIMEOUT_S",
    }


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingsError, match="HEARLINE_MIN_PARTIAL_AUDIO_S"):
        ApiSettings.from_env({"HEARLINE_MIN_PARTIAL_AUDIO_S": "20", "HEARLINE_MAX_AUDIO_S": "10"})


def test_settings_reach_the_session() -> None:
    limits = session_limits(ApiSettings.from_env({"HEARLINE_IDLE_TIMEOUT_S": "7", "HEARLINE_EVENT_TIMING": "false"}))
    assert (limits.idle_timeout_s, limits.event_timing) == (7.0, False)


def test_the_protocol_page_has_the_limits_of_the_connection() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    for limits in (
        f"{FRAME_BURST:,} at once, then {FRAMES_PER_S:.0f} a second",
        f"{PING_BURST} at once, then {PINGS_PER_S:.0f} a second",
        f"| fragments of one message | {MAX_FRAGMENTS:,} |",
        f"one of more than {MAX_TEXT_BYTES:,} bytes is `frame_too_big`",
        f"a head of more than {HEAD_BYTES:,} bytes",
        f"whole {HEAD_S:.0f} s after its first byte",
        "one that says nothing for 10 s (`HEARLINE_HTTP_TIMEOUT_S`)",
    ):
        assert limits in page
    assert ApiSettings.model_fields["http_timeout_s"].default == 10


def test_ids_of_sessions_and_their_jobs_can_be_typed_into_a_command_line() -> None:
    ids = [new_session_id() for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    for session in ids:
        check_session_id(session)
        assert final_job_id(session, 0)[0].isalnum(), "a leading hyphen would be an option to `hearline queue`"
