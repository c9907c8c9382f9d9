"""The stand-in is honest: its text tells which bytes were decoded, its time follows the table."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest

from queueing.errors import SettingsError
from queueing.lane import Kind
from workers.scripted import BLOCK_SAMPLES, Fault, Script, ScriptedTranscriber, scripted_text
from workers.transcriber import DecodeError, DecodeRequest, Transcript, samples_of


class Recorder:
    """Collects the pauses and exit statuses that a transcriber asks for."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self.exits: list[int] = []

    def transcriber(self, script: Script) -> ScriptedTranscriber:
        return ScriptedTranscriber(script, pause=self.pauses.append, crash=self.exits.append)


def noise(rng: random.Random, samples: int) -> bytes:
    return np.array([rng.randrange(-32768, 32768) for _ in range(samples)], dtype="<i2").tobytes()


def request(pcm: bytes, kind: Kind = Kind.FINAL, *, words: bool = False) -> DecodeRequest:
    return DecodeRequest(samples_of(pcm), kind, words=words)


def text_of(answer: Transcript | DecodeError) -> str:
    assert isinstance(answer, Transcript)
    return answer.text


def test_the_text_can_be_computed_from_the_bytes(rng: random.Random) -> None:
    pcm = noise(rng, 20_001)
    (answer,) = Recorder().transcriber(Script()).decode([request(pcm)])
    assert text_of(answer) == scripted_text(pcm)
    assert len(text_of(answer).split()) == 3


def test_any_changed_sample_changes_the_text(rng: random.Random) -> None:
    pcm = bytearray(noise(rng, 12_000))
    before = scripted_text(bytes(pcm))
    for _ in range(20):
        place = rng.randrange(len(pcm))
        pcm[place] ^= 1 << rng.randrange(8)
        after = scripted_text(bytes(pcm))
        assert after != before
        before = after


def test_growing_audio_keeps_the_words_of_its_whole_blocks(rng: random.Random) -> None:
    pcm = noise(rng, BLOCK_SAMPLES * 4)
    long, short = scripted_text(pcm).split(), scripted_text(pcm[: BLOCK_SAMPLES * 2 * 2 + 100]).split()
    assert short[:2] == long[:2]
    assert short[2] != long[2]


def test_digital_silence_is_no_words() -> None:
    assert scripted_text(bytes(64_000)) == ""
    assert scripted_text(b"") == ""


def test_words_cover_the_audio_in_order(rng: random.Random) -> None:
    pcm = noise(rng, 20_000)
    (answer,) = Recorder().transcriber(Script()).decode([request(pcm, words=True)])
    assert isinstance(answer, Transcript)
    assert [word.start_s for word in answer.words] == [0.0, 0.5, 1.0]
    assert answer.words[-1].end_s == 1.25
    assert " ".join(word.text for word in answer.words) == answer.text


def test_decode_time_is_affine_in_the_audio(rng: random.Random) -> None:
    script = Script(base_s=0.5, per_audio_s=0.1, kind_scale={Kind.PARTIAL: 0.5})
    recorder = Recorder()
    second = request(noise(rng, 16_000))
    recorder.transcriber(script).decode([second, second])
    recorder.transcriber(script).decode([request(noise(rng, 16_000), Kind.PARTIAL)])
    assert recorder.pauses == pytest.approx([0.7, 0.3])


def test_a_batch_shares_its_base_time_and_finals_do_so_where_the_table_says(rng: random.Random) -> None:
    final, partial = (request(noise(rng, 16_000), kind) for kind in (Kind.FINAL, Kind.PARTIAL))
    times = {"base_s": 1.0, "per_job_s": 0.1, "per_audio_s": 0.0}
    together, apart = Script(**times), Script(**times, batches_finals=False)
    assert together.decode_s([final] * 4) == together.decode_s([partial] * 4) == pytest.approx(1.4)
    assert apart.decode_s([partial] * 4) == pytest.approx(1.4)
    assert apart.decode_s([final] * 4) == pytest.approx(4.4)
    assert apart.decode_s([final, partial, partial]) == pytest.approx(2.3)
    assert apart.decode_s([]) == pytest.approx(1.0)
    assert [Recorder().transcriber(script).batches_finals for script in (together, apart)] == [True, False]


def test_the_table_gives_texts_by_digest(rng: random.Random) -> None:
    pcm = noise(rng, 8_000)
    digest = hashlib.sha256(pcm).hexdigest()
    script = Script(texts={digest[:12]: "hello there"})
    answers = Recorder().transcriber(script).decode([request(pcm), request(pcm + b"\1\0")])
    assert text_of(answers[0]) == "hello there"
    assert text_of(answers[1]) == scripted_text(pcm + b"\1\0")


def marked(mark: int, rng: random.Random) -> DecodeRequest:
    return request(np.array([mark], dtype="<i2").tobytes() + noise(rng, 100))


def test_faults_follow_the_first_sample(rng: random.Random) -> None:
    recorder = Recorder()
    transcriber = recorder.transcriber(
        Script(
            base_s=0,
            per_audio_s=0,
            faults={
                1: Fault(do="error"),
                2: Fault(do="slow", seconds=9),
                3: Fault(do="crash"),
                4: Fault(do="raise"),
                5: Fault(do="hang"),
            },
        )
    )
    healthy, faulty = transcriber.decode([marked(0, rng), marked(1, rng)])
    assert isinstance(healthy, Transcript)
    assert isinstance(faulty, DecodeError)
    assert not faulty.retry
    transcriber.decode([marked(2, rng)])
    assert recorder.pauses[-1] == 9
    transcriber.decode([marked(3, rng)])
    assert recorder.exits == [70]
    transcriber.decode([marked(5, rng)])
    assert recorder.pauses[-1] >= 3600
    with pytest.raises(RuntimeError, match="broken"):
        transcriber.decode([marked(4, rng)])


def test_a_table_is_read_from_json(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"base_s": 1, "faults": {"-7": {"do": "hang"}}, "kind_scale": {"file": 3}}))
    script = Script.read(path)
    assert (script.base_s, script.faults[-7].do, script.kind_scale[Kind.FILE]) == (1, "hang", 3)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "Invalid JSON"),
        ('{"base_s": -1}', "base_s: Input should be greater than or equal to 0"),
        ('{"speed": 1}', "speed: Extra inputs"),
        ('{"faults": {"1": {"do": "explode"}}}', "faults.1.do"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(tmp_path: Path, content: str, problem: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(content)
    with pytest.raises(SettingsError, match=problem):
        Script.read(path)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"HEARLINE_SCRIPT=.*none\.json.*cannot be read"):
        Script.read(tmp_path / "none.json")
