"""The wire: what one side encodes the other decodes; whatever else comes is a WireError and nothing worse."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.codes import ErrorCode
from sessions.wire import (
    MAX_ENDPOINT_MS,
    MAX_LAST_SEQ,
    MIN_ENDPOINT_MS,
    Ack,
    ClientMessage,
    Done,
    End,
    Error,
    Final,
    Flush,
    Keepalive,
    Limits,
    Partial,
    Ready,
    Resume,
    ServerMessage,
    Start,
    Status,
    Timing,
    UnknownType,
    WireError,
    Word,
    decode_client,
    decode_server,
    encode,
)

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no fault of the code."""

texts = st.text(st.characters(exclude_categories=["Cs"]))
seconds = st.floats(0, 1e6)
counts = st.integers(0, 2**40)
numbers = st.integers(1, 2**40)

starts = st.builds(
    Start,
    sample_rate=st.integers(-1, 10**6),
    encoding=st.text(st.characters(exclude_categories=["Cs"]), max_size=64),
    channels=st.integers(-1, 64),
    language=st.none() | st.from_regex(r"\A[a-z]{2,3}\Z"),
    partials=st.booleans(),
    words=st.booleans(),
    task=st.sampled_from(["transcribe", "translate"]),
    endpoint_ms=st.none() | st.just(False) | st.integers(MIN_ENDPOINT_MS, MAX_ENDPOINT_MS),
    initial_prompt=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    hotwords=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
    client_ref=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=128),
    resume=st.none() | st.booleans(),
)
resumes = st.builds(
    Resume,
    session=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64),
    token=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=128),
    last_seq=st.integers(0, MAX_LAST_SEQ),
)
client_messages = starts | resumes | st.sampled_from([Flush(), Keepalive(), End()])

words = st.builds(Word, text=texts, start_s=seconds, end_s=seconds, probability=st.floats(0, 1))
limits = st.builds(
    Limits,
    max_audio_s=st.none() | seconds,
    max_frame_bytes=counts,
    max_text_bytes=counts,
    idle_timeout_s=seconds,
    inference_timeout_s=seconds,
    partial_interval_s=seconds,
    min_partial_audio_s=seconds,
    endpoint_ms=st.just(False) | st.integers(MIN_ENDPOINT_MS, MAX_ENDPOINT_MS),
)
server_messages = st.one_of(
    st.builds(
        Ready,
        session=texts,
        protocol=counts,
        limits=limits,
        token=st.none() | texts,
        resume_s=seconds,
        received_s=seconds,
        resumed=st.booleans(),
    ),
    st.builds(Ack, received_s=seconds),
    st.builds(Status, lag_s=seconds, partial_interval_s=seconds),
    st.builds(Partial, seq=numbers, start_s=seconds, end_s=seconds, stable=texts, text=texts),
    st.builds(
        Final,
        seq=numbers,
        start_s=seconds,
        end_s=seconds,
        text=texts,
        last=st.booleans(),
        speech_start_s=st.none() | seconds,
        speech_end_s=st.none() | seconds,
        words=st.none() | st.lists(words, max_size=3).map(tuple),
        timing=st.none() | st.builds(Timing, queue_ms=counts, decode_ms=counts, audio_s=seconds),
    ),
    st.builds(Done, audio_s=seconds, finals=counts),
    st.builds(
        Error,
        code=st.sampled_from(ErrorCode).map(str) | texts,
        message=texts,
        fatal=st.booleans(),
        retry_after_s=st.none() | seconds,
    ),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def refusal(decode: Callable[[str | bytes], object], data: str | bytes) -> WireError | None:
    """Why ``data`` is refused; any other exception is a failure of the test."""
    try:
        decode(data)
    except WireError as error:
        return error
    return None


@given(client_messages)
@settings(patient)
def test_client_messages_survive_the_wire(message: ClientMessage) -> None:
    assert decode_client(encode(message)) == message
    assert decode_client(encode(message).encode()) == message


@given(server_messages)
@settings(patient)
def test_server_messages_survive_the_wire(message: ServerMessage) -> None:
    assert decode_server(encode(message)) == message


@given(server_messages, st.dictionaries(texts, json_values, max_size=3))
@settings(patient)
def test_fields_of_a_newer_protocol_are_ignored(message: ServerMessage, extra: dict[str, object]) -> None:
    known = type(message).model_fields.keys()
    newer = {name: value for name, value in extra.items() if name not in known} | json.loads(encode(message))
    assert decode_server(json.dumps(newer)) == message


@given(st.binary(max_size=200) | st.text(max_size=200) | json_values.map(json.dumps))
@settings(patient)
def test_whatever_comes_is_understood_or_a_wire_error(data: bytes | str) -> None:
    for decode in (decode_client, decode_server):
        problem = refusal(decode, data)
        assert problem is None or (problem.code in (ErrorCode.BAD_MESSAGE, ErrorCode.UNKNOWN_TYPE) and str(problem))


@given(
    st.sampled_from(["start", "flush", "keepalive", "end", "ready", "final", "error", "sing"]),
    st.dictionaries(
        st.sampled_from(["sample_rate", "language", "words", "client_ref", "seq", "text", "last", "retry_after_s"]),
        json_values,
    ),
)
@settings(patient)
def test_wrong_fields_are_named(kind: str, fields: dict[str, object]) -> None:
    for decode in (decode_client, decode_server):
        problem = refusal(decode, json.dumps({"type": kind} | fields))
        if isinstance(problem, UnknownType):
            assert problem.kind == kind
        elif problem is not None:
            assert str(problem).startswith(kind)
            assert len(str(problem)) < 400


def test_lone_surrogates_and_deep_nesting_are_bad_messages() -> None:
    for text in ('{"type":"end\ud800"}', "[" * 15_000, '{"a":' * 3_000):
        with pytest.raises(WireError):
            decode_client(text)
