"""The small values around a session: results, options, ids, limits, the summary."""

from __future__ import annotations

import json

import pytest

from sessions.codes import ErrorCode
from sessions.errors import AudioLost, BadMessage, UnknownType, WrongAudio
from sessions.keys import SessionKeys, check_session_id, final_job_id, partial_job_id
from sessions.limits import SessionLimits, in_bytes
from sessions.results import DecodedWord, DecodeOptions, DecodeResult
from sessions.summary import StreamSummary


def test_a_decode_result_survives_json() -> None:
    result = DecodeResult("a b", "tiny.en", "en", (DecodedWord("a", 0.0, 0.5, 0.25), DecodedWord("b", 0.5, 1.0, 1.0)))
    assert DecodeResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    assert DecodeResult.from_dict({"text": "", "model": "m"}) == DecodeResult("", "m")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"text": "a"},
        {"text": None, "model": "m"},
        {"text": "half a \ud83d pair", "model": "m"},
        {"text": "a", "model": "m", "language": 5},
        {"text": "a", "model": "m", "words": [{"text": "a"}]},
        {"text": "a", "model": "m", "words": "ab"},
        {"text": "a", "model": "m", "words": [{"text": "a", "start_s": "x", "end_s": 1, "probability": 1}]},
        {"text": "a", "model": "m", "words": [{"text": "a", "start_s": float("nan"), "end_s": 1, "probability": 1}]},
    ],
)
def test_a_malformed_result_is_a_value_error(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a decode result"):
        DecodeResult.from_dict(data)


def test_decode_options_survive_json_and_have_defaults() -> None:
    options = DecodeOptions(language="de", words=True)
    assert DecodeOptions.from_dict(json.loads(json.dumps(options.to_dict()))) == options
    assert DecodeOptions.from_dict({}) == DecodeOptions(language=None, words=False)
    for wrong in ({"language": 5}, {"words": "yes"}):
        with pytest.raises(ValueError, match="not decode options"):
            DecodeOptions.from_dict(wrong)


def test_keys_share_the_sessions_hash_tag() -> None:
    keys = SessionKeys("abc")
    assert (keys.audio, keys.meta) == ("hl:{s:abc}:audio", "hl:{s:abc}:meta")
    assert (partial_job_id("abc", 7), final_job_id("abc", 0)) == ("abc:p:7", "abc:f:0")
    assert check_session_id("A-z_09") == "A-z_09"
    with pytest.raises(ValueError, match="session id 'a:b'"):
        check_session_id("a:b")


def test_limits_that_cannot_be_are_refused() -> None:
    assert SessionLimits().wire(0.8).max_audio_s is None
    for wrong in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"max_audio_s is {wrong}"):
            SessionLimits(max_audio_s=wrong)
        with pytest.raises(ValueError, match=f"endpoint_s is {wrong}"):
            SessionLimits(endpoint_s=wrong)


def test_seconds_become_whole_samples() -> None:
    assert in_bytes(1.0) == 32_000
    assert in_bytes(0.0) == 2
    assert in_bytes(1 / 30_000) == 2
    assert all(in_bytes(n / 7919) % 2 == 0 for n in range(50))


def test_errors_carry_what_they_are_about() -> None:
    lost = AudioLost("s", 4, 8)
    assert (lost.session, lost.held, lost.needed) == ("s", 4, 8)
    assert "8 bytes" in str(lost)
    assert (BadMessage("x").code, UnknownType("sing", ("end",)).code) == ("bad_message", "unknown_type")
    wrong = WrongAudio(ErrorCode.NOT_PCM16, "this is text", "send sound")
    assert str(wrong) == "this is text; send sound"


def test_the_summary_keeps_the_newest_values_only_and_logs_flat_ones() -> None:
    summary = StreamSummary("s", client_ref="r")
    for number in range(250):
        summary.note_final(float(number), decoded_s=0.0)
        summary.note_partial(3.0 + number, age_s=0.5)
    assert len(summary.final_latencies_s) == len(summary.partial_staleness_s) == 100
    assert summary.final_latencies_s[-1] == 249.0
    fields = summary.log_fields()
    assert (fields["final_latency_max_s"], fields["partial_staleness_mean_s"]) == (249.0, 0.5)
    assert (fields["finals_sent"], fields["partials_sent"], fields["first_partial_s"]) == (250, 250, 3.0)
    assert all(value is None or isinstance(value, str | int | float) for value in fields.values())
    assert summary.amplification == 0.0, "no audio, no division"
