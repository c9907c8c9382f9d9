"""However the bytes are cut into messages, the buffer holds the same samples."""

from __future__ import annotations

import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.framing import Framer
from sessions.limits import SessionLimits, in_bytes
from sessions.sniff import Sniffer
from sessions.wire import End, Final, Flush, Start
from tests.support.recordings import recording
from tests.support.session_driver import Driver, speechlike

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no fault of the code."""

SOUND = speechlike(3.0)

lengths = st.integers(0, len(SOUND))
frame_sizes = st.lists(st.sampled_from([0, 1, 2, 3, 641, 3_200, 6_400, 100_000]) | st.integers(1, 9_000), min_size=1)


def frames(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut ``data`` by ``sizes``, over and over."""
    cut, at, turn = [], 0, 0
    sizes = [*sizes, 1_000]
    while at < len(data):
        size = sizes[turn % len(sizes)]
        cut.append(data[at : at + size])
        at, turn = at + size, turn + 1
    return cut


@given(length=lengths, sizes=frame_sizes)
@settings(patient)
def test_the_buffer_is_bit_for_bit_what_was_sent(length: int, sizes: list[int]) -> None:
    driver = Driver()
    data = SOUND[:length]
    for frame in frames(data, sizes):
        driver.audio(frame, frame=len(frame) or 1)
        assert driver.session.buffered_bytes <= in_bytes(SessionLimits().coalesce_s) + 9_000
    driver.text(End())
    assert bytes(driver.buffer) == data[: length // 2 * 2]
    assert driver.session.summary.audio_bytes == length // 2 * 2


@given(length=lengths, sizes=frame_sizes)
@settings(patient, max_examples=30)
def test_the_same_jobs_are_asked_for_with_one_byte_messages(length: int, sizes: list[int]) -> None:
    """Partials depend on when audio arrives, finals on nothing but the bytes before each flush."""

    def finals(cuts: list[int]) -> list[tuple[int, int]]:
        driver = Driver(SessionLimits())
        driver.text(Start(partials=False))
        for part in (SOUND[: length // 2], SOUND[length // 2 : length]):
            for frame in frames(part, cuts):
                driver.audio(frame, frame=len(frame) or 1)
            driver.text(Flush())
        driver.text(End())
        return [(job.start_byte, job.end_byte) for job in driver.jobs]

    assert finals(sizes) == finals([len(SOUND)])


@given(
    start=st.integers(0, 12).map(lambda tenths: tenths * 32_000),
    sizes=frame_sizes,
    flush_at=st.none() | st.integers(0, 7 * 32_000),
    endpoint_s=st.sampled_from([0.2, 0.8, None]),
)
@settings(patient, max_examples=25)
def test_the_same_speech_gives_the_same_segments_jobs_and_texts(
    start: int, sizes: list[int], flush_at: int | None, endpoint_s: float | None
) -> None:
    """Eight seconds of sentences and pauses, whole or in messages of any length, answered at once or late."""
    data = recording("pauses")[start : start + 8 * 32_000]
    flush_at = len(data) if flush_at is None else flush_at

    def conversation(cuts: list[int], *, late: bool) -> list[Final]:
        driver, answered = Driver(endpoint_s=endpoint_s), 0
        driver.text(Start())

        def answer() -> None:
            nonlocal answered
            while answered < len(driver.jobs):
                job = driver.jobs[answered]
                answered += 1
                audio = bytes(driver.buffer[job.start_byte : job.end_byte])
                assert audio == data[job.start_byte : job.end_byte]
                driver.deliver(job, f"{job.id} {hash(audio)}", event=answered)

        for part in (data[:flush_at], data[flush_at:]):
            for frame in frames(part, cuts):
                driver.audio(frame, frame=len(frame) or 1)
                if not late:
                    answer()
            driver.text(Flush())
        driver.text(End())
        answer()
        assert driver.closed == (1000, "done")
        assert driver.finals[-1].end_s == round(len(data) // 2 / 16_000, 4)
        assert [final.start_s for final in driver.finals] == [0.0, *(final.end_s for final in driver.finals[:-1])]
        return [final.model_copy(update={"seq": 0}) for final in driver.finals]

    assert conversation(sizes, late=False) == conversation([len(data)], late=True)


@given(
    pieces=st.lists(st.tuples(st.binary(max_size=50), st.booleans(), st.integers(-20, 400)), max_size=20),
)
@settings(patient)
def test_the_framer_lets_whole_samples_be_heard_and_stored_in_order(pieces: list[tuple[bytes, bool, int]]) -> None:
    framer, heard, out = Framer(), bytearray(), bytearray()
    for piece, store, drop in pieces:
        framer.feed(piece)
        heard += framer.hear()
        assert framer.received == len(heard)
        framer.drop(drop // 2 * 2)
        taken = framer.take() if store else None
        if taken is not None:
            offset, data = taken
            assert offset >= len(out), "only what was dropped is left out"
            assert len(data) % 2 == 0
            out += heard[len(out) : offset] + data
            assert framer.taken == len(out)
        assert framer.pending <= len(heard) + 1 - framer.taken
    everything = b"".join(piece for piece, _, _ in pieces)
    assert bytes(heard) == everything[: len(everything) // 2 * 2]
    assert bytes(out) == everything[: len(out)]


chunks = st.tuples(st.sampled_from([b"LIST", b"JUNK", b"bext", b"fact", b"id3 "]), st.binary(max_size=99))


def chunk(name: bytes, body: bytes, size: int | None = None) -> bytes:
    return name + struct.pack("<I", len(body) if size is None else size) + body + bytes(len(body) % 2)


@given(
    before=st.lists(chunks, max_size=3),
    after=st.lists(chunks, max_size=3),
    samples=st.integers(1, 2_000),
    declared=st.sampled_from(["right", "zero", "all ones"]),
    twice=st.booleans(),
    sizes=frame_sizes,
)
@settings(patient)
def test_a_wav_file_gives_its_samples_however_it_is_cut(
    before: list[tuple[bytes, bytes]],
    after: list[tuple[bytes, bytes]],
    samples: int,
    declared: str,
    twice: bool,
    sizes: list[int],
) -> None:
    data = SOUND[: samples * 2]
    size = {"right": len(data), "zero": 0, "all ones": 0xFFFFFFFF}[declared]
    if declared != "right":  # then everything up to the end is data
        after, twice = [], False
    fmt = struct.pack("<HHIIHH", 1, 1, 16_000, 32_000, 2, 16)
    body = chunk(b"fmt ", fmt) + b"".join(chunk(*c) for c in before) + chunk(b"data", data, size)
    body += b"".join(chunk(*c) for c in after)
    file = b"RIFF" + struct.pack("<I", len(body) + 4) + b"WAVE" + body
    sniffer = Sniffer()
    out = b"".join(sniffer.feed(frame) for frame in frames(file * (1 + twice), sizes)) + sniffer.end()
    assert out == data * (1 + twice)
    assert sniffer.held < 100
