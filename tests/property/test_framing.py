"""However the bytes are cut into messages, the buffer holds the same samples."""

from __future__ import annotations

import struct

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.framing import Framer
from sessions.limits import SessionLimits
from sessions.sniff import Sniffer
from sessions.wire import End, Flush, Start
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
        assert driver.session.buffered_bytes <= 6_400 + 9_000
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


@given(pieces=st.lists(st.binary(max_size=50), max_size=20), coalesce=st.integers(1, 64))
@settings(patient)
def test_the_framer_hands_on_whole_samples_in_order(pieces: list[bytes], coalesce: int) -> None:
    framer, out = Framer(coalesce * 2), bytearray()
    for piece in pieces:
        framer.feed(piece)
        taken = framer.take()
        if taken is not None:
            offset, data = taken
            assert offset == len(out)
            assert len(data) >= coalesce * 2
            out += data
        assert framer.received == (len(out) + framer.pending) // 2 * 2
    rest = framer.take(everything=True)
    out += rest[1] if rest else b""
    assert bytes(out) == b"".join(pieces)[: len(out)]
    assert framer.pending <= 1


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
