"""How a stream opens: start, options, what may come first, what is refused."""

from __future__ import annotations

import json
from typing import Literal

import pytest

from queueing.lane import Kind
from sessions.effects import AppendAudio, OpenBuffer, Send
from sessions.limits import KEEP_BUFFER_S, SessionLimits
from sessions.wire import MAX_BAD_MESSAGES, MAX_TEXT_BYTES, Done, End, Flush, Keepalive, Ready, Resume, Start
from tests.support.session_driver import Driver, speechlike


def test_start_is_answered_by_ready_with_the_limits() -> None:
    driver = Driver(SessionLimits(max_audio_s=60, idle_timeout_s=7))
    driver.text(Start(client_ref="ward 3", language="en", words=True))
    (ready,) = driver.of(Ready)
    assert (ready.session, ready.protocol) == ("s1", 1)
    assert (ready.limits.max_audio_s, ready.limits.idle_timeout_s) == (60, 7)
    assert driver.meta == [
        {
            "front": "front-1",
            "started_ms": "5",
            "client_ref": "ward 3",
            "language": "en",
            "task": "transcribe",
            "partials": "1",
            "words": "1",
            "endpoint_ms": "off",
        }
    ]


@pytest.mark.parametrize("first", [Flush(), Keepalive(), End()])
def test_any_other_first_message_means_the_defaults(first: Flush | Keepalive | End) -> None:
    driver = Driver()
    driver.text(first)
    assert isinstance(driver.sent[0], Ready)
    assert driver.meta[0]["language"] == ""


def test_audio_first_means_the_defaults() -> None:
    driver = Driver()
    driver.audio(b"")
    assert driver.of(Ready), "also a frame of no bytes settles the options"
    driver.audio(0.1)
    assert len(driver.of(Ready)) == 1


def test_who_says_nothing_gets_ready_after_the_handshake_time_and_may_still_choose() -> None:
    driver = Driver(SessionLimits(handshake_timeout_s=10))
    driver.wait(9.9)
    assert driver.sent == []
    driver.wait(0.1)
    assert [type(message) for message in driver.sent] == [Ready]
    driver.text(Start(language="de", client_ref="late"))
    assert len(driver.of(Ready)) == 1
    assert driver.errors == []
    assert driver.meta[-1]["language"] == "de"
    driver.audio(1.0)
    assert driver.jobs[0].options == {"language": "de"}


def test_the_jobs_carry_what_start_asked_for() -> None:
    driver = Driver()
    driver.text(Start(language="de", task="translate", initial_prompt="Hearline.", hotwords="lane, lease"))
    driver.audio(1.0)
    assert driver.jobs[0].options == {
        "language": "de",
        "translate": True,
        "initial_prompt": "Hearline.",
        "hotwords": "lane, lease",
    }
    assert "Hearline." not in str(driver.meta), "the texts may hold names"


@pytest.mark.parametrize(
    ("server_s", "wanted", "told"), [(0.8, None, 800), (0.8, 2_000, 2_000), (0.8, False, False), (None, 100, 100)]
)
def test_ready_tells_the_pause_that_ends_a_segment_of_this_stream(
    server_s: float | None, wanted: int | Literal[False] | None, told: int | bool
) -> None:
    driver = Driver(endpoint_s=server_s)
    driver.text(Start(endpoint_ms=wanted))
    (ready,) = driver.of(Ready)
    assert ready.limits.endpoint_ms == told
    assert driver.meta[0]["endpoint_ms"] == (str(told) if told else "off")


def test_start_twice_and_start_after_audio_are_bad_state_and_change_nothing() -> None:
    driver = Driver()
    driver.text(Start(language="en"))
    driver.text(Start(language="fr"))
    driver.audio(1.0)
    driver.text(Start(language="fr"))
    assert driver.errors == ["bad_state", "bad_state"]
    assert not driver.last_error.fatal
    assert driver.jobs[0].options["language"] == "en"
    other = Driver()
    other.audio(0.1)
    other.text(Start(language="fr"))
    assert other.errors == ["bad_state"]


@pytest.mark.parametrize(
    ("start", "named"),
    [
        (Start(sample_rate=8_000), "8000 Hz"),
        (Start(channels=2), "2 channel(s)"),
        (Start(encoding="opus"), "opus"),
    ],
)
def test_another_format_is_refused_with_what_to_send(start: Start, named: str) -> None:
    driver = Driver()
    driver.text(start)
    assert driver.errors == ["unsupported_format"]
    assert named in driver.last_error.message
    assert "16 kHz mono 16-bit little-endian PCM" in driver.last_error.message
    assert driver.closed == (1003, "unsupported_format")
    assert driver.cancelled == 1
    assert not driver.of(Ready)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("{", "bad_message", "not JSON"),
        ("[]", "bad_message", "list"),
        ("{}", "bad_message", "'type'"),
        ('{"type":5}', "bad_message", "'type'"),
        ('{"type":"start","sample_rate":"16000"}', "bad_message", "start.sample_rate is '16000'"),
        ('{"type":"start","language":"english"}', "bad_message", "start.language is 'english'"),
        ('{"type":"start","words":1}', "bad_message", "start.words is 1"),
        ('{"type":"start","client_ref":"' + "x" * 129 + '"}', "bad_message", "at most 128"),
        ('{"type":"start","endpoint_ms":99}', "bad_message", "start.endpoint_ms is 99: give 100 to 10000 whole"),
        ('{"type":"start","endpoint_ms":10001}', "bad_message", "or false for no cuts"),
        ('{"type":"start","endpoint_ms":true}', "bad_message", "start.endpoint_ms is True"),
        ('{"type":"start","task":"summarize"}', "bad_message", "'transcribe' or 'translate'"),
        ('{"type":"start","initial_prompt":"' + "x" * 1_001 + '"}', "bad_message", "at most 1000"),
        ('{"type":"start","hotwords":"' + "x" * 501 + '"}', "bad_message", "at most 500"),
        ('{"type":"sing"}', "unknown_type", "'sing'"),
        ("x" * 1_000_000, "bad_message", f"1000000 bytes; at most {MAX_TEXT_BYTES}"),
    ],
)
def test_a_wrong_text_message_is_answered_and_the_stream_goes_on(text: str, code: str, named: str) -> None:
    driver = Driver()
    driver.text(text)
    assert driver.errors == [code]
    assert named in driver.last_error.message
    assert len(driver.last_error.message) < 400
    driver.text(Start())
    driver.text(End())
    assert isinstance(driver.sent[-1], Done)


def test_unknown_fields_are_ignored() -> None:
    driver = Driver()
    driver.text(json.dumps({"type": "start", "language": "en", "beam": 50, "model": {"a": 1}}))
    assert driver.errors == []
    assert driver.of(Ready)


def test_too_many_wrong_messages_end_the_stream() -> None:
    driver = Driver()
    for _ in range(MAX_BAD_MESSAGES - 1):
        driver.text("{")
    assert driver.closed is None
    driver.text("{")
    assert driver.errors[-1] == "too_many_errors"
    assert driver.closed == (1008, "too_many_errors")


def test_a_message_above_the_frame_limit_ends_the_stream_naming_it() -> None:
    driver = Driver(SessionLimits(max_frame_bytes=1_000))
    driver.audio(bytes(1_000), frame=1_000)
    assert driver.closed is None
    driver.audio(bytes(1_002), frame=2_000)
    assert driver.errors == ["frame_too_big"]
    assert "1002 bytes" in driver.last_error.message
    assert "at most 1000 bytes" in driver.last_error.message
    assert driver.closed == (1009, "frame_too_big")


def test_control_messages_sent_as_binary_are_recognised() -> None:
    first = Driver()
    first.audio(b'{"type":"start"}')
    assert first.errors == ["not_pcm16"]
    assert "as text" in first.last_error.message
    assert first.closed == (1003, "not_pcm16")
    later = Driver()
    later.audio(1.0)
    later.audio(b'{"type":"end"}')
    assert later.errors == ["bad_message"]
    assert later.closed is None
    later.text(End())
    assert later.session.summary.audio_bytes == 32_000, "its bytes did not become sound"


def test_wrong_bytes_end_the_stream_with_the_likely_cause() -> None:
    driver = Driver()
    driver.audio(b"OggS" + bytes(200))
    assert driver.errors == ["not_pcm16"]
    assert "Ogg" in driver.last_error.message
    assert driver.closed == (1003, "not_pcm16")
    assert driver.jobs == []


@pytest.mark.parametrize("then", [Flush(), End()])
def test_bytes_that_only_a_final_shows_to_be_wrong_end_the_stream_the_same_way(then: Flush | End) -> None:
    """AAC frames as long as they can be keep the sniffer waiting for more than a block of sound checks."""
    swapped = b"".join((abs(i % 800 - 400) * 60 - 12_000).to_bytes(2, "big", signed=True) for i in range(8_193))
    data = bytearray(swapped)
    data[0:7] = data[8191:8198] = b"\xff\xf1\x50\x83\xff\xff\xfc"
    data[16382:16386] = b"\xff\xf1\x50\x83"
    driver = Driver()
    driver.audio(bytes(data))
    assert driver.errors == []
    driver.text(then)
    assert driver.errors == ["not_pcm16"]
    assert driver.closed == (1003, "not_pcm16")


def test_without_partials_none_are_asked_for() -> None:
    driver = Driver()
    driver.text(Start(partials=False))
    driver.live(5)
    driver.text(End())
    assert [job.kind for job in driver.jobs] == [Kind.FINAL]


def test_keepalive_keeps_the_stream_and_its_buffer() -> None:
    driver = Driver(SessionLimits(idle_timeout_s=30))
    driver.audio(0.5)
    effects = []
    for _ in range(8):
        driver.wait(20)
        effects += driver.text(Keepalive())
    assert driver.closed is None
    appends = [effect for effect in effects if isinstance(effect, AppendAudio)]
    kept = AppendAudio(16_000, b"", follows=16_000, keep_from=0)
    assert appends == [kept] * int(160 // KEEP_BUFFER_S), "the expiry is renewed once a minute"


def test_session_ids_that_could_break_a_key_are_refused() -> None:
    from sessions.session import Session

    for bad in ("", "a:b", "a}b", "x" * 65, "a b"):
        with pytest.raises(ValueError, match="session id"):
            Session(bad, "f", SessionLimits(), now=0.0)


def test_nothing_happens_after_the_end() -> None:
    driver = Driver()
    driver.text(End())
    assert driver.closed == (1000, "done")
    count = len(driver.sent)
    for _ in range(2):
        driver.text(Flush())
        driver.text("{")
        driver.audio(speechlike(0.1))
        driver.wait(100)
        for effects in (
            driver.session.on_reconnected(driver.now),
            driver.session.on_workers(driver.now, alive=False),
            driver.session.on_drain(driver.now, driver.now + 1),
            driver.session.on_fault(driver.now, "late"),
            driver.session.on_append_failed(driver.now, lost=True, detail="late"),
            driver.session.on_disconnect(driver.now),
        ):
            assert not any(isinstance(effect, Send | OpenBuffer) for effect in driver.run(effects))
    assert len(driver.sent) == count
    assert driver.cancelled == 1
    assert driver.session.next_tick() is None


def test_a_resume_of_nothing_is_refused_and_one_that_comes_late_is_ignored() -> None:
    resume = Resume(session="s1", token="t", last_seq=0)
    driver = Driver()
    driver.text(resume)
    assert driver.errors == ["resume_refused"]
    assert driver.closed == (1008, "resume_refused")
    driver = Driver()
    driver.text(Start())
    driver.text(resume)
    assert driver.errors == ["bad_state"]
    assert driver.closed is None


def test_a_client_cannot_raise_a_limit_of_the_server() -> None:
    limits = SessionLimits(max_audio_s=2.0, max_frame_bytes=10_000, idle_timeout_s=5, partial_interval_s=1.0)
    driver = Driver(limits)
    wishes = '"max_audio_s":9999,"max_frame_bytes":99999999,"idle_timeout_s":9999,"partial_interval_s":0.001'
    driver.text(f'{{"type":"start",{wishes},"limits":{{{wishes}}}}}')
    (ready,) = driver.of(Ready)
    assert ready.limits == limits.wire(None)
    driver.audio(1.9)
    driver.text('{"type":"start","max_audio_s":9999}')
    driver.audio(1.0)
    assert "audio_limit" in driver.errors
    assert sum(job.audio_s for job in driver.asked(Kind.FINAL)) == pytest.approx(2.0)
    for pause_ms in (0, 99, 10_001, -1):
        refused = Driver(limits)
        refused.text(f'{{"type":"start","endpoint_ms":{pause_ms}}}')
        assert refused.errors == ["bad_message"]
