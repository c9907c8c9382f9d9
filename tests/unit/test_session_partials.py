"""When partials are asked for, over which audio, and which of their results are said."""

from __future__ import annotations

from queueing.job import EnqueueStatus
from queueing.lane import MAX_JOB_AUDIO_S, Kind
from sessions.limits import SessionLimits
from sessions.wire import End, Flush, Start
from tests.support.session_driver import Driver, at, delivery, failure


def test_a_partial_for_every_interval_of_new_audio_from_the_minimum_on() -> None:
    driver = Driver(SessionLimits(partial_interval_s=1.0, min_partial_audio_s=0.5))
    for _ in range(34):
        driver.live(0.1)
        for job in driver.jobs[len(driver.partials) :]:
            driver.deliver(job)
    assert [(job.start_byte, job.end_byte) for job in driver.jobs] == [
        (0, at(0.5)),
        (0, at(1.5)),
        (0, at(2.5)),
    ]
    assert [job.id for job in driver.jobs] == ["s1:p:1", "s1:p:2", "s1:p:3"]
    assert {(job.kind, job.segment, job.front) for job in driver.jobs} == {(Kind.PARTIAL, 0, "front-1")}
    assert [(partial.seq, partial.start_s, partial.end_s) for partial in driver.partials] == [
        (1, 0.0, 0.5),
        (2, 0.0, 1.5),
        (3, 0.0, 2.5),
    ]


def test_audio_that_comes_all_at_once_is_one_partial() -> None:
    driver = Driver()
    driver.audio(10.0, frame=320_000)
    assert [(job.start_byte, job.end_byte) for job in driver.jobs] == [(0, at(10))]


def test_a_quiet_socket_causes_no_job_and_no_message() -> None:
    driver = Driver(SessionLimits(idle_timeout_s=100))
    driver.live(1.6)
    for job in list(driver.jobs):
        driver.deliver(job)
    count = (len(driver.jobs), len(driver.sent), len(driver.reads))
    driver.wait(90)
    assert (len(driver.jobs), len(driver.sent), len(driver.reads)) == count


def test_a_waiting_partial_is_extended_at_every_interval() -> None:
    driver = Driver()
    driver.answers = lambda job: EnqueueStatus.QUEUED if job.id.endswith(":1") else EnqueueStatus.EXTENDED
    driver.live(3.6)
    assert [job.end_byte for job in driver.jobs] == [at(0.5), at(1.5), at(2.5), at(3.5)]
    assert driver.session.summary.partials_superseded == 3
    driver.deliver(driver.jobs[0], end_byte=at(3.5), audio_s=3.5)
    assert [partial.end_s for partial in driver.partials] == [3.5]


def test_a_busy_partial_is_asked_again_when_its_result_is_in() -> None:
    driver = Driver()
    driver.live(0.5)
    driver.answers = lambda job: EnqueueStatus.BUSY
    driver.live(1.3)
    assert [job.end_byte for job in driver.jobs] == [at(0.5), at(1.5)]
    driver.answers = lambda job: EnqueueStatus.QUEUED
    driver.deliver(driver.jobs[0])
    assert [job.end_byte for job in driver.jobs] == [at(0.5), at(1.5), at(1.8)], "at once, over all that is there"
    assert driver.session.summary.partials_refused == 1


def test_a_busy_partial_whose_result_never_comes_is_asked_again_an_interval_later() -> None:
    driver = Driver()
    driver.answers = lambda job: EnqueueStatus.BUSY
    driver.live(3.6)
    assert [job.end_byte for job in driver.jobs] == [at(0.5), at(1.5), at(2.5), at(3.5)]


def test_a_refused_partial_waits_an_interval() -> None:
    for status in (EnqueueStatus.FULL, EnqueueStatus.OBSOLETE, EnqueueStatus.DUPLICATE):
        driver = Driver()
        driver.answers = lambda job, status=status: status  # type: ignore[misc]
        driver.live(1.6)
        assert [job.end_byte for job in driver.jobs] == [at(0.5), at(1.5)]
        assert driver.errors == []


def test_a_partial_that_failed_is_not_said_and_the_next_comes_in_time() -> None:
    driver = Driver()
    driver.live(0.5)
    driver.run(driver.session.on_delivery(driver.now, failure(driver.jobs[0], "decode_failed")))
    driver.live(1.0)
    assert driver.partials == []
    assert driver.errors == []
    assert [job.end_byte for job in driver.jobs] == [at(0.5), at(1.5)]


def test_a_partial_that_could_not_be_queued_is_given_up() -> None:
    driver = Driver()
    driver.live(0.5)
    assert driver.session.on_enqueue_failed(driver.now, driver.jobs[0], "no Redis") == []
    driver.live(1.0)
    assert len(driver.jobs) == 2


def test_a_result_that_comes_twice_or_late_is_not_said() -> None:
    driver = Driver()
    driver.live(1.5)
    old, new = driver.jobs
    driver.deliver(new)
    driver.deliver(new)
    driver.deliver(old)
    assert [partial.end_s for partial in driver.partials] == [1.5]
    assert (driver.session.summary.duplicates, driver.session.summary.partials_dropped) == (1, 1)


def test_no_partial_follows_the_final_it_belongs_to() -> None:
    driver = Driver()
    driver.live(0.5)
    driver.text(Flush())
    partial, final = driver.jobs
    driver.deliver(final, event=1)
    driver.deliver(partial)
    assert driver.partials == []
    driver.live(0.5)
    driver.text(End())
    driver.deliver(driver.asked(Kind.PARTIAL)[-1])
    assert driver.partials == []


def test_the_partial_of_the_next_segment_covers_only_what_is_not_final() -> None:
    driver = Driver()
    driver.live(2.0)
    driver.text(Flush())
    driver.live(0.5)
    assert driver.jobs[-1].kind is Kind.PARTIAL
    assert (driver.jobs[-1].segment, driver.jobs[-1].start_byte, driver.jobs[-1].end_byte) == (1, at(2.0), at(2.5))
    driver.deliver(driver.jobs[-1])
    assert (driver.partials[-1].start_s, driver.partials[-1].end_s) == (2.0, 2.5)


def test_a_partial_covers_the_open_segment_however_long_the_stream_is() -> None:
    driver = Driver()
    driver.text(Start(language="en"))
    answered = 0
    for _ in range(200):
        driver.wait(1)
        driver.audio(1.0)
        for job in driver.jobs[answered:]:
            answered += 1
            driver.deliver(job, event=answered)
    starts = {job.segment: job.start_byte for job in driver.asked(Kind.FINAL)}
    assert len(starts) > 5
    for job in driver.asked(Kind.PARTIAL):
        assert job.start_byte == starts.get(job.segment, driver.jobs[-1].start_byte)
        assert job.audio_s <= MAX_JOB_AUDIO_S


def test_intervals_that_are_no_whole_samples_work() -> None:
    driver = Driver(SessionLimits(partial_interval_s=0.1 / 3, min_partial_audio_s=0.0001, coalesce_s=0.07))
    driver.text(Start())
    driver.audio(0.16, frame=641)
    assert len(driver.jobs) == 4, "every second frame: 641 bytes are less than the interval, 1,282 are more"


def test_the_summary_tells_latency_staleness_and_amplification() -> None:
    driver = Driver()
    driver.live(0.5)
    driver.wait(0.25)
    driver.deliver(driver.jobs[0])
    summary = driver.session.summary
    assert summary.first_partial_s is not None
    assert round(summary.first_partial_s, 6) == 0.65, "the first audio came 0.1 s after the start"
    assert [round(age, 6) for age in summary.partial_staleness_s] == [0.25]
    driver.text(End())
    driver.wait(0.5)
    driver.deliver(driver.jobs[-1], event=1)
    assert [round(latency, 6) for latency in summary.final_latencies_s] == [0.5]
    assert summary.amplification == 2.0, "0.5 s in the partial, 0.5 s in the final"
    assert (summary.outcome, summary.close_code) == ("done", 1000)
    assert delivery(driver.jobs[0]).result is not None
    fields = summary.log_fields()
    assert fields["final_latency_mean_s"] == fields["final_latency_max_s"] == 0.5
    assert not any("text" in name for name in fields)
