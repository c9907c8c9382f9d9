"""The service benchmark's arithmetic: what is counted, compared and asked for; and the choice of `doctor --tune`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ops.errors import Failed, Missing
from ops.service_bench import main
from ops.service_bench_client import Clip, load_clips, read_pcm
from ops.service_bench_identical import BUSY, ONE_BYTE_S, Comparison, alone_cases, busy_cases, first_with_text
from ops.service_bench_load import summarize, write_manifest
from ops.service_bench_long import describe, long_clips
from ops.service_bench_process import Setup, cpu_between, environment_of, role_of
from ops.service_bench_report import goals, plot, table
from ops.service_bench_words import word_error_rate
from ops.tune import Trial, candidates, choose, find_recordings, lines, percentile95

DATA = Path(__file__).resolve().parents[1] / "data"


def clip(name: str, seconds: float = 6.0, reference: str = "a cat sat there") -> Clip:
    return Clip(name, Path(f"{name}.flac"), bytes(int(seconds * 32_000)), reference)


def spread(p50: float | None, p95: float | None = None) -> dict[str, Any]:
    return {"count": 2, "mean": p50, "p50": p50, "p90": p50, "p95": p95, "p99": p95, "max": p95}


def load_report(**changed: Any) -> dict[str, Any]:
    """As `hearline load --json` gives it."""
    each = [
        {"clip": "a", "outcome": "done", "audio_s": 6.0, "text": "a cat sat there"},
        {"clip": "b", "outcome": "done", "audio_s": 8.0, "text": "a cat sat where"},
        {"clip": "a", "outcome": "refused", "audio_s": 1.0, "text": ""},
    ]
    return {
        "each": each,
        "final_latency_ms": spread(400, 900),
        "first_partial_ms": spread(1200, 1300),
        "queue_ms": spread(10, 20),
        "decode_ms": spread(200, 300),
        "streams": {"planned": 3, "done": 2, "by_outcome": {"done": 2, "refused": 1}},
        "finals": {"exactly_once_in_order": False, "faults": []},
        "partials_per_stream": spread(5.0),
        "generator": {"max_send_lag_ms": 3.0, "trustworthy": True, "cpu_s": 1.0, "machine_busy": 0.5},
        **changed,
    }


def figures() -> dict[str, Any]:
    used = {"web": 0.3, "worker": 1.8, "redis": 0.15}
    return summarize(load_report(), used, [clip("a"), clip("b")], {"a": "a cat sat there", "b": "a cat sat there"})


def test_a_summary_has_every_figure_of_all_that_was_sent() -> None:
    found = figures()
    assert found["final_latency_s"] == {"count": 2, "p50": 0.4, "p95": 0.9, "max": 0.9}
    assert found["first_text_s"]["p50"] == 1.2
    assert found["wer"] == pytest.approx(1 / 8)
    assert found["wer_alone"] == 0
    assert found["equal_to_alone"] == 1
    # What a refused stream sent has cost something too.
    assert found["cpu_per_audio_s"] == pytest.approx(2.25 / 15)
    assert found["cpu_s"] == {"web": 0.3, "worker": 1.8, "redis": 0.15}
    assert (found["streams_planned"], found["streams_done"], found["exactly_once_in_order"]) == (3, 2, False)
    newer = summarize(
        load_report(first_text_ms=spread(800, 900)), {"web": 1.0}, [clip("a"), clip("b")], {"a": "", "b": ""}
    )
    assert newer["first_text_s"]["p50"] == 0.8
    nothing = load_report(each=[], final_latency_ms=spread(None), first_partial_ms=spread(None))
    empty = summarize(nothing, {"web": 0.0}, [], {})
    assert (empty["wer"], empty["cpu_per_audio_s"], empty["final_latency_s"]["p95"]) == (None, None, None)


def test_goals_are_judged_at_their_numbers_of_streams() -> None:
    report: dict[str, Any] = {"streams": {"2": figures(), "10": figures(), "20": figures()}}
    report["streams"]["20"]["final_latency_s"] = {"count": 1, "p50": 1.0, "p95": 2.5, "max": 2.5}
    met = {goal["name"]: goal["met"] for goal in goals(report)}
    assert met["final latency p95 at 10 streams, s"]
    assert not met["final latency p95 at 20 streams, s"]
    assert "final latency p95 at 2 streams, s" not in met
    assert met["CPU seconds per audio second at 10 streams"]
    assert met["first text p50 at 2 streams, s"]
    assert not met["word error rate at 2 streams, against alone"]
    assert not met["streams refused, failed or with broken finals at 2 streams"]
    report["goals"] = goals(report)
    assert "NOT MET final latency p95 at 20 streams" in table(report)


def test_the_picture_is_drawn_and_the_same_each_time(tmp_path: Path) -> None:
    report = {"streams": {"1": figures(), "10": figures()}}
    for name in ("a.svg", "b.svg"):
        plot(report, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("command", "role"),
    [
        (["/usr/bin/python3", "-m", "api"], "web"),
        (["python", "-P", "-m", "workers"], "worker"),
        (["/opt/redis-server", "--port", "1"], "redis"),
        (["redis-server 127.0.0.1:40123"], "redis"),
        (["python", "-m", "ops.cli", "up"], None),
        (["sh", "-c", "sleep"], None),
        ([], None),
    ],
)
def test_processes_are_told_apart_by_their_command(command: list[str], role: str | None) -> None:
    assert role_of(command) == role


def test_cpu_time_is_that_of_all_processes_and_a_lost_one_is_no_figure() -> None:
    before = {1: ("web", 1.0), 2: ("worker", 5.0), 3: ("redis", 0.5)}
    after = {1: ("web", 1.5), 2: ("worker", 8.0), 3: ("redis", 0.6), 4: ("web", 0.2)}
    assert cpu_between(before, after) == pytest.approx({"web": 0.7, "worker": 3.0, "redis": 0.1})
    with pytest.raises(Failed, match="worker ended while it was measured"):
        cpu_between(before, {1: ("web", 2.0), 3: ("redis", 1.0)})


def test_a_service_that_runs_already_does_not_leak_in(tmp_path: Path) -> None:
    around = {"REDIS_URL": "redis://db", "HEARLINE_URL": "ws://x", "HEARLINE_POLICY": "sjf", "HEARLINE_THREADS": "1"}
    found = environment_of(Setup(1, "hrrn", around), tmp_path)
    assert found == {"HEARLINE_POLICY": "hrrn", "HEARLINE_THREADS": "1", "HEARLINE_STATE_DIR": str(tmp_path)}


def test_clips_come_from_the_manifest_within_their_lengths_and_go_on_to_the_load_client(tmp_path: Path) -> None:
    rows = [("short", 2.0), ("right", 10.3), ("long", 40.0)]
    with (tmp_path / "manifest.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("id", "file", "seconds", "reference"))
        writer.writerows((name, str(DATA / "sample.flac"), seconds, "HELLO") for name, seconds in rows)
    (one,) = load_clips(tmp_path, 5, 15)
    assert (one.id, one.reference) == ("right", "HELLO")
    assert one.seconds == pytest.approx(10.275, abs=0.01)
    assert one.audio == read_pcm(DATA / "sample.flac")
    assert len(one.cut(1.0).audio) == 32_000
    out = tmp_path / "out"
    out.mkdir()
    write_manifest(out, [one])
    assert [row["id"] for row in csv.DictReader((out / "manifest.csv").read_text().splitlines())] == ["right"]
    with pytest.raises(Missing, match="no recording of 50 to 60 s"):
        load_clips(tmp_path, 50, 60)
    with pytest.raises(Missing, match="cannot read"):
        load_clips(tmp_path / "nowhere", 5, 15)
    with pytest.raises(Missing, match="cannot be read"):
        read_pcm(tmp_path / "manifest.csv")


def test_every_frame_size_is_compared_alone_and_busy_and_a_lost_text_counts_as_different() -> None:
    clips = [clip("a"), clip("b")]
    sizes = {case.frame_bytes for case in alone_cases(clips, one_byte=True)}
    assert sizes == {case.frame_bytes for case in busy_cases(clips)} == {1, 641, 3_200, 65_536}
    assert all(case.clip.seconds == ONE_BYTE_S for case in busy_cases(clips) if case.frame_bytes == 1)
    assert 1 not in {case.frame_bytes for case in alone_cases(clips, one_byte=False)}
    comparison = Comparison()
    first, second, third = list(alone_cases(clips, one_byte=False))[:3]
    comparison.add("fcfs", first, "one text")
    comparison.add("fcfs", second, "one text")
    comparison.add("hrrn", second, "another")
    comparison.add("hrrn", third, None)
    found = comparison.fields()
    assert (found["compared"], found["equal"], found["share"]) == (4, 2, 0.5)
    assert found["different"][0]["policy"] == "hrrn"
    assert found["busy_streams"] == BUSY == 8
    (goal,) = goals({"identical": found})
    assert not goal["met"]


def test_a_long_recording_has_its_segments_timed_and_its_last_word_looked_for(tmp_path: Path) -> None:
    done: dict[str, Any] = {"outcome": "done", "text": "A cat sat. There!", "finals": 4}
    finals: list[dict[str, Any]] = [
        {"last": False, "speech_start_s": 0.0, "speech_end_s": 5.0},
        {"last": False},
        {"last": False, "speech_start_s": 6.0, "speech_end_s": 30.0},
        {"last": True, "speech_start_s": 31.0, "speech_end_s": 33.0},
    ]
    done["segment_latency_s"] = [0.9, 8.0]
    one = describe(clip("a"), {**done, "audio_s": 60.0, "final_latency_s": 0.4, "error": None}, finals)
    assert (one["segment_latency_s"], one["cut_latency_s"]) == ([0.9], [8.0])
    assert (one["segment_latency_max_s"], one["last_word_kept"], one["wer"]) == (0.9, True, 0)
    short = {**done, "segment_latency_s": [], "text": "a cat sat", "audio_s": 6, "final_latency_s": None, "error": None}
    lost = describe(clip("a"), short, finals[-1:])
    assert lost["last_word"] == {"said": "there", "heard": "sat"}
    long = {"recordings": {"a": one, "b": lost}, "segment_latency_max_s": 1.6, "last_words_lost": ["b"]}
    assert not any(goal["met"] for goal in goals({"long": long}))
    assert "last word 'there': 'sat'" in table({"long": long, "goals": []})
    with pytest.raises(Failed, match="ended as failed"):
        describe(clip("a"), {**done, "outcome": "failed", "error": "x"}, [])
    (tmp_path / "manifest.csv").write_text(f"id,file,seconds,reference\nx,{DATA / 'pauses.flac'},39.8,HELLO\n")
    assert [one.id for one in long_clips(tmp_path)] == ["x"]


def test_frames_of_one_byte_get_a_clip_that_says_something() -> None:
    clips = [clip("silent"), clip("b"), clip("c")]
    chosen = first_with_text(clips, lambda one: "" if one.id.startswith("silent") else "yes", 2)
    assert [one.id for one in chosen] == ["b", "silent"]
    with pytest.raises(Failed, match="compare nothing"):
        first_with_text(clips, lambda _: "", 2)


def test_word_errors_need_a_reference() -> None:
    assert word_error_rate([("A CAT", "a dog"), ("", "x")]) == 0.5
    with pytest.raises(Missing, match="no reference"):
        word_error_rate([("", "x")])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--streams", "1,x"], "no list of numbers"),
        (["--streams", "0"], "between 1 and 1000"),
        (["--policies", "lottery"], "no such policy"),
        (["--streams", ""], "nothing to measure"),
        (["--plot", "figure.bmp"], "name a .svg"),
    ],
)
def test_wrong_use_says_what_is_right(arguments: list[str], said: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--speech", str(tmp_path), *arguments])
    assert result.exit_code == 2
    assert said in result.output


def test_candidates_fill_the_cpus_or_leave_one_free() -> None:
    assert candidates(1) == [(1, 1)]
    assert candidates(2) == [(1, 1), (1, 2), (2, 1)]
    assert set(candidates(8)) == {(1, 1), (1, 7), (1, 8), (2, 3), (2, 4), (4, 1), (4, 2), (8, 1)}
    assert all(threads * workers <= 16 for threads, workers in candidates(16))


def trial(threads: int, workers: int, rate: float, final_p95_s: float) -> Trial:
    return Trial(threads, workers, rate, final_p95_s, 0.2, 300 * workers)


def test_the_fastest_within_the_bound_wins_and_of_alike_ones_the_smallest() -> None:
    slow, fast, late = trial(1, 1, 20.0, 0.6), trial(1, 2, 38.0, 0.7), trial(2, 1, 60.0, 1.4)
    assert choose([slow, fast, late], 1.0) == (fast, True)
    assert choose([slow, fast, late], 2.0) == (late, True)
    assert choose([slow, trial(1, 2, 20.5, 0.7)], 1.0) == (slow, True)
    assert choose([slow, fast, late], 0.1) == (slow, False)
    assert percentile95([float(n) for n in range(1, 101)]) == 95
    assert percentile95([3.0]) == 3


def test_the_report_of_tune_has_the_command_to_type() -> None:
    found = {
        "model": {"model": "tiny.en", "compute_type": "int8"},
        "cpus": 2,
        "bound_s": 1.0,
        "bound_kept": False,
        "trials": [vars_of(trial(1, 2, 38.0, 1.7))],
        "command": "HEARLINE_THREADS=1 hearline up worker=2",
    }
    text = "\n".join(lines(found))
    assert "HEARLINE_THREADS=1 hearline up worker=2" in text
    assert "No setting decodes a final of 10 s within 1 s" in text
    json.dumps(found)


def vars_of(one: Trial) -> dict[str, Any]:
    return {name: getattr(one, name) for name in Trial.__slots__}


def test_tune_decodes_the_recordings_named_else_the_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_recordings(tmp_path, {"HEARLINE_SPEECH": "other"}) == tmp_path
    assert find_recordings(None, {"HEARLINE_SPEECH": "other"}) == Path("other")
    assert find_recordings(None, {}) == DATA
    monkeypatch.setattr("ops.tune.SAMPLES", tmp_path / "nowhere")
    with pytest.raises(Missing, match="--speech DIR"):
        find_recordings(None, {})
