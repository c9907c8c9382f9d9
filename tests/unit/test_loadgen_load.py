"""Arrivals, scenarios and the mathematics of the report."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path

import numpy as np
import pytest

from loadgen.arrivals import Arrivals, offsets
from loadgen.clips import ClipError
from loadgen.errors import CannotConnect, ClientError, NoAnswer, Refused
from loadgen.load_run import Run, StreamResult
from loadgen.outcome import outcome_of
from loadgen.recorder import Recorder
from loadgen.report import Usage, exit_status, report, text
from loadgen.scenario import Clip, PlannedStream, load_clips, plan
from loadgen.statistics import MissingPackages, percentile, spread, word_errors
from sessions.wire import Done, Final, Partial, Ready, Timing
from tests.support.fake_service import LIMITS

SAMPLES = Path(__file__).resolve().parents[1] / "data"


def test_synchronized_streams_begin_together_and_again(rng: random.Random) -> None:
    assert offsets(Arrivals.SYNCHRONIZED, 3, 5.0, None, rng) == [0, 0, 0]
    assert offsets(Arrivals.SYNCHRONIZED, 2, 5.0, 12.0, rng) == [0, 0, 5, 5, 10, 10]


def test_staggered_streams_begin_evenly(rng: random.Random) -> None:
    assert offsets(Arrivals.STAGGERED, 4, 8.0, None, rng) == [0, 2, 4, 6]
    assert offsets(Arrivals.STAGGERED, 4, 8.0, 9.0, rng) == [0, 2, 4, 6, 8]


def test_poisson_arrivals_have_exponential_gaps_and_the_seed_decides(rng: random.Random) -> None:
    seed = rng.randrange(2**32)
    found = offsets(Arrivals.POISSON, 20, 10.0, 5_000.0, random.Random(seed))
    assert found == offsets(Arrivals.POISSON, 20, 10.0, 5_000.0, random.Random(seed))
    gaps = np.diff(found)
    # 10,000 gaps of mean 0.5 s: the standard error of the mean is 1 %, and mean and deviation are equal.
    assert gaps.mean() == pytest.approx(0.5, rel=0.05)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.08)
    assert len(offsets(Arrivals.POISSON, 7, 10.0, None, rng)) == 7
    assert len(offsets(Arrivals.POISSON, 1, 1e6, 1.0, rng)) == 1, "a run is never empty"


@pytest.mark.parametrize(("streams", "clip_s", "duration_s"), [(0, 1, None), (1, 0, None), (1, 1, 0), (1, 1e-6, 1.0)])
def test_impossible_runs_are_refused(streams: int, clip_s: float, duration_s: float | None, rng: random.Random) -> None:
    with pytest.raises(ValueError):
        offsets(Arrivals.STAGGERED, streams, clip_s, duration_s, rng)


def test_clips_come_from_audio_files_with_their_texts() -> None:
    clips = load_clips(SAMPLES, 10, 60.0, random.Random(3), pytest.fail)
    assert clips == load_clips(SAMPLES, 10, 60.0, random.Random(3), pytest.fail)
    assert {clip.id for clip in clips} == {"sample.flac", "pauses.flac"}
    assert all((clip.reference or "").endswith((" break.", " lost.")) for clip in clips)
    assert [clip.id for clip in load_clips(SAMPLES, 10, 20.0, random.Random(3), pytest.fail)] == ["sample.flac"]
    with pytest.raises(ClipError, match="no recordings of at most 1 s"):
        load_clips(SAMPLES, 10, 1.0, random.Random(3), pytest.fail)
    with pytest.raises(ClipError, match="no such folder"):
        load_clips(SAMPLES / "nothing", 10, 1.0, random.Random(3), pytest.fail)


@pytest.mark.speech
def test_clips_come_from_a_manifest(speech_dir: Path, rng: random.Random) -> None:
    clips = load_clips(speech_dir, 5, 10.0, rng, pytest.fail)
    assert len({clip.id for clip in clips}) == 5
    assert all(clip.seconds <= 10.0 and clip.reference for clip in clips)


def test_a_plan_gives_every_arrival_a_clip_in_turn(rng: random.Random) -> None:
    clips = [Clip(name, bytes(32_000 * seconds)) for name, seconds in (("a", 1), ("b", 3))]
    scenario = plan(clips, Arrivals.STAGGERED, 5, None, rng)
    assert [stream.clip.id for stream in scenario.streams] == ["a", "b", "a", "b", "a"]
    assert [stream.at_s for stream in scenario.streams] == pytest.approx([0, 0.4, 0.8, 1.2, 1.6])
    assert [clip.id for clip in plan(clips, Arrivals.STAGGERED, 1, None, rng).clips] == ["a"]


def test_percentiles_are_nearest_rank(rng: random.Random) -> None:
    assert [percentile([15, 20, 35, 40, 50], p) for p in (5, 30, 40, 50, 100)] == [15, 20, 20, 35, 50]
    assert percentile([7], 99) == 7
    for _ in range(200):
        values = [rng.random() for _ in range(rng.randrange(1, 300))]
        percent = rng.choice((1, 50, 90, 95, 99, 100))
        found = percentile(values, percent)
        assert sum(value <= found for value in values) >= percent / 100 * len(values) - 1e-6
        assert sum(value < found for value in values) < percent / 100 * len(values)
    for wrong in (0, 101, -1):
        with pytest.raises(ValueError):
            percentile([1.0], wrong)
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_a_spread_always_has_its_count() -> None:
    assert spread([]) == {"count": 0, "mean": None, "p50": None, "p90": None, "p95": None, "p99": None, "max": None}
    assert spread([3.0, 1.0, 2.0]) == {
        "count": 3,
        "mean": 2.0,
        "p50": 2.0,
        "p90": 3.0,
        "p95": 3.0,
        "p99": 3.0,
        "max": 3.0,
    }


def test_word_errors_are_counted_over_all_words_after_normalizing() -> None:
    errors = word_errors([("YOU'RE TWENTY TWO", "You are 22."), ("A B C D", "a x c"), ("", "ignored")])
    assert (errors.words, errors.substitutions, errors.deletions, errors.insertions) == (7, 1, 1, 0)
    assert errors.rate == pytest.approx(2 / 7)
    assert word_errors([]).rate is None


def test_missing_packages_are_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(MissingPackages, match="-m pip install jiwer whisper-normalizer"):
        word_errors([("a", "a")])


def heard(said: str, latency_s: float, reference: str = "old stone bridges fall", clip: str = "a") -> StreamResult:
    """A stream of 2 s whose final came ``latency_s`` after its last byte."""
    recorder = Recorder()
    recorder.begin(100.0, 1.0)
    recorder.received(100.0, Ready(session=f"s-{clip}", limits=LIMITS))
    for second in (1, 2):
        recorder.sent(100.0 + second, 32_000, lag_s=0.004)
    recorder.received(101.2, Partial(seq=1, start_s=0, end_s=1.0, text="one"))
    recorder.ended(102.0)
    timing = Timing(queue_ms=5, decode_ms=100, audio_s=2)
    recorder.received(102.0 + latency_s, Final(seq=2, start_s=0, end_s=2, text=said, last=True, timing=timing))
    recorder.received(102.0 + latency_s, Done(audio_s=2, finals=1))
    result = StreamResult(PlannedStream(0.0, Clip(clip, bytes(64_000), reference)), recorder)
    result.outcome = outcome_of(recorder, None, [])
    return result


def test_a_report_of_three_streams_by_hand() -> None:
    run = Run(
        [heard("Old stone bridges fall.", 0.1), heard("Old stone bridges.", 0.3, clip="b"), heard("old", 0.2, clip="c")]
    )
    run.wall_s = 2.5
    run.alone = {"a": "Old stone bridges fall.", "b": "Old stone bridges fall."}
    fields = report(run, {"streams": 3, "seed": 1}, Usage(0.5, 0.25))
    assert fields["streams"] == {"planned": 3, "done": 3, "by_outcome": {"done": 3}, "by_error": {}}
    assert fields["final_latency_ms"]["p50"] == 200
    assert fields["final_latency_ms"]["max"] == 300
    assert fields["first_partial_ms"]["mean"] == 1200
    assert fields["partial_age_ms"]["mean"] == 200
    assert fields["first_text_ms"]["p50"] == 200
    assert (fields["segment_latency_ms"]["count"], fields["finals_per_stream"]["max"]) == (0, 1)
    assert (fields["queue_ms"]["count"], fields["decode_ms"]["p50"]) == (3, 100)
    assert fields["word_error_rate"]["rate"] == pytest.approx(4 / 12, abs=1e-5)
    assert fields["alone"]["compared"] == 2
    assert fields["alone"]["different"] == [
        {"clip": "b", "text": "Old stone bridges.", "alone": "Old stone bridges fall."}
    ]
    assert fields["finals"]["exactly_once_in_order"]
    assert fields["generator"] == {"max_send_lag_ms": 4.0, "trustworthy": True, "cpu_s": 0.5, "machine_busy": 0.25}
    assert exit_status(fields) == 4, "a text differs from the one decoded alone"
    shown = text(fields)
    assert "word error rate: 33.33 % of 12 words" in shown
    assert "texts equal to those decoded alone: 1 of 2" in shown
    run.alone = {"a": "Old stone bridges fall."}
    assert exit_status(report(run, {}, Usage(0, 0))) == 0


def test_a_segment_has_a_latency_of_its_own_and_text_a_first_moment() -> None:
    recorder = Recorder()
    recorder.begin(100.0, 2.0)
    recorder.sent(100.05, 3_200)
    recorder.received(100.6, Partial(seq=1, start_s=0.2, end_s=1.0, text=""))
    recorder.received(101.0, Partial(seq=2, start_s=0.2, end_s=1.8, text="one"))
    segment = Final(seq=3, start_s=0, end_s=3, speech_start_s=0.2, speech_end_s=3, text="one.", last=False)
    recorder.received(101.9, segment)
    recorder.received(102.5, Final(seq=4, start_s=3, end_s=4, text="", last=False))
    recorder.received(103.0, Final(seq=5, start_s=4, end_s=5, speech_start_s=4, speech_end_s=5, text="two", last=True))
    assert recorder.first_partial_s == pytest.approx(0.6)
    assert recorder.first_text_s == pytest.approx(0.95)
    # At twice the speed the 3 s of audio were sent after 1.5 s.
    assert recorder.segment_latencies_s == [pytest.approx(0.4)]
    assert recorder.faults == []


@pytest.mark.parametrize(
    ("partials", "fault"),
    [
        ([(0.0, "one two", "one two three"), (0.0, "one too", "one too")], "the stable text 'one two' became"),
        ([(0.0, "one", "two one")], "does not begin with its stable text 'one'"),
        ([(0.0, "one", "one two"), (2.0, "", "three"), (2.0, "three", "three")], None),
    ],
)
def test_stable_text_that_changes_is_a_broken_promise(
    partials: list[tuple[float, str, str]], fault: str | None
) -> None:
    recorder = Recorder()
    for seq, (start_s, stable, said) in enumerate(partials, 1):
        recorder.received(1.0, Partial(seq=seq, start_s=start_s, end_s=start_s + 1, stable=stable, text=said))
    assert [fault in told for told in recorder.faults] == [True] if fault else not recorder.faults


@pytest.mark.parametrize(
    ("ended", "unfinished", "fault", "judged", "said"),
    [
        (2, 0, "", True, "yes"),
        (0, 2, "", None, "not judged: interrupted"),
        (1, 1, "", None, "not judged: interrupted"),
        (0, 0, "", None, "not judged: interrupted"),
        (1, 1, "seq 3 after 1", False, "NO"),
        (2, 0, "seq 3 after 1", False, "NO"),
    ],
)
def test_finals_of_streams_that_were_kept_from_their_end_are_not_judged(
    ended: int, unfinished: int, fault: str, judged: bool | None, said: str
) -> None:
    results = [heard("old", 0.1) for _ in range(ended)]
    results += [StreamResult(PlannedStream(0.0, Clip("a", bytes(64_000)))) for _ in range(unfinished)]
    if fault:
        results[-1].recorder.faults.append(fault)
    fields = report(Run(results, interrupted=judged is None), {}, Usage(0, 0))
    assert fields["finals"]["exactly_once_in_order"] is judged
    assert f"finals exactly once and in order: {said}" in text(fields).splitlines()


def ended_by(error: ClientError, *, begun: bool) -> StreamResult:
    recorder = Recorder()
    if begun:
        recorder.received(100.0, Ready(session="s", limits=LIMITS))
    return StreamResult(PlannedStream(0.0, Clip("a", b"")), recorder, outcome_of(recorder, error, []))


def test_a_stream_that_failed_is_a_no_also_in_an_interrupted_run() -> None:
    failed = ended_by(NoAnswer("the last final", 1), begun=True)
    fields = report(Run([failed, StreamResult(failed.planned)], interrupted=True), {}, Usage(0, 0))
    assert fields["finals"]["exactly_once_in_order"] is False


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (CannotConnect("ws://127.0.0.1:1/v1/stream", "Connection refused"), 5),
        (Refused(503, "overloaded", "full", 5), 3),
        (NoAnswer("ready", 1), 4),
    ],
)
def test_finals_of_streams_that_never_began_are_not_judged(error: ClientError, status: int) -> None:
    never = ended_by(error, begun=False)
    fields = report(Run([never, never]), {}, Usage(0, 0))
    assert fields["finals"]["exactly_once_in_order"] is None
    assert "finals exactly once and in order: not judged: no stream began" in text(fields).splitlines()
    assert exit_status(fields) == status
    beside = report(Run([never, heard("old", 0.1)]), {}, Usage(0, 0))
    assert beside["finals"]["exactly_once_in_order"], "the one that began kept its promises"
    assert exit_status(beside) == (3 if status == 3 else 4), "and the run is no success"
    broken = report(Run([never, ended_by(NoAnswer("the last final", 1), begun=True)]), {}, Usage(0, 0))
    assert broken["finals"]["exactly_once_in_order"] is False


def test_an_interrupt_when_all_streams_have_ended_is_one_all_the_same() -> None:
    fields = report(Run([heard("old", 0.1)], interrupted=True), {}, Usage(0, 0))
    assert (fields["interrupted"], fields["finals"]["exactly_once_in_order"]) == (True, True)
    assert exit_status(fields) == 130


def test_a_report_tells_a_late_sender_and_an_interrupted_run() -> None:
    late = heard("old", 0.1)
    late.recorder.sent(103.0, 2, lag_s=0.3)
    fields = report(Run([late, StreamResult(late.planned)], interrupted=True), {}, Usage(0, 0))
    assert not fields["generator"]["trustworthy"]
    assert "CAUTION: this process sent audio up to 300.0 ms late" in text(fields)
    assert fields["streams"]["by_outcome"]["interrupted"] == 1
    assert exit_status(fields) == 130
    assert math.isclose(fields["audio_s"], 2.0, abs_tol=0.001)
