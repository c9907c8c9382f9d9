"""Real speech with pauses: segments end where speech ends, silence costs nothing, memory stays constant."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from queueing.job import EnqueueStatus, NewJob
from queueing.lane import Kind
from sessions.effects import AppendAudio, CancelPartial, TrimAudio
from sessions.endpointing import Endpointer
from sessions.limits import MAX_SEGMENT_S, SessionLimits
from sessions.results import DecodeResult
from sessions.voice import FIRST_LOUDNESS, Frames, Loudness
from sessions.wire import Done, End, Final, Flush, Partial, Start
from tests.support.recordings import recording
from tests.support.session_driver import Driver, at, delivery

PAUSES = recording("pauses")
SENTENCES = 7
SILENCE = bytes(32_000)


def listening(limits: SessionLimits | None = None, *, language: str | None = "en", partials: bool = False) -> Driver:
    """A stream that ends segments at pauses of 0.8 s."""
    driver = Driver(limits, endpoint_s=0.8)
    driver.text(Start(language=language, partials=partials))
    return driver


def speak(driver: Driver, data: bytes, *, answer: bool = True) -> None:
    """In real time, every 100 ms; the workers answer at once."""
    for start in range(0, len(data), 3_200):
        driver.wait(0.1)
        before = len(driver.jobs)
        driver.audio(data[start : start + 3_200])
        for job in driver.jobs[before:] if answer else ():
            driver.deliver(job, event=len(driver.jobs))


def test_every_sentence_becomes_a_final_while_the_stream_goes_on() -> None:
    driver = listening()
    speak(driver, PAUSES)
    assert len(driver.finals) == SENTENCES - 1, "after the last there is no pause yet"
    driver.text(End())
    driver.deliver(driver.jobs[-1], event=99)
    finals = driver.finals
    assert [final.last for final in finals] == [False] * (SENTENCES - 1) + [True]
    assert [final.start_s for final in finals] == [0.0] + [final.end_s for final in finals[:-1]]
    assert driver.sent[-1] == Done(audio_s=finals[-1].end_s, finals=SENTENCES)
    assert finals[-1].end_s == round(len(PAUSES) / 32_000, 4)
    for final, job in zip(finals, driver.jobs, strict=True):
        assert final.speech_start_s == round(job.start_byte / 32_000, 4) >= final.start_s
        assert final.speech_end_s == round(job.end_byte / 32_000, 4) <= final.end_s
        assert job.speech_s is not None
        assert 0.3 * job.audio_s < job.speech_s <= job.audio_s
    decoded_s = sum(job.audio_s for job in driver.jobs)
    assert decoded_s < 0.75 * len(PAUSES) / 32_000, "the pauses of 1.5 to 5 s are not decoded"


def test_an_end_with_nothing_open_adds_an_empty_last_final_up_to_the_end() -> None:
    driver = listening()
    speak(driver, PAUSES + SILENCE * 2)
    assert len(driver.finals) == SENTENCES
    driver.text(End())
    last = driver.finals[-1]
    assert (last.text, last.last, last.speech_start_s) == ("", True, None)
    assert (last.start_s, last.end_s) == (driver.finals[-2].end_s, round(len(PAUSES + SILENCE * 2) / 32_000, 4))
    assert driver.closed == (1000, "done")


def test_silence_makes_no_job_and_is_not_stored() -> None:
    driver = listening(partials=True)
    for _ in range(30):
        speak(driver, SILENCE)
        assert driver.session.buffered_bytes <= 32_000
    driver.text(Flush())
    assert driver.jobs == []
    assert len(driver.buffer) == 0
    assert [type(message).__name__ for message in driver.sent] == ["Ready"]
    driver.text(End())
    assert [(final.start_s, final.end_s, final.text) for final in driver.finals] == [(0.0, 30.0, "")]
    assert driver.closed == (1000, "done")


def test_partials_belong_to_speech_and_count_from_its_onset() -> None:
    driver = listening(SessionLimits(partial_interval_s=1.0, min_partial_audio_s=0.5), partials=True)
    speak(driver, SILENCE * 3 + PAUSES)
    partials = driver.asked(Kind.PARTIAL)
    finals = {job.segment: job for job in driver.asked(Kind.FINAL)}
    assert {job.segment for job in partials} == set(range(SENTENCES))
    for segment, final in finals.items():
        own = [job for job in partials if job.segment == segment]
        assert {job.start_byte for job in own} == {final.start_byte}
        assert at(0.5) <= own[0].end_byte - own[0].start_byte <= at(1.2), "the first, soon after the onset"
        assert all(at(1.0) <= b.end_byte - a.end_byte <= at(1.2) for a, b in pairwise(own))
        assert own[-1].end_byte <= final.end_byte + at(0.8), "none in the silence after the pause"
    seen = 0.0
    for message in driver.sent:
        if isinstance(message, Final):
            seen = message.end_s
        elif isinstance(message, Partial):
            assert message.start_s >= seen


def test_a_partial_that_waits_when_its_segment_ends_is_removed_with_the_final() -> None:
    driver = listening(partials=True)
    driver.answers = lambda job: EnqueueStatus.QUEUED
    cancelled: list[int] = []
    driver.cancel_partial = lambda: cancelled.append(1)
    speak(driver, PAUSES[: at(6.5)], answer=False)
    kinds = [job.kind for job in driver.jobs]
    assert Kind.FINAL in kinds
    assert kinds.index(Kind.FINAL) > kinds.index(Kind.PARTIAL)
    assert cancelled == [], "the final takes it out of the queue"
    late = driver.asked(Kind.PARTIAL)[0]
    driver.deliver(late)
    assert driver.partials == []


def test_flush_ends_the_segment_being_spoken_and_speech_goes_on_in_the_next() -> None:
    driver = listening()
    speak(driver, PAUSES[: at(2.0)])
    driver.text(Flush())
    (job,) = driver.jobs
    assert job.end_byte == at(2.0)
    driver.deliver(job, event=1)
    speak(driver, PAUSES[at(2.0) :])
    assert len(driver.finals) == SENTENCES, "one sentence in two"
    assert driver.finals[1].start_s == 2.0
    assert driver.jobs[1].start_byte == at(2.0), "it was cut in the middle of speech"


def test_stable_words_stay_in_a_segment_and_are_forgotten_after_it() -> None:
    driver = Driver()
    driver.text(Start(language="en"))
    for second in range(15):
        driver.wait(1)
        driver.audio(1.0)
        driver.deliver(driver.jobs[-1], "when is a lobster not" if second < 10 else "when was a lobster not a lobster")
    said = driver.partials
    assert len(said) == 11, "rarer from 5 s on"
    assert said[0].stable == ""
    assert said[-1].stable.startswith("when is a"), "what was stable stays as it was said"
    for earlier, later in pairwise(said):
        assert later.stable.startswith(earlier.stable)
    assert all(message.text.startswith(message.stable) for message in said)
    driver.text(Flush())
    driver.audio(1.0)
    driver.deliver(driver.jobs[-1], "something else")
    assert (driver.partials[-1].stable, driver.partials[-1].text) == ("", "something else")


@pytest.mark.parametrize(("probability", "text"), [(0.4, "text"), (0.9, ""), (None, "text")])
def test_finals_come_one_by_one_until_one_is_sure_of_its_language(probability: float | None, text: str) -> None:
    driver = listening(SessionLimits(inference_timeout_s=100), language=None)
    speak(driver, PAUSES, answer=False)
    assert [job.id for job in driver.jobs] == ["s1:f:0"], "five more are due, and held back"
    assert driver.jobs[0].options == {}

    def answer(job: NewJob, sure: float | None, said: str) -> None:
        result = DecodeResult(said, "m", "nl", language_probability=sure).to_dict()
        driver.run(driver.session.on_delivery(driver.now, delivery(job, event=len(driver.jobs), result=result)))

    answer(driver.jobs[0], probability, text)
    assert [job.id for job in driver.jobs] == ["s1:f:0", "s1:f:1"], "not sure yet: the next, alone"
    assert driver.jobs[1].options == {}
    answer(driver.jobs[1], 0.5, "zeker")
    assert [job.id for job in driver.jobs[2:]] == [f"s1:f:{segment}" for segment in range(2, SENTENCES - 1)]
    assert {job.options["language"] for job in driver.jobs[2:]} == {"nl"}
    assert len(driver.finals) == 2


def test_a_partial_before_the_language_is_known_names_none_and_one_after_it_does() -> None:
    driver = listening(language=None, partials=True)
    speak(driver, PAUSES[: at(10.0)])
    first_final = next(index for index, job in enumerate(driver.jobs) if job.kind is Kind.FINAL)
    assert all("language" not in job.options for job in driver.jobs[: first_final + 1])
    assert all(job.options["language"] == "en" for job in driver.jobs[first_final + 1 :])
    assert len(driver.jobs) > first_final + 1


def test_a_held_back_final_takes_its_waiting_partial_out_of_the_queue() -> None:
    driver = listening(language=None, partials=True)
    effects: list[object] = []
    for start in range(0, at(14.0), 3_200):
        effects += driver.run(driver.session.on_audio(driver.now, PAUSES[start : start + 3_200]))
    assert [job.id for job in driver.asked(Kind.FINAL)] == ["s1:f:0"]
    assert sum(isinstance(effect, CancelPartial) for effect in effects) == driver.session.summary.finals_requested - 1


class LoudnessDetector:
    """What is loud is a voice: for an hour in seconds."""

    def listen(self, frames: Frames) -> Iterator[tuple[float, float]]:
        samples = frames.astype(np.float32)
        energies = (samples * samples).sum(axis=1)
        return zip(np.where(energies > 256 * 300.0**2, 0.9, 0.1).tolist(), energies.tolist(), strict=True)

    def settle(self) -> tuple[int, Loudness]:
        return 0, FIRST_LOUDNESS


@pytest.mark.parametrize("endpoint_s", [0.8, None])
def test_an_hour_runs_in_constant_memory(endpoint_s: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Speech for twenty minutes without a pause worth the name, then with pauses, then a silence of ten."""
    monkeypatch.setattr("sessions.intake.Endpointer", partial(Endpointer, vad=LoudnessDetector()))
    talk = b"".join(PAUSES[at(a) : at(b)] for a, b in ((0.2, 2.2), (7.5, 10.0)))
    driver = Driver(SessionLimits(partial_interval_s=5.0), endpoint_s=endpoint_s)
    driver.text(Start(language="en"))
    sent, stored, base, answered = 0, 0, 0, 0
    most_stored = most_held = 0

    def hear(piece: bytes) -> None:
        nonlocal sent, stored, base, answered, most_stored, most_held
        for effect in driver.session.on_audio(driver.now, piece):
            if isinstance(effect, AppendAudio):
                assert effect.follows == stored
                base = effect.offset if stored <= effect.keep_from and effect.offset > stored else base
                stored = effect.offset + len(effect.data)
            elif isinstance(effect, TrimAudio):
                base = effect.before
            elif hasattr(effect, "job"):
                driver.jobs.append(effect.job)
        sent += len(piece)
        driver.now += len(piece) / 32_000
        for job in driver.jobs[answered:]:
            answered += 1
            assert base <= job.start_byte < job.end_byte <= stored
            for effect in driver.session.on_delivery(driver.now, delivery(job, event=answered)):
                base = effect.before if isinstance(effect, TrimAudio) else base
        most_stored = max(most_stored, stored - base)
        most_held = max(most_held, driver.session.buffered_bytes)

    for material, seconds in ((talk, 1_200), (PAUSES, 1_800), (SILENCE, 600)):
        sound = material * (seconds * 32_000 // len(material) + 1)
        for start in range(0, seconds * 32_000, 32_000):
            hear(sound[start : start + 32_000])
    assert sent == 3_600 * 32_000
    assert most_stored <= at(MAX_SEGMENT_S + 2)
    assert most_held <= at(1.0)
    assert len(driver.jobs) > 3_600 / 28
    assert not driver.session.waiting_for_finals
