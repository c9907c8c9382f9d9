"""The simulator against queueing theory, brute force, the production claim rule, and itself."""

from __future__ import annotations

import heapq
import json
import random
import statistics
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadgen.clips import ClipError
from loadgen.queue_model import SimJob, Simulation, WaitingLine
from loadgen.simulate import main
from loadgen.simulate_clips import ClipRuns, draw, percentiles, responses
from loadgen.simulate_live import LiveRuns, simulate, speakable, work_of
from loadgen.workloads import COST_MODELS, full_window, lane_costs, pieces, proportional, read_durations, windowed
from queueing.costs import prior_costs
from queueing.lane import Kind, Lane, all_lanes
from queueing.policies import POLICIES
from queueing.policy import Load, most_urgent, rank_all

DURATIONS = [1.3, 2.0, 2.7, 3.4, 4.5, 5.8, 7.4, 9.6, 12.0, 14.6, 17.0, 22.0]


def test_fcfs_is_exactly_the_order_of_arrival_with_any_number_of_workers(rng: random.Random) -> None:
    for workers in (1, 2, 3):
        runs = ClipRuns(load=0.9, workers=workers, jobs=2_000)
        arrivals = draw(DURATIONS, windowed, runs, rng)
        free = [0.0] * workers
        expected = []
        for at, ((_lane, cost_ms),) in arrivals:
            begin = max(at, heapq.heappop(free))
            heapq.heappush(free, begin + cost_ms)
            expected.append(begin + cost_ms - at)
        assert responses("fcfs", arrivals, workers) == pytest.approx(expected)


def test_mean_wait_of_constant_service_is_pollaczek_khinchine(rng: random.Random) -> None:
    """M/D/1: W = rho s / (2 (1 - rho)); here rho = 0.6 and s = 100 ms, so 75 ms."""
    lane = Lane(Kind.FILE, 5)
    now = 0.0
    arrivals = []
    for _ in range(40_000):
        now += rng.expovariate(0.6 / 100)
        arrivals.append((now, ((lane, 100.0),)))
    # Over 40,000 jobs the standard error is 2.25 % (60 seeds of a plain loop): this is five of them.
    assert statistics.fmean(responses("fcfs", arrivals)) - 100 == pytest.approx(75, rel=0.12)


@pytest.mark.parametrize("name", list(POLICIES))
def test_the_line_takes_what_the_claim_rule_says(name: str, rng: random.Random) -> None:
    load = Load({lane: rng.random() for lane in all_lanes()}, workers=2)
    ranks = rank_all(POLICIES[name], prior_costs(), load)
    line = WaitingLine(ranks)
    waiting: list[SimJob] = []
    now = 0.0
    for _ in range(600):
        now += rng.expovariate(1 / 400)
        if rng.random() < 0.55:
            age = rng.choice((0.0, 0.0, rng.random() * 40_000))
            job = SimJob(rng.choice(all_lanes()), 1.0, arrival_ms=now - age)
            line.put(job)
            waiting.append(job)
        elif waiting and rng.random() < 0.2:
            gone = waiting.pop(rng.randrange(len(waiting)))
            assert line.withdraw(gone)
            assert not line.withdraw(gone)
        else:
            heads: dict[Lane, float] = {}
            for job in waiting:
                heads[job.lane] = min(heads.get(job.lane, job.arrival_ms), job.arrival_ms)
            lane = most_urgent(heads, ranks, now)
            taken = line.take(now)
            assert (taken is None) == (lane is None)
            if taken is not None:
                assert (taken.lane, taken.arrival_ms) == (lane, heads[taken.lane])
                waiting.remove(taken)
        assert line.length == len(waiting)


def test_every_job_is_served_once_and_the_workers_are_busy_as_long_as_the_work(rng: random.Random) -> None:
    simulation = Simulation(rank_all(POLICIES["hrrn"], prior_costs(), Load()), workers=3)
    done: list[int] = []
    work_ms = 0.0
    for index in range(500):
        job = SimJob(rng.choice(all_lanes()), rng.random() * 50, on_done=lambda _now, index=index: done.append(index))  # type: ignore[misc]
        work_ms += job.service_ms
        simulation.at(rng.random() * 1_000, lambda job=job: simulation.submit(job))  # type: ignore[misc]
    simulation.run()
    assert sorted(done) == list(range(500))
    assert simulation.busy_ms == pytest.approx(work_ms)
    assert simulation.waiting == 0


def test_the_seed_decides_everything(rng: random.Random) -> None:
    seed = rng.randrange(2**32)
    runs = ClipRuns(jobs=500)
    assert draw(DURATIONS, proportional, runs, random.Random(seed)) == draw(
        DURATIONS, proportional, runs, random.Random(seed)
    )
    live = LiveRuns(load=1.1, seconds=200)
    one, two = (simulate("boost", True, DURATIONS, windowed, live, random.Random(seed)) for _ in range(2))
    assert one == two


def test_offered_load_is_the_one_asked_for(rng: random.Random) -> None:
    arrivals = draw(DURATIONS, full_window, ClipRuns(load=0.5, workers=2, jobs=20_000), rng)
    work_ms = sum(cost_ms for _, ((_, cost_ms),) in arrivals)
    assert work_ms / arrivals[-1][0] / 2 == pytest.approx(0.5, rel=0.05)


def test_shortest_first_helps_the_median_and_hurts_the_tail() -> None:
    # One fixed draw: near capacity a p99 varies too much between draws for this to hold in every one.
    arrivals = draw(DURATIONS, proportional, ClipRuns(load=0.95, jobs=8_000), random.Random(20))
    fcfs, sjf, hrrn = (percentiles(responses(policy, arrivals)) for policy in ("fcfs", "sjf", "hrrn"))
    assert sjf["p50"] < hrrn["p50"] < fcfs["p50"]
    assert statistics.fmean(responses("sjf", arrivals)) < statistics.fmean(responses("hrrn", arrivals))
    assert sjf["p99"] > fcfs["p99"]


def test_a_long_clip_is_cut_and_ends_with_its_last_piece() -> None:
    assert pieces(28.0) == (28.0,)
    assert pieces(28.1) == (14.05, 14.05)
    assert pieces(70.0) == pytest.approx((70 / 3,) * 3)
    (clip,) = {clip for _, clip in draw([70.0], proportional, ClipRuns(jobs=3), random.Random(1))}
    assert [lane for lane, _ in clip] == [Lane(Kind.FILE, 30)] * 3
    assert sum(cost_ms for _, cost_ms in clip) == pytest.approx(proportional(Kind.FILE, 70.0))
    assert responses("fcfs", [(0.0, clip), (1e9, clip)]) == pytest.approx([proportional(Kind.FILE, 70.0)] * 2)


def test_with_one_lane_every_policy_is_arrival_order(rng: random.Random) -> None:
    arrivals = [
        (at, ((Lane(Kind.FILE, 30), cost_ms),))
        for at, ((_, cost_ms),) in draw(DURATIONS, windowed, ClipRuns(jobs=500), rng)
    ]
    expected = responses("fcfs", arrivals)
    for name in POLICIES:
        assert responses(name, arrivals) == expected


def test_superseding_and_a_head_start_keep_finals_quick_where_decoding_everything_does_not(rng: random.Random) -> None:
    seed = rng.randrange(2**32)
    runs = LiveRuns(load=1.4, seconds=400)
    everything, superseding, both = (
        simulate(policy, supersede, DURATIONS, windowed, runs, random.Random(seed))
        for policy, supersede in (("fcfs", False), ("fcfs", True), ("priority", True))
    )
    assert everything.superseded == 0
    assert superseding.superseded > 0
    assert everything.waiting_at_end > 10 * everything.people
    for figures in (superseding, both):
        # At most one partial and one final of each stream wait, with superseding.
        assert figures.waiting_at_end <= 2 * figures.people
        assert figures.unanswered <= 2 * figures.people
    late = [statistics.quantiles(figures.final_s, n=20)[18] for figures in (everything, superseding, both)]
    assert late[0] > late[1] > late[2]


def test_work_of_an_utterance_is_its_partials_and_its_final() -> None:
    work = work_of(3.2, proportional)
    assert [lane.kind for lane, _ in work] == [Kind.PARTIAL] * 3 + [Kind.FINAL]
    assert [cost / 36.7 for _, cost in work] == pytest.approx([0.5, 1.5, 2.5, 3.2])
    assert [lane.kind for lane, _ in work_of(0.4, proportional)] == [Kind.FINAL]
    assert speakable([1.0, 28.0, 28.5]) == [1.0, 28.0]


def test_lane_costs_are_means_over_the_prior() -> None:
    lane = Lane(Kind.FINAL, 5)
    costs = lane_costs([(lane, 100.0), (lane, 300.0)])
    assert costs[lane] == 200.0
    assert costs.keys() == prior_costs().keys()
    assert all(model(Kind.FINAL, 5.0) > 0 for model in COST_MODELS.values())


@pytest.mark.speech
def test_durations_are_read_from_the_list(speech_dir: Path) -> None:
    durations = read_durations(speech_dir / "librispeech-test-clean-durations.csv")
    assert len(durations) == 2_620
    assert statistics.fmean(durations) == pytest.approx(7.4, abs=0.05)


@pytest.mark.parametrize("text", ["", "id\n1\n", "seconds\nx\n", "seconds\n0\n", "seconds\n-1\n"])
def test_files_without_durations_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text(text)
    with pytest.raises(ClipError, match=r"durations|seconds"):
        read_durations(tmp_path / "d.csv")
    with pytest.raises(ClipError, match="cannot be read"):
        read_durations(tmp_path / "none.csv")


def test_the_command_prints_both_tables_and_the_same_json_for_the_same_seed(tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("seconds\n" + "".join(f"{seconds}\n" for seconds in DURATIONS))
    command = ["--durations", str(path), "--seeds", "2", "--jobs", "400", "--live-seconds", "60", "--json"]
    first, second = (CliRunner().invoke(main, command) for _ in range(2))
    assert first.exit_code == 0
    assert first.stdout == second.stdout
    fields = json.loads(first.stdout)
    assert set(fields["clips"]) == set(COST_MODELS)
    assert set(fields["clips"]["windowed"]["change_percent"]) == {"sjf", "hrrn", "boost"}
    assert set(fields["live"]) == {"0.7", "0.93", "1.4"}
    assert not fields["live"]["1.4"]["priority"]["final_p95_s"]["mean"] > 5
    shown = CliRunner().invoke(main, [*command[:-1], "--only", "clips"]).stdout
    assert "Whole clips, load 0.95" in shown
    assert "Live" not in shown
    assert CliRunner().invoke(main, ["--durations", str(tmp_path / "none.csv")]).exit_code == 2
