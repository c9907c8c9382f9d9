"""Streams that take turns: those who compute hold up each other, and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from api.seats import AGED_S, USUAL_S, FairQueue, Seat
from api.steps import Steps, Wait
from api.turns import Turns
from queueing.clock import SystemClock, cpu_clock, cpu_s
from tests.support.eventually import eventually
from tests.unit.test_turns import Client, told

needs_cpu_clocks = pytest.mark.skipif(cpu_clock() is None, reason="no clocks of the CPU time of threads here")


def compute(seconds: float) -> None:
    """Use the CPU for so long."""
    clock = cpu_clock()
    until_s = cpu_s(clock) + seconds
    while cpu_s(clock) < until_s:
        pass


@pytest.fixture(params=[False, True], ids=["epoll", "poll"])
def turns(request: pytest.FixtureRequest) -> Turns:
    return Turns(SystemClock(), portable=request.param)


@pytest.fixture
def opened(turns: Turns) -> Iterator[Callable[[Callable[[Client], Steps[None]]], Client]]:
    clients: list[Client] = []

    def open_one(life: Callable[[Client], Steps[None]]) -> Client:
        clients.append(Client(turns, life))
        return clients[-1]

    yield open_one
    for client in clients:
        client.close()


@needs_cpu_clocks
def test_those_who_compute_without_end_go_after_one_who_does_not(
    opened: Callable[[Callable[[Client], Steps[None]]], Client],
) -> None:
    taken: list[str] = []

    def hog(client: Client) -> Steps[None]:
        while "over" not in taken:
            yield Wait(0, reads=True)
            compute(0.012)
            taken.append("hog")

    def polite(client: Client) -> Steps[None]:
        while told(client, (yield Wait(60, reads=True))) is not None:
            taken.append("polite")

    client, hogs = opened(polite), [opened(hog) for _ in range(20)]
    waits = []
    for number in range(6):
        enough = len(taken) + 25
        eventually(lambda enough=enough: len(taken) >= enough, what="turns of those who compute")  # type: ignore[misc]
        before = len(taken)
        client.socket.send(b"a")
        eventually(lambda number=number: taken.count("polite") > number, what="a turn of one who does not")  # type: ignore[misc]
        waits.append(taken[before:].index("polite"))
    taken.append("over")
    for one in hogs:
        one.ends()
    assert sum(waits) < 6 * 7, waits


@needs_cpu_clocks
def test_a_step_that_computes_is_left_alone() -> None:
    turns = Turns(SystemClock(), stuck_s=0.2)  # in so long it gets a CPU on any machine

    def life(client: Client) -> Steps[None]:
        told(client, (yield Wait(60, reads=True)))
        compute(0.6)

    client = Client(turns, life)
    client.socket.send(b"a")
    client.ends()
    assert turns._leader == 1
    client.close()


def seat() -> Seat:
    return Seat(iter(()), 0, 0)  # type: ignore[arg-type]


def test_each_gets_as_much_as_the_others_and_who_rested_gets_no_more() -> None:
    queue, late = FairQueue(), seat()
    costs = {seat(): cost for cost in (0.012, 0.022, 0.042)}
    used = dict.fromkeys(costs, 0.0)
    for one in costs:
        queue.put(one, 0.0)

    def turns_of(whom: Seat, count: int) -> int:
        taken = []
        for _ in range(count):
            taken.append(one := queue.take(0.0))
            one.charge(costs[one])
            used[one] += costs[one] - USUAL_S
            queue.put(one, 0.0)
        return taken.count(whom)

    turns_of(late, 70)
    assert max(used.values()) - min(used.values()) <= 0.042
    costs[late], used[late] = 0.022, 0.0
    queue.put(late, 0.0)
    assert 8 <= turns_of(late, 70) <= 25


def test_who_used_more_is_not_forgotten_among_many_who_use_little() -> None:
    """The queue is never empty: all want their next turn before the one who used more has had one."""
    queue, many, one = FairQueue(), [seat() for _ in range(50)], seat()
    one.charge(0.05)
    for each in (*many, one):
        queue.put(each, 0.0)
    now_s, taken = 0.0, many[:0]
    while one not in taken and len(taken) < 10_000:
        now_s += 0.001
        taken.append(each := queue.take(now_s))
        each.charge(0.001)
        queue.put(each, now_s)
    assert AGED_S < now_s < 2 * AGED_S


def test_those_who_wait_for_long_take_every_second_turn() -> None:
    queue, floods, polite = FairQueue(), [seat() for _ in range(100)], seat()
    now_s = 0.0
    for each in floods:
        each.charge(0.005)
        queue.put(each, now_s)
    waited = []
    for number in range(2_000):
        now_s += 0.005
        if number > 200 and number % 20 == 0:
            queue.put(polite, now_s)
            came = number
        each = queue.take(now_s)
        if each is polite:
            waited.append(number - came)
        else:
            each.charge(0.005)
            queue.put(each, now_s)
    assert len(waited) > 80
    assert max(waited) <= 1
    assert len(queue) == len(floods)
    assert len(queue._heap) + len(queue._line) < 1_000


def test_those_who_are_taken_for_their_age_alone_leave_nothing_behind() -> None:
    """Virtual time stands still: there is always one whose steps cost nothing."""
    queue, floods, polite = FairQueue(), [seat() for _ in range(10)], seat()
    for each in floods:
        each.charge(0.05)
    for each in (*floods, polite):
        queue.put(each, 0.0)
    for number in range(5_000):
        each = queue.take(number * 0.005)
        each.charge(0.0 if each is polite else 0.05)
        queue.put(each, number * 0.005)
    assert len(queue) == len(floods) + 1
    assert len(queue._heap) + len(queue._line) < 200
