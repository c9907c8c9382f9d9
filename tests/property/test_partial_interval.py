"""How often partials are asked for: bounded, never more often under more load or in a longer segment."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sessions.limits import SessionLimits
from sessions.partials import GROWTH, LONGEST_INTERVAL_S, loaded_interval_s, partial_interval_s
from tests.support.session_driver import Driver

bases = st.floats(0.1, 60)
waits = st.floats(0, 1e6)
lengths = st.floats(0, 28)


@given(bases, waits, waits, lengths, lengths)
def test_more_load_and_a_longer_segment_never_shorten_it(
    base: float, wait: float, other_wait: float, length: float, other_length: float
) -> None:
    (less, more), (shorter, longer) = sorted([wait, other_wait]), sorted([length, other_length])
    assert partial_interval_s(base, less, shorter) <= partial_interval_s(base, more, longer)
    assert loaded_interval_s(base, less) <= loaded_interval_s(base, more)


@given(bases, waits, lengths)
def test_it_is_bounded(base: float, wait: float, length: float) -> None:
    interval = partial_interval_s(base, wait, length)
    assert base <= interval <= max(base, LONGEST_INTERVAL_S, GROWTH * length)
    assert partial_interval_s(base, 0, 0) == base


@settings(deadline=None, max_examples=30)
@given(st.floats(0.1, 2), st.integers(1, 26))
def test_the_partials_of_a_segment_decode_a_bounded_multiple_of_it(base: float, length: int) -> None:
    driver = Driver(SessionLimits(partial_interval_s=base))
    for _ in range(10 * length):
        driver.wait(0.1)
        driver.audio(0.1)
        for job in driver.jobs[len(driver.partials) :]:
            driver.deliver(job)
    decoded = sum(job.audio_s for job in driver.jobs)
    assert decoded <= (1 + 1 / GROWTH) * length + 0.5
    ends = [job.end_byte for job in driver.jobs]
    assert all(earlier < later for earlier, later in pairwise(ends))
