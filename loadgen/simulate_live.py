"""Live streams: people who speak one utterance after another, each with partials on the way and a final at its end.

A fixed number of people, as on a service with a stream cap; pauses between utterances are as long as the wanted load
needs. Partials follow the session's rules: the first after 0.5 s of audio, then one for each new second, over all
audio of the utterance; with superseding at most one of a stream waits (a newer one takes its place and its age) or runs
(the next is asked for when it is done), and the end of the utterance takes a waiting one out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from loadgen.queue_model import SimJob, Simulation
from loadgen.workloads import CostModel, lane_costs
from queueing.lane import MAX_JOB_AUDIO_S, Kind, Lane
from queueing.policies import get_policy
from queueing.policy import Load, rank_all

MINIMUM_S = 0.5
INTERVAL_S = 1.0
MARGIN = 1.15
"""People beyond those who would bring the load if they never paused: nobody speaks without a break."""


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """``load``: work of all partials and finals per worker, before any is superseded; may exceed 1."""

    load: float
    workers: int = 1
    seconds: float = 3_600.0


@dataclass(slots=True)
class LiveFigures:
    """Of one run: seconds from the end of each utterance to its final, age of each partial's newest audio, counts."""

    people: int = 0
    final_s: list[float] = field(default_factory=list)
    partial_age_s: list[float] = field(default_factory=list)
    asked: int = 0
    superseded: int = 0
    waiting_at_end: int = 0
    unanswered: int = 0
    """Utterances that ended without a final yet; more than a few mean that the queue does not keep up."""


def speakable(durations: Sequence[float]) -> list[float]:
    """The durations that a partial may cover to their end."""
    return [seconds for seconds in durations if seconds <= MAX_JOB_AUDIO_S]


def work_of(seconds: float, cost: CostModel) -> list[tuple[Lane, float]]:
    """All (lane, ms) of one utterance without superseding."""
    steps = math.ceil((seconds - MINIMUM_S) / INTERVAL_S) if seconds > MINIMUM_S else 0
    found = [_job(Kind.PARTIAL, MINIMUM_S + step * INTERVAL_S, cost) for step in range(steps)]
    return [*found, _job(Kind.FINAL, seconds, cost)]


def simulate(
    policy: str, superseding: bool, durations: Sequence[float], cost: CostModel, runs: LiveRuns, rng: random.Random
) -> LiveFigures:
    """One run."""
    work = [work_of(seconds, cost) for seconds in durations]
    work_s = sum(cost_ms for jobs in work for _, cost_ms in jobs) / len(work) / 1000
    speech_s = sum(durations) / len(durations)
    people = max(1, math.ceil(MARGIN * runs.load * runs.workers * speech_s / work_s))
    pause_s = people * work_s / (runs.load * runs.workers) - speech_s
    jobs = [job for utterance in work for job in utterance]
    utterances_per_s = people / (speech_s + pause_s)
    arrivals: dict[Lane, float] = {}
    for lane, _cost_ms in jobs:
        arrivals[lane] = arrivals.get(lane, 0.0) + utterances_per_s / len(work)
    ranks = rank_all(get_policy(policy), lane_costs(jobs), Load(arrivals, runs.workers))
    simulation = Simulation(ranks, runs.workers)
    figures = LiveFigures(people=people)

    def speak() -> None:
        seconds = rng.choice(durations)
        figures.unanswered += 1
        _Utterance(simulation, seconds, cost, superseding, figures).begin()
        pause = rng.expovariate(1 / pause_s)
        simulation.at(simulation.now_ms + 1000 * (seconds + pause), speak)

    for _ in range(people):
        simulation.at(1000 * rng.random() * (speech_s + pause_s), speak)
    simulation.run(1000 * runs.seconds)
    figures.waiting_at_end = simulation.waiting
    return figures


class _Utterance:
    """One utterance on its way, by the rules of `sessions.partials.PartialPlan`."""

    def __init__(
        self, simulation: Simulation, seconds: float, cost: CostModel, superseding: bool, figures: LiveFigures
    ) -> None:
        self._simulation = simulation
        self._seconds = seconds
        self._cost = cost
        self._superseding = superseding
        self._figures = figures
        self._start_ms = 0.0
        self._partial: SimJob | None = None
        self._running = False
        self._asked_while_running = False
        self._ended = False

    def begin(self) -> None:
        self._start_ms = self._simulation.now_ms
        self._next_at(MINIMUM_S)
        self._simulation.at(self._start_ms + 1000 * self._seconds, self._end)

    def _next_at(self, audio_s: float) -> None:
        if audio_s < self._seconds:
            self._simulation.at(self._start_ms + 1000 * audio_s, self._ask)

    def _ask(self) -> None:
        if self._ended:
            return
        if self._superseding and self._running:
            self._asked_while_running = True
            return
        now_ms = self._simulation.now_ms
        audio_s = (now_ms - self._start_ms) / 1000
        arrival_ms = now_ms
        self._figures.asked += 1
        if self._superseding and self._partial is not None and self._simulation.withdraw(self._partial):
            self._figures.superseded += 1
            arrival_ms = self._partial.arrival_ms
        lane, cost_ms = _job(Kind.PARTIAL, audio_s, self._cost)
        self._partial = SimJob(lane, cost_ms, self._begun, lambda done_ms: self._shown(audio_s, done_ms))
        self._next_at(audio_s + INTERVAL_S)
        self._simulation.submit(self._partial, arrival_ms)

    def _begun(self, _now_ms: float) -> None:
        self._running = True

    def _shown(self, audio_s: float, done_ms: float) -> None:
        self._running = False
        if not self._ended:
            self._figures.partial_age_s.append((done_ms - self._start_ms) / 1000 - audio_s)
            if self._asked_while_running:
                self._asked_while_running = False
                self._ask()

    def _end(self) -> None:
        self._ended = True
        if self._superseding and self._partial is not None:
            self._simulation.withdraw(self._partial)
        lane, cost_ms = _job(Kind.FINAL, self._seconds, self._cost)
        ended_ms = self._simulation.now_ms

        def final(done_ms: float) -> None:
            self._figures.final_s.append((done_ms - ended_ms) / 1000)
            self._figures.unanswered -= 1

        self._simulation.submit(SimJob(lane, cost_ms, on_done=final))


def _job(kind: Kind, audio_s: float, cost: CostModel) -> tuple[Lane, float]:
    return Lane.for_audio(kind, audio_s), cost(kind, audio_s)
