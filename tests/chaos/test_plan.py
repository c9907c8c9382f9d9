"""A run follows from its seed alone, and every part of it can be replayed."""

from __future__ import annotations

import random

import pytest
from click.testing import CliRunner

from ops.chaos.__main__ import main
from ops.chaos.audio import make_clips, whole_hundredths
from ops.chaos.plan import KINDS, WEBS, WORKERS, Plan, chosen_kinds, make_plan
from ops.chaos.records import Leave

CLIPS = make_clips(random.Random(1))


def plan(seed: int, minutes: float = 2.0, *kinds: str) -> Plan:
    return make_plan(seed, minutes, CLIPS, chosen_kinds(kinds))


def test_the_same_seed_is_the_same_run() -> None:
    assert plan(7) == plan(7)
    assert plan(7).faults != plan(8).faults
    assert plan(7).streams != plan(8).streams
    assert [clip.pcm for clip in make_clips(random.Random("7 audio"))] == [
        clip.pcm for clip in make_clips(random.Random("7 audio"))
    ]


def test_what_streams_send_ends_where_the_times_of_the_wire_are_exact() -> None:
    assert all(whole_hundredths(clip.pcm) == clip.pcm for clip in CLIPS)
    assert len(whole_hundredths(bytes(2 * 82_220))) == 2 * 82_080, "5.13875 s, which the wire rounds, are 5.13 s"


def test_other_faults_leave_the_times_of_a_run_to_its_seed() -> None:
    assert {fault.kind for fault in plan(7, 2.0, "redis.kill").faults} == {"redis.kill"}
    assert plan(7, 2.0, "web", "redis.kill") == plan(7, 2.0, "web", "redis.kill")
    with pytest.raises(ValueError, match=r"no fault 'gremlins'; choose from web\.kill"):
        chosen_kinds(["gremlins"])


@pytest.mark.parametrize("seed", range(20))
def test_a_run_holds_many_faults_and_quiet_at_its_end(seed: int) -> None:
    run = plan(seed)
    assert len(run.faults) >= 12
    assert [fault.at_s for fault in run.faults] == sorted(fault.at_s for fault in run.faults)
    assert run.faults[-1].at_s < run.seconds - 10
    gaps = [after.at_s - before.at_s for before, after in zip(run.faults, run.faults[1:], strict=False)]
    assert max(gaps) > 2, "some faults come after quiet"
    assert len(run.streams) >= 40
    assert run.streams[-1].begin_s < run.seconds


def test_every_kind_comes_as_often_as_every_other() -> None:
    faults = [fault for seed in range(40) for fault in plan(seed).faults]
    counts = [sum(fault.kind == kind for fault in faults) for kind in KINDS]
    assert min(counts) * 3 > max(counts)
    targets = {fault.target for fault in faults}
    assert {*WEBS, *WORKERS, "redis", "streams"} <= targets
    leaves = {stream.leave for seed in range(5) for stream in plan(seed).streams}
    assert leaves == set(Leave)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--faults", "gremlins"], 2, "no fault 'gremlins'"),
        (["--seeds", "5..1"], 2, "give two whole numbers"),
        (["--seeds", "1..2", "--seed", "3"], 2, "no --seed"),
        (["--minutes", "0"], 2, "--minutes"),
        (["--model", "whisper"], 3, "--speech DIR"),
        (["--list"], 0, "redis.empty"),
        (["--help"], 0, "violations"),
    ],
)
def test_wrong_arguments_are_told(arguments: list[str], status: int, text: str) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == status
    assert text in result.output
