"""The cache never gives a byte that a read would not have given, and reads only what it lacks."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueing.job import NewJob
from queueing.lane import Kind
from sessions.errors import AudioLost
from workers.audio_cache import AudioCache


def audio(session: str, start: int, end: int) -> bytes:
    """A stream whose every byte depends on its session and its place."""
    return bytes(random.Random(f"{session}{position}").getrandbits(8) for position in range(start, end))


@dataclass
class Store:
    """Redis as far as the cache sees it. ``held``: sessions -> the bytes that are there."""

    held: dict[str, tuple[int, int]] = field(default_factory=dict)
    reads: list[tuple[str, int, int]] = field(default_factory=list)
    read_bytes: int = 0
    kept_bytes: int = 0

    def read(self, session: str, start: int, end: int) -> bytes:
        first, last = self.held.get(session, (0, 10_000))
        if start < first or end > last:
            raise AudioLost(session, last, end)
        assert start < end, "nothing is asked for"
        self.reads.append((session, start, end))
        return audio(session, start, end)

    def count(self, read: int, kept: int) -> None:
        self.read_bytes += read
        self.kept_bytes += kept

    def cache(self, max_bytes: int = 10_000) -> AudioCache:
        return AudioCache(self.read, max_bytes, self.count)


def job(session: str, kind: Kind, start: int, end: int) -> NewJob:
    return NewJob(f"{session}:x", session, kind, 0, start, end, 1.0, "front")


def partial(session: str, start: int, end: int) -> NewJob:
    return job(session, Kind.PARTIAL, start, end)


def final(session: str, start: int, end: int) -> NewJob:
    return job(session, Kind.FINAL, start, end)


ranges = st.tuples(st.integers(0, 60), st.integers(1, 40)).map(lambda at: (at[0], at[0] + at[1]))


@given(
    asked=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(list(Kind)), ranges), max_size=40),
    max_bytes=st.integers(0, 120),
)
def test_any_job_gets_exactly_its_sessions_bytes(
    asked: list[tuple[str, Kind, tuple[int, int]]], max_bytes: int
) -> None:
    store = Store()
    cache = store.cache(max_bytes)
    wanted = 0
    for session, kind, (start, end) in asked:
        before = store.read_bytes
        assert cache.fetch(job(session, kind, start, end)) == audio(session, start, end)
        assert store.read_bytes - before <= end - start, "nothing is read twice"
        wanted += end - start
        assert 0 <= cache.held_bytes <= max_bytes
    assert store.read_bytes + store.kept_bytes == wanted
    assert store.read_bytes == sum(end - start for _, start, end in store.reads)


def test_a_growing_segment_is_read_once() -> None:
    store = Store()
    cache = store.cache()
    for end in (100, 150, 150, 260):
        cache.fetch(partial("a", 20, end))
    cache.fetch(final("a", 20, 300))
    assert store.reads == [("a", 20, 100), ("a", 100, 150), ("a", 150, 260), ("a", 260, 300)]
    assert (store.read_bytes, store.kept_bytes) == (280, 80 + 130 + 130 + 240)


def test_a_final_frees_what_lies_before_its_end() -> None:
    store = Store()
    cache = store.cache()
    cache.fetch(partial("a", 0, 200))
    cache.fetch(final("a", 0, 120))
    assert cache.held_bytes == 80
    cache.fetch(partial("a", 120, 220))
    assert store.reads[-1] == ("a", 200, 220), "the open segment's bytes are still here"
    cache.fetch(final("a", 120, 220))
    assert cache.held_bytes == 0


def test_a_final_reads_what_lies_before_and_behind() -> None:
    store = Store()
    cache = store.cache()
    cache.fetch(partial("a", 100, 200))
    assert cache.fetch(final("a", 50, 250)) == audio("a", 50, 250)
    assert store.reads[1:] == [("a", 50, 100), ("a", 200, 250)]


def test_another_segment_after_a_gap_replaces_the_old_one() -> None:
    store = Store()
    cache = store.cache()
    cache.fetch(partial("a", 0, 100))
    assert cache.fetch(partial("a", 150, 200)) == audio("a", 150, 200)
    assert cache.held_bytes == 50


def test_the_session_used_longest_ago_goes_first() -> None:
    store = Store()
    cache = store.cache(250)
    cache.fetch(partial("a", 0, 100))
    cache.fetch(partial("b", 0, 100))
    cache.fetch(partial("a", 0, 110))
    cache.fetch(partial("c", 0, 100))
    assert cache.held_bytes == 210
    store.reads.clear()
    cache.fetch(partial("a", 0, 110))
    assert store.reads == []
    cache.fetch(partial("b", 0, 100))
    assert store.reads == [("b", 0, 100)]


def test_a_segment_that_is_too_long_is_not_kept_and_files_never_are() -> None:
    store = Store()
    cache = store.cache(99)
    cache.fetch(partial("a", 0, 100))
    cache.fetch(job("b", Kind.FILE, 0, 50))
    assert cache.held_bytes == 0


def test_lost_audio_is_lost_and_what_was_here_of_it_is_forgotten() -> None:
    store = Store()
    cache = store.cache()
    cache.fetch(partial("a", 0, 100))
    store.held["a"] = (0, 150)
    with pytest.raises(AudioLost):
        cache.fetch(partial("a", 0, 200))
    assert cache.held_bytes == 0
    assert cache.fetch(partial("a", 0, 150)) == audio("a", 0, 150)
