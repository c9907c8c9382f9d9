"""The fuzz targets over their seeds, and for a moment over what hypothesis makes of bytes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.seeds import SEEDS
from tests.fuzz.targets import TARGETS

patient = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no fault of the code."""


def test_every_target_has_seeds_and_a_name_on_the_command_line() -> None:
    from pathlib import Path

    assert set(SEEDS) == set(TARGETS)
    command = (Path(__file__).parents[1] / "fuzz" / "__main__.py").read_text(encoding="utf-8")
    assert all(f'"{name}"' in command for name in TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_their_beginnings_break_nothing(name: str) -> None:
    for seed in SEEDS[name]():
        for end in {len(seed), *range(0, len(seed), max(1, len(seed) // 20))}:
            TARGETS[name](seed[:end])


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_seeds_break_nothing(name: str) -> None:
    seeds = SEEDS[name]()

    @patient
    @given(
        seed=st.sampled_from(seeds),
        other=st.sampled_from(seeds),
        at=st.integers(0, 300),
        upto=st.integers(0, 300),
        new=st.binary(max_size=20),
    )
    def damage(seed: bytes, other: bytes, at: int, upto: int, new: bytes) -> None:
        TARGETS[name](seed[:at] + new + seed[at + upto :])
        TARGETS[name](seed[:at] + other[upto:])

    damage()
