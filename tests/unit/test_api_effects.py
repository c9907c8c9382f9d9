"""Effects meet a Redis and a client that fail; cleanup waits for a better time; metrics files are tidied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from api.cleaner import Cleaner
from api.effects import EffectRunner, Ports
from api.metrics import StreamMetrics
from api.patience import PATIENCE_S
from api.pulse import Pulse
from api.socket import StreamSocket
from api.socket_types import EndCause, SocketEnded
from api.wsgi import clean_metrics, forget_process
from queueing.clock import ManualClock
from queueing.errors import QueueUnavailable
from queueing.job import Delivery, Enqueued, EnqueueStatus, NewJob
from queueing.job_queue import JobQueue
from queueing.lane import Kind
from sessions.admission import StreamSlots
from sessions.audio_buffer import AudioBuffer
from sessions.codes import CloseCode
from sessions.effects import (
    AppendAudio,
    CancelJobs,
    CancelPartial,
    CancelSession,
    Close,
    Effect,
    Enqueue,
    OpenBuffer,
    Park,
    ReadEvents,
    Remember,
    Send,
    TakeUp,
    TrimAudio,
)
from sessions.errors import AudioLost, ResumeRefused, TakenOver
from sessions.parking import Parking
from sessions.session import Session
from sessions.summary import StreamSummary
from sessions.wire import Done, Error, Resume


def job(kind: Kind = Kind.FINAL) -> NewJob:
    return NewJob("s:f:0", "s", kind, segment=0, start_byte=0, end_byte=64, audio_s=0.002, front="f")


def append(offset: int, data: bytes) -> AppendAudio:
    return AppendAudio(offset, data, follows=offset, keep_from=0)


class Described:
    """The buffer of a stage: the session is there, or it is ``gone``."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stage, name)

    def epoch(self, _session: str) -> int:
        return 0 if self._stage.gone else self._stage.epoch


class Stage:
    """Fakes of everything around a runner. ``calls`` is what happened, in order; ``faults`` is what fails."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.faults: dict[str, list[Exception]] = {}
        self.replies: dict[str, list[Effect]] = {}
        self.clock, self.summary = ManualClock(), StreamSummary("s")
        self.id, self.epoch, self.gone = "s", 7, False
        self.redis_error, self.policy = "", "priority"
        self.metrics = StreamMetrics(CollectorRegistry())
        stage = cast(Any, self)
        self.cleaner = Cleaner(
            cast(JobQueue, stage),
            cast(AudioBuffer, Described(stage)),
            cast(StreamSlots, stage),
            cast(Parking, stage),
            self.metrics,
            lambda: self.redis_error,
            self.clock,
        )
        ports = Ports(
            queue=cast(JobQueue, stage),
            buffer=cast(AudioBuffer, stage),
            clock=self.clock,
            metrics=self.metrics,
            pulse=cast(Pulse, stage),
            cleaner=self.cleaner,
            pause=self.clock.advance,
        )
        self.runner = EffectRunner(cast(Session, stage), cast(StreamSocket, stage), ports, self.take_up)

    def _do(self, name: str) -> None:
        self.calls.append(name)
        if faults := self.faults.get(name):
            raise faults.pop(0) if len(faults) > 1 else faults[0]

    # The queue, the buffer, the slots.
    def enqueue(self, _job: NewJob) -> Enqueued:
        self._do("enqueue")
        return Enqueued(EnqueueStatus.QUEUED)

    def events(self, _session: str, *, after: str | None) -> tuple[Delivery, ...]:
        self._do(f"events after {after}")
        return ()

    def cancel_partial(self, _session: str) -> bool:
        self._do("cancel_partial")
        return True

    def cancel_session(self, _session: str, *, keep_events: bool = False) -> int:
        self._do("cancel_session" + " but its events" * keep_events)
        return 0

    def create(self, _session: str, _meta: Mapping[str, str], *, epoch: int) -> None:
        assert epoch == self.epoch
        self._do("create")

    def append(
        self,
        _session: str,
        offset: int,
        _data: bytes,
        *,
        follows: int,
        keep_from: int,
        epoch: int,
        fields: Mapping[str, str],
    ) -> int:
        assert epoch == self.epoch
        assert not fields
        self._do(f"append {offset}" + (f" after {follows}, needed from {keep_from}" if follows != offset else ""))
        return 0

    def trim(self, _session: str, before: int, *, epoch: int) -> int:
        assert epoch == self.epoch
        self._do(f"trim {before}")
        return 0

    def remember(
        self, _session: str, fields: Mapping[str, str], gone: tuple[str, ...] = (), *, before: int = 0, epoch: int
    ) -> int:
        assert epoch == self.epoch
        self._do(f"remember {dict(fields)} not {[*gone]} from {before}")
        return 0

    def delete(self, _session: str, *, epoch: int) -> None:
        assert epoch == self.epoch
        self._do("delete")

    def forget(self, _session: str) -> None:
        self._do("forget")

    def park(self, _session: str, *, keep_slot: bool) -> None:
        self._do(f"park {keep_slot}")

    def due(self, _most: int) -> list[str]:
        return []

    def take_up(self, _message: Resume) -> Session:
        self._do("take_up")
        return cast(Session, self)

    def release(self, _session: str) -> None:
        self._do("release")

    # The socket.
    def send(self, text: str) -> None:
        self._do(f"send {text[9:13]}")

    def on_stored(self, _now: float, position: int) -> list[Effect]:
        self.stored = position
        return []

    # The session: notes what it is told, answers with ``replies``.
    def __getattr__(self, name: str) -> Callable[..., list[Effect]]:
        if not name.startswith("on_"):
            raise AttributeError(name)

        def told(_now: float, *arguments: object, **named: object) -> list[Effect]:
            shown = [str(a) for a in arguments if isinstance(a, str)] + [f"{k}={v}" for k, v in named.items()]
            self.calls.append(" ".join([name, *shown]))
            return self.replies.get(name, [])

        return told

    def run(self, *effects: Effect) -> list[str]:
        self.calls.clear()
        self.runner.run(cast(Sequence[Effect], effects))
        return self.calls


AWAY = QueueUnavailable("away")
FATAL = Error(code="state_lost", message="", fatal=True)


def test_effects_run_in_order_and_answers_after_the_list() -> None:
    stage = Stage()
    stage.replies["on_enqueued"] = [Send(Done(audio_s=0, finals=0))]
    done = stage.run(OpenBuffer({}), append(0, b"ab"), Enqueue(job()), CancelPartial(), ReadEvents("1-0"))
    assert done == [
        "create", "append 0", "enqueue", "on_enqueued", "cancel_partial", "events after 1-0", "on_events", "send done",
    ]  # fmt: skip


def test_lost_audio_is_told_once_and_nothing_is_queued_on_it() -> None:
    stage = Stage()
    stage.faults["append 0"] = [AudioLost("s", 0, 2)]
    stage.replies["on_append_failed"] = [Send(FATAL), Close(CloseCode.INTERNAL, "state_lost"), CancelSession()]
    done = stage.run(append(0, b"ab"), append(2, b"cd"), Enqueue(job()), CancelPartial())
    assert done[0] == "append 0"
    assert done[1].startswith("on_append_failed lost=True")
    assert done[2:] == ["cancel_partial", "send erro", "delete", "cancel_session", "forget"]
    assert stage.runner.close == (CloseCode.INTERNAL, "state_lost")


@pytest.mark.parametrize("write", [OpenBuffer({}), append(0, b"ab"), Remember({"a": "b"}), Enqueue(job())])
def test_nothing_is_built_on_a_write_that_was_given_up(write: Effect) -> None:
    stage = Stage()
    told: list[Effect] = [Send(FATAL), Close(CloseCode.INTERNAL, "unavailable")]
    stage.replies = dict.fromkeys(("on_append_failed", "on_remember_failed", "on_enqueue_failed"), told)
    name = stage.run(write)[0]
    stage.faults[name] = [AWAY]
    done = stage.run(
        write, append(2, b"cd"), Remember({"c": "d"}), TrimAudio(2), Enqueue(job()), Send(Done(audio_s=0, finals=0))
    )
    assert set(done[:-2]) == {name}
    assert "_failed" in done[-2]
    assert done[-1] == "send erro"


def test_a_short_outage_is_waited_for() -> None:
    stage = Stage()
    stage.faults["append 0"] = [AWAY, AWAY]

    def back_later(seconds: float) -> None:
        stage.clock.advance(seconds)
        stage.faults.clear()

    object.__setattr__(stage.runner._attempts, "pause", back_later)
    assert stage.run(append(0, b"ab"), Enqueue(job())) == ["append 0", "append 0", "enqueue", "on_enqueued"]


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        (append(0, b"ab"), "on_append_failed lost=False"),
        (Enqueue(job()), "on_enqueue_failed away full=False"),
        (OpenBuffer({}), "on_append_failed lost=False"),
    ],
)
def test_a_long_outage_is_told_within_the_patience(effect: Effect, told: str) -> None:
    stage = Stage()
    for name in ("append 0", "enqueue", "create"):
        stage.faults[name] = [AWAY]
    began_s = stage.clock.monotonic()
    assert stage.run(effect)[-1].startswith(told)
    assert stage.clock.monotonic() - began_s <= PATIENCE_S


def test_a_partial_is_not_worth_waiting_for() -> None:
    stage = Stage()
    stage.faults["enqueue"] = [AWAY]
    assert stage.run(Enqueue(job(Kind.PARTIAL))) == ["enqueue", "on_enqueue_failed away full=False"]


def test_events_that_cannot_be_read_are_left_to_the_next_time() -> None:
    stage = Stage()
    stage.faults["events after None"] = [AWAY]
    assert stage.run(ReadEvents(None), ReadEvents(None)) == ["events after None"]


@pytest.mark.parametrize(
    ("cause", "outcome"), [(EndCause.SEND_TIMEOUT, "slow_client"), (EndCause.LOST, "disconnected")]
)
def test_a_client_that_cannot_be_reached_is_told_nothing_more(cause: EndCause, outcome: str) -> None:
    stage = Stage()
    stage.faults["send done"] = [SocketEnded(cause)]
    stage.replies["on_disconnect"] = [CancelSession()]
    done = Send(Done(audio_s=0, finals=0))
    assert stage.run(done, done, CancelPartial()) == [
        "send done", f"on_disconnect {outcome} left=False", "cancel_partial", "delete", "cancel_session", "forget",
    ]  # fmt: skip
    assert stage.runner.lost


def test_cleanup_waits_for_redis_without_calling_it() -> None:
    stage = Stage()
    stage.redis_error = "Redis has not answered for 5 s"
    stage.run(CancelSession())
    stage.cleaner.release_slot("s")
    assert stage.calls == []
    stage.redis_error = ""
    for _ in range(2):
        stage.cleaner.catch_up()
        assert stage.calls == ["delete", "cancel_session", "forget", "release"]


def test_the_jobs_of_a_stream_that_failed_go_but_not_those_of_a_newer_connection() -> None:
    stage, noted = Stage(), "remember {'over': 'why'} not [] from 0"
    assert stage.run(CancelJobs({"over": "why"})) == [noted, "cancel_session but its events"]
    stage.faults[noted] = [TakenOver("s")]
    assert stage.run(CancelJobs({"over": "why"})) == [noted]


def test_cleanup_that_fails_is_tried_again() -> None:
    stage = Stage()
    stage.faults["delete"] = [AWAY]
    assert stage.run(CancelSession()) == ["delete"]
    stage.cleaner.catch_up()
    del stage.faults["delete"]
    stage.cleaner.catch_up()
    assert stage.calls == ["delete", "delete", "delete", "cancel_session", "forget"]


@pytest.mark.parametrize("effect", [append(0, b"ab"), Remember({"a": "1"}), TrimAudio(4), OpenBuffer({})])
def test_who_was_taken_over_is_told_and_writes_no_more(effect: Effect) -> None:
    stage = Stage()
    for name in ("append 0", "remember {'a': '1'} not [] from 0", "trim 4", "create"):
        stage.faults[name] = [TakenOver("s")]
    done = stage.run(effect, append(2, b"cd"), Enqueue(job()), Send(FATAL), Park(keep_slot=True), CancelSession())
    assert done[1:] == ["on_taken_over"]


def test_what_cannot_be_noted_is_not_said() -> None:
    stage = Stage()
    stage.faults["remember {'a': '1'} not ['b'] from 6"] = [AWAY]
    stage.replies["on_remember_failed"] = [Send(FATAL)]
    done = stage.run(Remember({"a": "1"}, ("b",), 6), Enqueue(job()), Send(Done(audio_s=0, finals=0)))
    assert done[-2:] == ["on_remember_failed away full=False", "send erro"]
    assert "send done" not in done


def test_a_session_is_parked_unless_a_newer_connection_has_it() -> None:
    stage = Stage()
    assert stage.run(Park(keep_slot=True, fields={"a": "1"})) == ["remember {'a': '1'} not [] from 0", "park True"]
    stage.faults["remember {} not [] from 0"] = stage.faults["delete"] = [TakenOver("s")]
    stage.calls.clear()
    assert stage.run(Park(keep_slot=False), CancelSession()) == ["remember {} not [] from 0", "delete"]


def test_a_session_that_is_in_redis_no_more_is_not_parked() -> None:
    stage = Stage()
    stage.gone = True
    assert stage.run(Park(keep_slot=True, fields={"a": "1"})) == ["delete", "cancel_session", "forget"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (None, "on_resumed"),
        (ResumeRefused(), "on_resume_refused"),
        (AWAY, "on_append_failed lost=False"),
        (AudioLost("s", 0, 2), "on_append_failed lost=True"),
    ],
)
def test_what_became_of_taking_up_a_session_is_told(fault: Exception | None, told: str) -> None:
    stage = Stage()
    if fault is not None:
        stage.faults["take_up"] = [fault]
    assert stage.run(TakeUp(Resume(session="s", token="t", last_seq=0)))[-1].startswith(told)


def test_taking_up_a_session_rides_out_a_redis_that_is_away_for_a_moment() -> None:
    stage = Stage()
    stage.faults["take_up"] = [AWAY, AWAY, ResumeRefused()]
    assert stage.run(TakeUp(Resume(session="s", token="t", last_seq=0))) == [*["take_up"] * 3, "on_resume_refused"]


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_dead_process_leaves_its_counters_and_no_live_gauges(tmp_path: Path) -> None:
    files = {"counter_7.db", "gauge_livesum_7.db", "gauge_max_7.db", "gauge_livesum_8.db", "notes.txt"}
    for name in files:
        (tmp_path / name).touch()
    forget_process(str(tmp_path), 7)
    assert names(tmp_path) == files - {"gauge_livesum_7.db"}


def test_a_start_among_the_living_keeps_counters_and_one_among_the_dead_begins_anew(tmp_path: Path) -> None:
    for name in ("counter_7.db", "gauge_livesum_7.db", "histogram_8.db", "notes.txt"):
        (tmp_path / name).touch()
    clean_metrics(str(tmp_path), alive=lambda pid: pid == 8)
    assert names(tmp_path) == {"counter_7.db", "histogram_8.db", "notes.txt"}
    clean_metrics(str(tmp_path), alive=lambda _pid: False)
    assert names(tmp_path) == {"notes.txt"}
