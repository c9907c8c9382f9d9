"""How many workers run when nobody says."""

from __future__ import annotations

import pytest

from ops import machine
from ops.machine import usual_workers
from workers import devices


@pytest.mark.parametrize(
    ("cpus", "threads", "workers"),
    [(1, 0, 1), (2, 0, 2), (2, 1, 2), (2, 2, 1), (4, 0, 1), (8, 0, 2), (8, 2, 4), (64, 0, 4), (2, 8, 1)],
)
def test_workers_fill_the_cpus_and_no_more(cpus: int, threads: int, workers: int) -> None:
    assert usual_workers(cpus=cpus, threads=threads, device="cpu", gpu=True) == workers
    assert usual_workers(cpus=cpus, threads=threads, device="auto", gpu=False) == workers


@pytest.mark.parametrize(("device", "gpu"), [("cuda", False), ("cuda", True), ("auto", True)])
def test_a_gpu_has_one_worker(device: str, gpu: bool) -> None:
    assert usual_workers(cpus=64, threads=1, device=device, gpu=gpu) == 1


def test_both_programs_know_how_many_threads_a_worker_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.MOST_THREADS == devices.MOST_THREADS
    for cpus in (1, 2, 3, 8):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, cpus=cpus: set(range(cpus)), raising=False)
        threads = devices.choose_threads(0)
        assert usual_workers(cpus=cpus, threads=0, device="cpu", gpu=False) == usual_workers(
            cpus=cpus, threads=threads, device="cpu", gpu=False
        )
