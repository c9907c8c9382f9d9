"""The decoding benchmark's arithmetic, and its report: every figure is there, and a worse decoder gives worse ones."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from queueing.lane import Kind
from workers import bench
from workers.bench_corpus import (
    BenchError,
    Recording,
    Samples,
    load_recordings,
    load_silent,
    stream_of,
    to_pcm,
    without,
)
from workers.bench_engines import Bank, Stopwatch
from workers.bench_fit import check_plot, describe, least_squares, plot
from workers.bench_goals import goals
from workers.bench_live import Buffer, Decode, live_decodes
from workers.bench_partials import moments, rounds
from workers.bench_report import table
from workers.bench_sections import SECTIONS, Plan, measure
from workers.bench_text import changed_words, loop_in, word_error_rate
from workers.bench_whole import Contender, groups

DATA = Path(__file__).resolve().parents[1] / "data"
SECOND = 16_000


class Clockwork:
    """A stopwatch's clock that every decode moves on by a known time."""

    def __init__(self) -> None:
        self.now = 0.0


class StubEngine:
    """Says the reference's words that fit the audio; a call takes ``base`` + ``slope`` for each second in it."""

    def __init__(
        self, clock: Clockwork, base: float, slope: float, *, wrong: bool = False, text: str | None = None
    ) -> None:
        self._clock = clock
        self._base = base
        self._slope = slope
        self._wrong = wrong
        self._text = text
        self.batches: list[int] = []
        self.redone = 0

    def texts(self, batch: Sequence[Samples], kind: Kind) -> list[str]:
        self.batches.append(len(batch))
        self._clock.now += self._base + self._slope * sum(len(samples) for samples in batch) / SECOND
        if self._text is not None:
            return [self._text for _ in batch]
        words = [f"word{index}" for index in range(1000)]
        said = [words[: len(samples) // SECOND] for samples in batch]
        return [" ".join(["wrong", *text[1:]] if self._wrong else text) for text in said]


class StubBank:
    """A full window costs a second, a sized one a tenth for each second; ``served`` as sized."""

    def __init__(self, clock: Clockwork, **sized: Any) -> None:
        self.fallbacks = {"full_window": 2}
        self._peer = StubEngine(clock, 1.0, 0.001)
        self._full = StubEngine(clock, 1.0, 0.0)
        self.sized = StubEngine(clock, 0.05, 0.1, **sized)

    def peer(self, beam: int) -> StubEngine:
        return self._peer

    def ours(self, *, full: bool, partial_beam: int = 1, final_beam: int = 1) -> StubEngine:
        return self._full if full else self.sized

    def served(self) -> StubEngine:
        return self.sized

    def describe(self) -> dict[str, object]:
        return {"model": "stub", "weights_sha256": "0", "device": "cpu", "compute_type": "none", "threads": 1}


def recordings(*seconds: int) -> list[Recording]:
    """Faint noise, as long as that, with a word for each second."""
    rng = np.random.default_rng(1)
    return [
        Recording(f"r{n}", rng.normal(0, 0.01, n * SECOND).astype(np.float32), " ".join(f"word{i}" for i in range(n)))
        for n in seconds
    ]


def stopwatch(clock: Clockwork) -> Stopwatch:
    watch = Stopwatch("cpu")
    watch._read = lambda: clock.now
    return watch


def measured(sections: tuple[str, ...], **sized: Any) -> dict[str, Any]:
    clock = Clockwork()
    plan = Plan(DATA, repeats=2, streams=8, seed=1, batches=(4, 8), sections=sections, live_s=(5, 600))
    bank = StubBank(clock, **sized)
    found = measure(cast("Bank", bank), recordings(2, 2, 5, 8, 9, 12, 20), stopwatch(clock), plan, lambda _: None)
    return {**found.report, "fallbacks": bank.fallbacks}


def test_every_figure_is_in_the_report_and_the_right_one() -> None:
    report = measured(("whole", "partials", "fit", "live"))
    decoders = {f"{kind}_b{beam}" for kind in ("transcribe", "full", "sized") for beam in (1, 5)}
    assert set(report["wer"]) == set(report["cpu_per_audio_s"]) == decoders | {"sized_b1_batch4", "sized_b1_batch8"}
    assert set(report["wer"].values()) == {0.0}
    # Seven decodes of 58 s in all: 0.05 s each and 0.1 s for each second.
    assert report["cpu_per_audio_s"]["sized_b1"] == pytest.approx(0.1 + 7 * 0.05 / 58, abs=1e-5)
    assert report["cpu_per_audio_s"]["full_b5"] == pytest.approx(7 / 58, abs=1e-5)
    assert report["cpu_per_audio_s"]["sized_b1_batch8"] < report["cpu_per_audio_s"]["sized_b1"]
    assert report["batch_texts"]["partial_different"] == report["batch_texts"]["final_different"] == 0
    for kind, slope, intercept in (("full", 0.0, 1.0), ("sized", 0.1, 0.05)):
        fit = report["fit"][kind]
        assert (fit["slope"], fit["intercept"], fit["r2"]) == pytest.approx((slope, intercept, 1.0), abs=1e-6)
        assert set(fit["residual_s"]) == {"p5", "p25", "p50", "p75", "p95"}
    assert report["partials_cpu_ratio"]["batch8"] > report["partials_cpu_ratio"]["batch1"] > 1
    assert set(report["live_cost"]) == {"5", "600"}
    assert report["loops"] == []


def test_a_decoder_that_errs_loops_and_talks_in_silence_is_seen(tmp_path: Path) -> None:
    wrong = measured(("whole",), wrong=True)
    assert wrong["wer"]["sized_b1"] > 0.1 > wrong["wer"]["full_b1"] == 0
    loud = measured(("whole",), text="thank you so much thank you so much")
    assert {loop["repeated"] for loop in loud["loops"]} == {"thank you so much thank you so much"}
    assert not any(goal.met for goal in goals(loud) if "nobody said" in goal.name)

    (tmp_path / "edge").mkdir()
    for name in ("silence.wav", "a.wav"):
        _write_wav(tmp_path / "edge" / name, np.zeros(SECOND, np.float32))
    (tmp_path / "edge.csv").write_text(
        "file,group,expected,reference,derived_from\nedge/silence.wav,content,No text here,,\n"
        "edge/a.wav,content,Transcript,word0 word1,\n"
    )
    assert [one.id for one in load_silent(tmp_path)] == ["silence"]
    clock = Clockwork()
    plan = Plan(tmp_path, repeats=1, streams=1, seed=1, batches=(4,), sections=("edge",))
    for text in ("", "Thank you."):
        report = measure(cast("Bank", StubBank(clock, text=text)), [], stopwatch(clock), plan, lambda _: None).report
        assert report["edge"]["silent"] == ["silence"]
        # Nobody speaks, so with the pause rule nothing reaches the model; without it everything does.
        assert report["edge"]["texts"] == ({"silence (no pause rule)": text} if text else {})
        assert report["edge"]["empty"] is not bool(text)


def test_stable_words_that_change_are_counted() -> None:
    steady = measured(("stable",))["stable"]
    assert steady["words"] > 20
    assert (steady["rate"], steady["changed_within_segment"]) == (0.0, [])
    assert changed_words(["a", "b", "c"], ["a", "b", "c", "d", "e"]) == 0
    assert changed_words(["a", "x", "c"], ["a", "b", "c", "d"]) == 1
    assert changed_words(["a", "b", "c"], []) == 3
    assert changed_words([], ["a", "b"]) == 0


@pytest.mark.parametrize(
    ("text", "reference", "loop"),
    [
        ("I came, I came, I came, I came.", None, "i came i came i came i came"),
        ("No, no, no.", None, None),
        ("no no no no", None, "no no no no"),
        ("of Athol. John Murray of Athol. John Murray", "", "of athol john murray of athol john murray"),
        ("if it is so it is so it is", "if it is so it is so it is", None),
        ("he said that she said that", None, None),
        ("", None, None),
    ],
)
def test_a_loop_is_what_is_repeated_and_was_not_said(text: str, reference: str | None, loop: str | None) -> None:
    assert loop_in(text, reference) == loop


def test_word_errors_are_counted_over_all_texts_together() -> None:
    rate, words = word_error_rate([("A CAT AND A DOG", "a cat and a dog"), ("MISTER X", "Mr. Y")])
    assert rate == pytest.approx(1 / 7)
    assert words == 7
    with pytest.raises(ValueError, match="no reference word"):
        word_error_rate([("", "something")])


def test_a_line_with_noise_has_the_known_fit_and_residuals() -> None:
    points = [(float(x), 0.5 + 0.25 * x + (0.1 if x % 2 else -0.1)) for x in range(1, 41)]
    line = least_squares(points)
    expected = np.polyfit([x for x, _ in points], [y for _, y in points], 1)
    assert (line.slope, line.intercept_s) == pytest.approx(tuple(expected))
    correlation = np.corrcoef([x for x, _ in points], [y for _, y in points])[0, 1]
    assert line.r2 == pytest.approx(float(correlation) ** 2)
    found = describe(points, [[y, y * 1.1] for _, y in points])
    assert found["residual_s"]["p5"] == pytest.approx(-0.1, abs=0.01)
    assert found["repeat_range_share"] == pytest.approx(0.1 / 1.05, abs=1e-3)
    with pytest.raises(ValueError, match="no line"):
        least_squares([(1.0, 1.0)] * 5)


def test_batches_hold_one_window_and_no_more_than_their_size() -> None:
    parts = [(0, one.samples) for one in recordings(2, 2, 2, 9, 2, 2, 9)]
    contender = Contender(cast("Any", None), 4, Kind.PARTIAL)
    assert groups(parts, contender) == [[0, 1, 2, 4], [5], [3, 6]]
    assert groups(parts, Contender(cast("Any", None))) == [[place] for place in range(7)]


def test_partials_of_a_group_have_one_length_and_end_with_their_recording() -> None:
    assert moments() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.0]
    found = rounds(recordings(*([2] * 3), *([9] * 5)), most_streams=8)
    assert [len(group) for group in found] == [8, 8, 5, 5, 5, 5, 5, 5, 5]
    assert all(len({len(samples) for samples in group}) == 1 for group in found)


def test_a_live_stream_asks_for_partials_of_the_open_segment_and_keeps_only_what_is_needed() -> None:
    speech = load_recordings(DATA)
    buffer = Buffer()
    decodes: list[Decode] = list(live_decodes(stream_of(speech, 120, random.Random(1)), buffer))
    finals = [decode for decode in decodes if decode.kind is Kind.FINAL]
    assert len(finals) >= 8
    assert sum(decode.covers_s for decode in finals) <= 120 + 1e-9
    assert max(len(decode.pcm) for decode in decodes) <= 28 * 32_000
    for number in range(len(finals)):
        partials = [len(d.pcm) for d in decodes if d.segment == number and d.kind is Kind.PARTIAL]
        assert partials == sorted(set(partials)), "partials of a segment grow"
    assert buffer.most < 30 * 32_000, "audio that is final must not be kept"


def test_what_is_left_without_the_speech_is_the_noise() -> None:
    rng = np.random.default_rng(2)
    clean, noise = (rng.normal(0, 0.1, 2 * SECOND).astype(np.float32) for _ in range(2))
    left = without(clean * np.float32(0.7) + noise, clean)
    assert float(np.abs(left - noise).max()) < 0.01
    assert np.array_equal(
        np.frombuffer(to_pcm(np.array([0, 0.5, 1, -1], np.float32)), "<i2"), [0, 16384, 32767, -32768]
    )


def test_goals_are_met_or_not_by_the_figures() -> None:
    report: dict[str, Any] = {
        "wer": {"transcribe_b1": 0.10, "transcribe_b5": 0.09, "sized_b1": 0.102, "sized_b5": 0.0951},
        "cpu_per_audio_s": {"transcribe_b1": 0.09, "sized_b1": 0.03, "transcribe_b5": 0.1, "sized_b5": 0.06},
        "partials_cpu_ratio": {"batch1": 4.0, "batch8": 5.9},
        "live_cost": {"30": 0.1, "3600": 0.12},
        "edge": {"texts": {"silence": "Thank you."}},
        "loops": [],
        "stable": {"rate": 0.011, "changed_within_segment": []},
    }
    met = {goal.name: goal.met for goal in goals(report)}
    assert [met[f"wer.sized_b{beam} within 0.3 points of transcribe"] for beam in (1, 5)] == [True, False]
    assert [met[f"transcribe_b{b} over sized_b{b} on whole utterances"] for b in (1, 5)] == [True, False]
    assert [met[f"partials_cpu_ratio.batch{n}"] for n in (1, 8)] == [True, False]
    assert met["an hour's cost per second over half a minute's"]
    assert not met["texts on sound without speech"]
    assert not met["stable words that differ from the final"]
    assert goals({}) == []


def test_the_whole_command_prints_json_a_table_and_a_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clockwork()
    monkeypatch.setattr(bench, "Bank", lambda *_: StubBank(clock))
    monkeypatch.setattr(bench, "Stopwatch", lambda _: stopwatch(clock))
    monkeypatch.setattr(bench, "load_recordings", lambda *_: recordings(2, 5, 9, 12))
    picture, texts = tmp_path / "fit.svg", tmp_path / "texts.jsonl"
    arguments = ["--speech", str(DATA), "--live-seconds", "5", "--plot", str(picture), "--texts", str(texts)]

    assert bench.main([*arguments, "--json"], {}) == 0
    report = json.loads(capsys.readouterr().out)
    documented = {"wer", "cpu_per_audio_s", "batch_texts", "partials_cpu_ratio", "fit", "live_cost", "stable"}
    assert documented | {"detectors", "fallbacks", "goals", "loops", "spread", "machine", "model", "plan"} <= set(
        report
    )
    assert report["fallbacks"] == {"full_window": 2}
    assert report["plan"]["sections"] == list(SECTIONS)
    assert picture.read_text().startswith("<?xml")
    assert {row["decoder"] for row in map(json.loads, texts.read_text().splitlines())} == set(report["wer"])
    shown = table(report)
    assert all(name in shown for name in report["wer"])
    assert "Goals" in shown


def test_what_cannot_be_measured_is_refused_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BenchError, match=r"no recordings with texts"):
        load_recordings(tmp_path)
    with pytest.raises(BenchError, match="there is no folder"):
        load_recordings(tmp_path / "nowhere")
    (tmp_path / "manifest.csv").write_text("id,file\nx,x.flac\n")
    with pytest.raises(BenchError, match="lacks the column 'reference'"):
        load_recordings(tmp_path)
    (tmp_path / "manifest.csv").write_text("id,file,reference\nx,x.flac,hello\n")
    with pytest.raises(BenchError, match=r"x\.flac cannot be read"):
        load_recordings(tmp_path)
    for wrong, why in (("fit.bmp", "ends in"), ("nowhere/fit.svg", "no folder")):
        with pytest.raises(BenchError, match=why):
            check_plot(tmp_path / wrong)
    monkeypatch.setattr("workers.bench_fit.importlib.util.find_spec", lambda _: None)
    with pytest.raises(BenchError, match=r"hearline\[bench\]"):
        check_plot(tmp_path / "fit.svg")
    with pytest.raises(SystemExit):
        bench.parse(["--speech", ".", "--only", "whole", "--plot", "fit.svg"])


def test_a_section_that_fails_leaves_the_others_their_figures() -> None:
    clock = Clockwork()
    plan = Plan(DATA, repeats=1, streams=8, seed=1, batches=(4,), sections=("fit", "stable"))
    found = measure(cast("Bank", StubBank(clock)), recordings(9), stopwatch(clock), plan, lambda _: None)
    assert set(found.report["failed"]) == {"fit"}, "one point makes no line"
    assert found.report["stable"]["words"] > 0


def test_the_same_points_give_the_same_picture(tmp_path: Path) -> None:
    points = {name: [(1.0, 0.1), (2.0, 0.2), (3.0, 0.31)] for name in ("full", "sized")}
    found = {name: describe(of, []) for name, of in points.items()}
    found["sized"]["once"] = found["sized"]
    points["sized, decoded twice"] = [(2.0, 0.2)]
    for name in ("a.svg", "b.svg"):
        plot(points, found, "cpu", tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def _write_wav(path: Path, samples: Samples) -> None:
    import wave

    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, SECOND, 0, "NONE", ""))
        file.writeframes(to_pcm(samples))
