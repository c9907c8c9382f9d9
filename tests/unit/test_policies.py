"""What each policy says of a lane, as a table; and what every policy must keep to."""

from __future__ import annotations

import importlib
import math
import pkgutil

import pytest

import queueing.policies
from queueing.costs import prior_costs
from queueing.errors import UnknownPolicy
from queueing.lane import Kind, Lane, all_lanes
from queueing.policies import DEFAULT_POLICY, POLICIES, get_policy
from queueing.policy import MAX_AGE_MS, LaneRank, Load, most_urgent, rank_all
from queueing.settings import QueueSettings

PARTIAL, FINAL, FILE = Lane(Kind.PARTIAL, 4), Lane(Kind.FINAL, 10), Lane(Kind.FILE, 30)
COSTS = {**prior_costs(), PARTIAL: 200.0, FINAL: 400.0, FILE: 1_000.0}

RANKS = [
    # policy, lane, tier, head start ms, rate
    ("fcfs", PARTIAL, 0, 0, 1),
    ("fcfs", FINAL, 0, 0, 1),
    ("fcfs", FILE, 0, 0, 1),
    ("priority", PARTIAL, 0, 1_500, 1),
    ("priority", Lane(Kind.PARTIAL, 5), 0, 0, 1),
    ("priority", FINAL, 0, 10_000, 1),
    ("priority", FILE, 0, -30_000, 1),
    ("strict", PARTIAL, 1, 0, 1),
    ("strict", FINAL, 0, 0, 1),
    ("strict", FILE, 2, 0, 1),
    ("sjf", PARTIAL, 1, -2e9, 1),
    ("sjf", FINAL, 0, -4e9, 1),
    ("sjf", FILE, 2, -1e10, 1),
    ("hrrn", PARTIAL, 1, 200, 1 / 200),
    ("hrrn", FINAL, 0, 400, 1 / 400),
    ("hrrn", FILE, 2, 1_000, 1 / 1_000),
    ("edf", PARTIAL, 0, -2_000, 1),
    ("edf", FINAL, 0, -1_000, 1),
    ("edf", FILE, 0, -600_000, 1),
    # one worker at load 0.5 of 200 ms jobs: e^x - 1 = 2x has x = 1.2564312, so g = x / 200 ms, and
    # -ln(1 - e^-x) / g = 53.33 ms, -ln(1 - e^-2x) / g = 13.45 ms, -ln(1 - e^-5x) / g = 0.30 ms
    ("boost", PARTIAL, 0, 1_553.33, 1),
    ("boost", FINAL, 0, 10_013.45, 1),
    ("boost", FILE, 0, -29_999.70, 1),
]


@pytest.mark.parametrize(("name", "lane", "tier", "head_start_ms", "rate"), RANKS)
def test_the_rank_of_a_lane(name: str, lane: Lane, tier: int, head_start_ms: float, rate: float) -> None:
    rank = get_policy(name).rank(lane, COSTS, Load({PARTIAL: 2.5}, workers=1))

    assert rank.tier == tier
    assert rank.head_start_ms == pytest.approx(head_start_ms, abs=0.01)
    assert rank.rate == pytest.approx(rate)
    assert rank.max_age_ms == MAX_AGE_MS[lane.kind]


def test_every_policy_is_in_the_table() -> None:
    assert {row[0] for row in RANKS} == set(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_every_lane_ages_and_has_finite_numbers(name: str) -> None:
    for workers in (0, 1, 8):
        for per_s in (0.0, 0.01, 1e6):
            ranks = rank_all(get_policy(name), prior_costs(), Load(dict.fromkeys(all_lanes(), per_s), workers))
            assert tuple(ranks) == all_lanes()
            for rank in ranks.values():
                assert rank.rate > 0
                assert math.isfinite(rank.head_start_ms)
                assert rank.max_age_ms > 0


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_knows_its_own_name(name: str) -> None:
    assert get_policy(name).name == name


def test_the_table_holds_each_file_of_the_folder() -> None:
    files = {module.name for module in pkgutil.iter_modules(queueing.policies.__path__)}

    assert files == set(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_says_who_wins_who_can_starve_and_when_not_to_use_it(name: str) -> None:
    text = importlib.import_module(f"queueing.policies.{name}").__doc__ or ""

    for part in ("\nFormula", "\nWins: ", "\nCan starve: ", "\nDo not use: "):
        assert part in text, f"{name} lacks {part.strip()!r}"


def test_an_unknown_policy_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnknownPolicy) as caught:
        get_policy("lifo")

    assert caught.value.name == "lifo"
    assert caught.value.known == tuple(POLICIES)
    assert "hrrn" in str(caught.value)


def test_the_default_of_the_settings_is_a_policy() -> None:
    assert QueueSettings.from_env({}).policy == DEFAULT_POLICY
    assert DEFAULT_POLICY in POLICIES


@pytest.mark.parametrize(
    ("head_start_ms", "rate", "max_age_ms", "named"),
    [
        (math.inf, 1.0, 1.0, "head_start_ms"),
        (math.nan, 1.0, 1.0, "head_start_ms"),
        (0.0, 0.0, 1.0, "rate"),
        (0.0, -1.0, 1.0, "rate"),
        (0.0, math.inf, 1.0, "rate"),
        (0.0, 1.0, 0.0, "max_age_ms"),
        (0.0, 1.0, math.inf, "max_age_ms"),
    ],
)
def test_a_rank_that_would_break_the_order_is_refused(
    head_start_ms: float, rate: float, max_age_ms: float, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        LaneRank(tier=0, head_start_ms=head_start_ms, rate=rate, max_age_ms=max_age_ms)


def test_a_load_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"partial:4.*-1"):
        Load({PARTIAL: -1.0})
    with pytest.raises(ValueError, match=r"partial:4.*nan"):
        Load({PARTIAL: math.nan})
    with pytest.raises(ValueError, match="workers"):
        Load({}, workers=-1)


def _ranks(**changes: LaneRank) -> dict[Lane, LaneRank]:
    plain = LaneRank(tier=0, head_start_ms=0.0, rate=1.0, max_age_ms=1_000.0)
    by_kind = {Kind.PARTIAL: PARTIAL, Kind.FINAL: FINAL, Kind.FILE: FILE}
    return {lane: changes.get(kind.value, plain) for kind, lane in by_kind.items()}


def test_no_heads_no_lane() -> None:
    assert most_urgent({}, _ranks(), 100.0) is None


def test_the_lowest_tier_that_holds_a_job_is_served() -> None:
    ranks = _ranks(final=LaneRank(tier=1, head_start_ms=1e9, rate=1.0, max_age_ms=1_000.0))

    assert most_urgent({PARTIAL: 100.0, FINAL: 0.0}, ranks, 100.0) == PARTIAL
    assert most_urgent({FINAL: 0.0}, ranks, 100.0) == FINAL


def test_the_rate_decides_who_overtakes_whom() -> None:
    ranks = _ranks(partial=LaneRank(tier=0, head_start_ms=0.0, rate=10.0, max_age_ms=1_000.0))

    assert most_urgent({PARTIAL: 99.0, FINAL: 0.0}, ranks, 100.0) == FINAL
    assert most_urgent({PARTIAL: 99.0, FINAL: 0.0}, ranks, 120.0) == PARTIAL


def test_an_overdue_job_goes_before_every_tier_and_the_longest_overdue_first() -> None:
    ranks = _ranks(
        file=LaneRank(tier=2, head_start_ms=-1e9, rate=1.0, max_age_ms=500.0),
        partial=LaneRank(tier=1, head_start_ms=0.0, rate=1.0, max_age_ms=900.0),
    )
    heads = {FINAL: 400.0, PARTIAL: 0.0, FILE: 100.0}

    assert most_urgent(heads, ranks, 599.0) == FINAL
    assert most_urgent(heads, ranks, 600.0) == FILE
    assert most_urgent({FINAL: 400.0, PARTIAL: 0.0, FILE: 450.0}, ranks, 960.0) == PARTIAL


def test_a_tie_goes_to_the_first_lane_in_order() -> None:
    assert most_urgent({FILE: 5.0, FINAL: 5.0, PARTIAL: 5.0}, _ranks(), 100.0) == PARTIAL
